"""Resolving what a connect needs to know, anew for every connect."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from .._errors import ConfigError, ConnectFailed
from ..config import ConfigValue

__all__ = ["Resolver", "resolve_credentials"]

Resolver: TypeAlias = Callable[..., Awaitable[dict[str, str]]]


async def resolve_credentials(
    resolver: Resolver, values: Mapping[str, ConfigValue], *, server: str, field: str
) -> dict[str, str]:
    """Resolve the values of one field (``"env"``, ``"headers"``) against the environment as it is now.

    **Cancellation:** waits only inside an async function of the user's, and leaves nothing behind.

    Raises:
        ConnectFailed: a value cannot be resolved. Hopeless unless it was a function that raised: that one may know
            better next time.
    """
    try:
        return await resolver(values, os.environ, where=f"servers.{server}.{field}")
    except ConfigError as error:
        raise ConnectFailed(
            f"server {server!r}: {error}", server=server, phase="configure", hopeless=error.__cause__ is None
        ) from error
