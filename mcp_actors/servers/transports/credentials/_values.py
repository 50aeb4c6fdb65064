"""Resolve the credentials of a transport, again for every connect."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...._errors import ConfigError, ConnectFailed

__all__ = ["resolve_credentials"]

Resolved = TypeVar("Resolved")


async def resolve_credentials(
    resolver: Callable[..., Awaitable[Resolved]], configured: object, *, server: str, field: str
) -> Resolved:
    """Resolve one field (``"env"``, ``"headers"``, ``"auth"``) against the current environment.

    **Cancellation:** waits only inside an async function of the user, and leaves nothing behind.

    Raises:
        ConnectFailed: a value cannot be resolved. Hopeless, unless a function of the user raised: it may succeed next
            time.
    """
    try:
        return await resolver(configured, os.environ, where=f"servers.{server}.{field}")
    except ConfigError as error:
        raise ConnectFailed(
            f"server {server!r}: {error}", server=server, phase="configure", hopeless=error.__cause__ is None
        ) from error
