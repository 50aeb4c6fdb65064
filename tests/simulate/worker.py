"""A server without the SDK: an independent reading of the protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

import trio
from attrs import define, field

if TYPE_CHECKING:
    from .servers import House

MODERN: Final = "2026-07-28"
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
RESOURCE: Final = "res:///number"
TOOLS: Final = {"tools": {"listChanged": True}}
RESOURCES: Final = {"resources": {"subscribe": True}}

Json = dict[str, Any]


@define
class Asked:
    """A question, and its answer."""

    message: Json = field(factory=dict)
    answered: trio.Event = field(factory=trio.Event)

    def answer(self, message: Json) -> None:
        """Take the answer."""
        self.message = message
        self.answered.set()


def question_of(call: int) -> Json:
    """Return the question of a call."""
    schema = {"type": "object", "properties": {"call": {"type": "integer"}}}
    return {"method": "elicitation/create", "params": {"message": str(call), "requestedSchema": schema}}


class Worker(ABC):
    """The server of one connection. Its kinds are the ways in which messages leave it.

    Attributes:
        modern: True if it speaks the modern era.
        calls: those that it has begun to carry out.
        running: its work, by the id of the request.
        listening: the requests that wait for notifications, and for which, in the modern era.
        subscribed: True if changes of the resource are announced, in the legacy era.
        asked: the questions that wait for an answer, by id, in the legacy era.
    """

    def __init__(self, house: House) -> None:
        self.modern = house.plan.era == "modern"
        self.calls: set[int] = set()
        self.running: dict[object, trio.CancelScope] = {}
        self._house = house
        self.listening: dict[object, Json] = {}
        self.subscribed = False
        self.asked: dict[object, Asked] = {}
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
            case None if request in self.asked:
                self.asked.pop(request).answer(message)
            case "notifications/cancelled":
                self.cancel(params["requestId"])
            case str() as method if request is not None:
                self._take_request(request, method, params)

    def _take_request(self, request: object, method: str, params: Json) -> None:
        match method:
            case "server/discover" if self.modern:
                self._reply(request, {"supportedVersions": [MODERN], "capabilities": self._capabilities})
            case "initialize" if not self.modern:
                info = {"name": self._house.plan.name, "version": "1"}
                version = {"protocolVersion": "2025-11-25", "capabilities": self._capabilities, "serverInfo": info}
                self._reply(request, version)
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self._house.tools]
                self._reply(request, {"tools": tools})
            case "tools/call" if "inputResponses" in params:
                self._reply_text(request, params["inputResponses"]["question"])
            case "tools/call":
                # At once, so that a cancellation in the same step finds it.
                self.running[request] = scope = trio.CancelScope()
                trio.lowlevel.spawn_system_task(self._work, request, params["arguments"], scope)
            case "subscriptions/listen" if self.modern:
                self.listening[request] = params["notifications"]
                about = {"notifications": params["notifications"], "_meta": {SUBSCRIPTION: request}}
                self._send({"method": "notifications/subscriptions/acknowledged", "params": about})
            case "resources/subscribe" | "resources/unsubscribe" if not self.modern:
                self.subscribed = method == "resources/subscribe"
                self._reply(request, {})
            case "ping":
                self._reply(request, {})
            case _:
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
                case "ask" if self.modern:
                    question = {"question": question_of(arguments["call"])}
                    self._reply(request, {"resultType": "input_required", "inputRequests": question})
                case "ask":
                    await self._ask(request, arguments["call"])
                case fate:
                    for _ in range(2 if fate == "twice" else 1):
                        self._reply_text(request, {"content": {"call": arguments["call"]}})
        self.running.pop(request, None)

    async def _ask(self, request: object, call: int) -> None:
        """Ask the program a question, and answer the call with what it says."""
        asked = self.asked[f"about {call}"] = Asked()
        if not self.ended:
            self.send_within(request, call, {"jsonrpc": "2.0", "id": f"about {call}", **question_of(call)})
        await asked.answered.wait()
        if "error" in asked.message:  # the client leaves, so this should reach no caller
            self._send({"id": request, "error": {"code": -32000, "message": "the question was not answered"}})
        else:
            self._reply_text(request, asked.message["result"])

    def send_within(self, request: object, call: int, message: Json) -> None:
        """Send a message that belongs to a call; the process runs."""
        self.send(message)

    def _reply_text(self, request: object, answer: Json) -> None:
        """Answer a call with the number that the answer of the program contains."""
        self._reply(request, {"content": [{"type": "text", "text": str(answer["content"]["call"])}]})

    def _reply(self, request: object, result: Json) -> None:
        modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        self._send({"id": request, "result": modern | result})

    def _send(self, message: Json) -> None:
        if not self.ended:
            self.send({"jsonrpc": "2.0", **message})
