"""A server without the SDK: an independent reading of the protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    from .servers import House

MODERN: Final = "2026-07-28"
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
RESOURCE: Final = "res:///number"
TOOLS: Final = {"tools": {"listChanged": True}}
RESOURCES: Final = {"resources": {"subscribe": True}}

Json = dict[str, Any]


class Worker(ABC):
    """The server of one connection. Its kinds are the ways in which messages leave it.

    Attributes:
        modern: True if it speaks the modern era.
        calls: those that it has begun to carry out.
        running: its work, by the id of the request.
        listening: the requests that wait for notifications, and for which, in the modern era.
        subscribed: True if changes of the resource are announced, in the legacy era.
    """

    def __init__(self, house: House) -> None:
        self.modern = house.plan.era == "modern"
        self.calls: set[int] = set()
        self.running: dict[object, trio.CancelScope] = {}
        self._house = house
        self.listening: dict[object, Json] = {}
        self.subscribed = False
        self._capabilities = TOOLS | (RESOURCES if house.plan.followed else {})

    @property
    @abstractmethod
    def ended(self) -> bool:
        """True once its process has exited."""

    @abstractmethod
    def crash(self) -> None:
        """End its process."""

    @abstractmethod
    def send(self, message: Json) -> None:
        """Send a message; the process runs."""

    def take(self, message: Json) -> None:
        """Act on a message."""
        request, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "server/discover" if self.modern:
                self._reply(request, {"supportedVersions": [MODERN], "capabilities": self._capabilities})
            case "initialize" if not self.modern:
                info = {"name": self._house.plan.name, "version": "1"}
                version = {"protocolVersion": "2025-11-25", "capabilities": self._capabilities, "serverInfo": info}
                self._reply(request, version)
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self._house.tools]
                self._reply(request, {"tools": tools})
            case "tools/call":
                # At once, so that a cancellation in the same step finds it.
                self.running[request] = scope = trio.CancelScope()
                trio.lowlevel.spawn_system_task(self._work, request, params["arguments"], scope)
            case "subscriptions/listen" if self.modern:
                self.listening[request] = params["notifications"]
                about = {"notifications": params["notifications"], "_meta": {SUBSCRIPTION: request}}
                self._send({"method": "notifications/subscriptions/acknowledged", "params": about})
            case "resources/subscribe" | "resources/unsubscribe" as method if not self.modern:
                self.subscribed = method == "resources/subscribe"
                self._reply(request, {})
            case "notifications/cancelled":
                self.cancel(params["requestId"])
            case "ping":
                self._reply(request, {})
            case _ if request is not None and "method" in message:
                self._send({"id": request, "error": {"code": -32601, "message": "Method not found"}})

    def cancel(self, request: object) -> None:
        """Stop work that the client has canceled; also listening."""
        if scope := self.running.get(request):
            scope.cancel("the client has cancelled it")
        self.listening.pop(request, None)

    def end(self) -> None:
        """Stop all work."""
        for scope in self.running.values():
            scope.cancel("the process has exited")

    def notify(self) -> None:
        """Send a notification that the tools have changed."""
        self._announce("toolsListChanged", {"method": "notifications/tools/list_changed"})

    def update(self) -> None:
        """Send a notification that the resource has changed, if the client has subscribed to it."""
        if self.modern or self.subscribed:
            self._announce("resourceSubscriptions", {"method": "notifications/resources/updated"}, uri=RESOURCE)

    def _announce(self, kind: str, message: Json, **params: str) -> None:
        for listener in self.listeners(kind) if self.modern else [None]:
            meta = {} if listener is None else {"_meta": {SUBSCRIPTION: listener}}
            self._send(message | {"params": params | meta})

    def listeners(self, kind: str) -> list[object]:
        """Return the requests that wait for notifications of a kind."""
        return [request for request, wanted in self.listening.items() if wanted.get(kind)]

    async def _work(self, request: object, arguments: Json, scope: trio.CancelScope) -> None:
        with scope:
            if self.ended:
                return
            self.calls.add(arguments["call"])
            self._house.begin(arguments["call"])
            await trio.sleep(arguments["seconds"])
            match arguments["fate"]:
                case "crash":
                    self.crash()
                case "hang":
                    await trio.sleep_forever()
                case "refuse":
                    self._send({"id": request, "error": {"code": -32000, "message": f"refused {arguments['call']}"}})
                case fate:
                    for _ in range(2 if fate == "twice" else 1):
                        self._reply(request, {"content": [{"type": "text", "text": str(arguments["call"])}]})
        self.running.pop(request, None)

    def _reply(self, request: object, result: Json) -> None:
        modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        self._send({"id": request, "result": result | modern})

    def _send(self, message: Json) -> None:
        if not self.ended:
            self.send({"jsonrpc": "2.0", **message})
