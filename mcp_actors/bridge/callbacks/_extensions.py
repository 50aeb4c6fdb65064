"""Run the extensions of an asyncio program on its event loop.

The handler of a claimed result may send further requests through the SDK's session, which lives on Trio. So it gets a
view of the session whose methods are awaited on the event loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, cast

from mcp.client import ClaimContext, ClientExtension, NotificationBinding, ResultClaim

from ._functions import ServerAsker, on_loop

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult, Result

    from .._bridge import Bridge


class LoopExtension(ClientExtension):
    """Adapts an extension of an asyncio program to Trio's side.

    The declarations of the extension are read once, by ``__init__``, on the event loop. The SDK would read them on
    Trio's side, at every connect.

    Args:
        bridge: the bridge between the two sides.
        server: the name of the server that the extension is configured for.
        extension: the extension of the program.
    """

    def __init__(self, bridge: Bridge, server: str, extension: ClientExtension) -> None:
        self.identifier = extension.identifier
        self._settings = extension.settings()
        self._claims = [_claim(bridge, server, claim) for claim in extension.claims()]
        self._notifications = [
            replace(binding, handler=on_loop(bridge, binding.handler)) for binding in extension.notifications()
        ]

    def settings(self) -> dict[str, Any]:
        """Return the settings that the extension advertises."""
        return self._settings

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the extension's claims, which are resolved on the event loop."""
        return self._claims

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        """Return the extension's bindings, whose handlers run on the event loop."""
        return self._notifications


def _claim(bridge: Bridge, server: str, claim: ResultClaim[Any]) -> ResultClaim[Any]:
    resolve_on_loop = on_loop(bridge, claim.resolve)

    async def resolve(result: Result, context: ClaimContext) -> CallToolResult:
        session = cast("ClientSession", SessionView(bridge, server, context.session))
        return await resolve_on_loop(result, replace(context, session=session))

    return replace(claim, resolve=resolve)


class SessionView:
    """A view of an SDK session: its methods are awaited, and its callbacks run, on the event loop."""

    def __init__(self, bridge: Bridge, server: str, session: ClientSession) -> None:
        self._bridge = bridge
        self._asker = ServerAsker(server)
        self._session = session

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._session, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute
        signature = inspect.signature(attribute)

        @wraps(attribute)
        async def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            for parameter, value in bound.arguments.items():
                if callable(value) and not isinstance(value, type):
                    bound.arguments[parameter] = on_loop(self._bridge, value)
            return await self._bridge.call(self._asker, partial(attribute, *bound.args, **bound.kwargs))

        return call
