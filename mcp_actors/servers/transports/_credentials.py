"""Resolving what a connect needs to know, anew for every connect."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..._errors import ConfigError, ConnectFailed
from ...config import Http, InProcess, ServerConfig, Sse, Stdio, TransportTemplate

__all__ = ["resolve_credentials", "resolve_transport"]

Resolved = TypeVar("Resolved")


async def resolve_credentials(
    resolver: Callable[..., Awaitable[Resolved]], configured: object, *, server: str, field: str
) -> Resolved:
    """Resolve one field (``"env"``, ``"headers"``, ``"auth"``) against the environment as it is now.

    **Cancellation:** waits only inside an async function of the user's, and leaves nothing behind.

    Raises:
        ConnectFailed: a value cannot be resolved. Hopeless unless it was a function that raised: that one may know
            better next time.
    """
    try:
        return await resolver(configured, os.environ, where=f"servers.{server}.{field}")
    except ConfigError as error:
        raise ConnectFailed(
            f"server {server!r}: {error}", server=server, phase="configure", hopeless=error.__cause__ is None
        ) from error


def resolve_transport(config: ServerConfig) -> Stdio | Http | Sse | InProcess:
    """Say how a server is reached in this connect, with the environment as it is now.

    Raises:
        ConnectFailed: a variable is not set, or what comes of it cannot be used. Hopeless.
    """
    if not isinstance(config.transport, TransportTemplate):
        return config.transport
    try:
        return config.transport.resolve(os.environ, where=f"servers.{config.name}")
    except ConfigError as error:
        raise ConnectFailed(
            f"server {config.name!r}: {error}", server=config.name, phase="configure", hopeless=True
        ) from error
