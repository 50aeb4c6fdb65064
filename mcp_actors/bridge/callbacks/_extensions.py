"""Run the extensions of an asyncio program on its event loop.

The handler of a claimed result may send further requests through the SDK's session, which lives on Trio. So it gets a
view of the session whose methods are awaited on the event loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, cast

from mcp.client import ClaimContext, ClientExtension

from ...config import AdaptedExtension
from ._functions import ServerAsker, on_loop

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult, Result

    from .._bridge import Bridge


def extension_from_loop(bridge: Bridge, server: str, extension: ClientExtension) -> ClientExtension:
    """Return an extension for Trio's side whose functions run on the event loop.

    Args:
        bridge: the bridge between the two sides.
        server: the name of the server that the extension is configured for.
        extension: the extension of the program.
    """

    def adapt_claim(resolve: Callable[[Result, ClaimContext], Any]) -> Callable[..., Any]:
        resolve_on_loop = on_loop(bridge, resolve)

        async def resolve_claim(result: Result, context: ClaimContext) -> CallToolResult:
            session = cast("ClientSession", SessionView(bridge, server, context.session))
            answer: CallToolResult = await resolve_on_loop(result, replace(context, session=session))
            return answer

        return resolve_claim

    return AdaptedExtension(extension, adapt_claim, partial(on_loop, bridge))


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
