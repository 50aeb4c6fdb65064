"""Telling a server that the roots have changed, so that it asks for them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen
from mcp.types import RootsListChangedNotification
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from .._errors import NotSupported
from ._request import Request

if TYPE_CHECKING:
    from mcp import Client

    from ._record import ServerRecord

__all__ = ["TellRootsChanged"]


@frozen
class TellRootsChanged(Request[None]):
    """Tell it, if it is one that keeps what it was told of the roots."""

    @property
    def operation(self) -> str:
        """``notifications/roots/list_changed``."""
        return "notifications/roots/list_changed"

    @property
    def of_the_session(self) -> bool:
        """It is about the connection that is used by everybody."""
        return True

    async def send(self, client: Client, record: ServerRecord) -> None:
        """Send the notification, which nobody answers; since 2026-07-28 servers ask whenever they want to know.

        Raises:
            NotSupported: the server was not told that it may ask for roots.
        """
        if record.callbacks.roots is None:
            raise NotSupported(
                f"server {record.config.name!r}: cannot be told that the roots have changed, as it has no callback for "
                "them; give it Callbacks(roots=...)",
                server=record.config.name,
                capability="roots",
            )
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            # The SDK's own function for it warns that it is of the legacy era.
            await client.session.send_notification(RootsListChangedNotification())
