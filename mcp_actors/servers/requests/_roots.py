"""The message that notifies a server of changed roots."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import define

from ..._errors import NotSupported
from ._request import Request

if TYPE_CHECKING:
    from ..record import ServerRecord
    from ..session import Session


@define(eq=False)
class TellRootsChanged(Request[None]):
    """Notify a server of the legacy era, which keeps the roots that it was given."""

    operation: ClassVar[str] = "notifications/roots/list_changed"

    of_the_session: ClassVar[bool] = True

    async def send(self, session: Session, record: ServerRecord) -> None:
        """Send the notification. Servers since 2026-07-28 need none: they ask whenever they need the roots.

        Raises:
            NotSupported: the server has no callback for roots.
        """
        if record.callbacks.roots is None:
            raise NotSupported(
                f"server {record.config.name!r}: changed roots are not supported without a callback for roots; "
                "configure Callbacks(roots=...)",
                server=record.config.name,
                capability="roots",
            )
        if not session.modern:
            await session.notify("notifications/roots/list_changed")
