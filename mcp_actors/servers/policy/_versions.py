"""Decide whether both sides have a protocol version in common. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp import MCPError
from mcp.types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from ..._text import plain_text

if TYPE_CHECKING:
    from ...config import ServerConfig

_OURS: Final = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)

_OF_THE_SDK: Final = ("Unsupported protocol version from the server", "No mutually supported modern protocol version")
"""How the SDK's bare `RuntimeError` begins in that case."""


class NoCommonVersion(Exception):
    """The server answered with a protocol version that this client does not support."""

    def __init__(self, version: str) -> None:
        super().__init__(f"protocol version {plain_text(version, limit=60)!r} of the server is not supported")


def check_handshake_version(version: str) -> None:
    """Validate the version in the answer to ``initialize``.

    Raises:
        NoCommonVersion: this client does not support it.
    """
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise NoCommonVersion(version)


def is_modern(version: str) -> bool:
    """Return True for a protocol version since 2026-07-28 that this client supports."""
    return version in MODERN_PROTOCOL_VERSIONS


def offered_versions(error: BaseException) -> list[str] | None:
    """Return the versions that a refusal of the server lists; None if it lists none."""
    if isinstance(error, MCPError) and error.code == UNSUPPORTED_PROTOCOL_VERSION:
        match error.error.data:
            case {"supported": list(versions)} if all(isinstance(each, str) for each in versions):
                return versions
    return None


def incompatibility(config: ServerConfig, error: BaseException) -> str | None:
    """Return the remedy if a negotiation failed because the two sides have no version in common; else None."""
    offered = offered_versions(error)
    if isinstance(error, MCPError):
        refusal = error.code in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION)
        if config.protocol != "auto" and refusal:
            return f"if it does not support protocol={config.protocol!r}, use 'auto'"
        if not offered or any(each in _OURS for each in offered):
            return None
    elif not isinstance(error, NoCommonVersion) and not str(error).startswith(_OF_THE_SDK):
        return None
    return f"this client supports {_OURS[0]} to {_OURS[-1]}: upgrade the server, or this program"
