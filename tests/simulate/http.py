"""The simulated servers behind HTTP, without a socket.

The client of the package sends its requests through a transport of httpx2 that calls the server. So everything on this
side is the package's own, and a run is repeatable.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

import httpx2
import trio
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from mcp_actors import Http
from mcp_actors.auth import OAuth
from mcp_actors.auth._stores import SignedIn

from .worker import SUBSCRIPTION, Json, Worker

if TYPE_CHECKING:
    from .servers import House

URL: Final = "http://127.0.0.1/mcp"
SESSION: Final = "mcp-session-id"
EVENTS: Final = {"content-type": "text/event-stream"}
FORGOTTEN: Final = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}


class Tokens:
    """The store of the tokens of one server."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._value: str | None = None

    def note(self, token: str) -> None:
        """Store the tokens of a new sign-in."""
        tokens = OAuthToken(access_token=token, refresh_token="refresh")
        client = OAuthClientInformationFull(client_id="program", redirect_uris=None)
        self._value = SignedIn(resource=URL, client=client, tokens=tokens, expires_at=None, since=0.0).to_text()

    async def load(self, key: str) -> str | None:
        await trio.lowlevel.checkpoint()
        return self._value

    async def save(self, key: str, value: str) -> None:
        await trio.lowlevel.checkpoint()
        self._value = value

    async def delete(self, key: str) -> None:
        await trio.lowlevel.checkpoint()
        self._value = None

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        async with self._lock:
            yield


class HttpMachine:
    """Listens all the time, with one process after the other.

    Attributes:
        house: its server.
        process: the one that runs.
        thawed: set unless it is frozen.
        numbers: the numbers of its sessions.
        proven: the credentials with which a request was answered.
    """

    def __init__(self, house: House) -> None:
        self.house = house
        self.numbers = count()
        self.process = HttpProcess(self)
        self.thawed = trio.Event()
        self.thawed.set()
        self.proven: set[str] = set()
        self._tokens = Tokens()
        self._tokens.note(house.token)

    def transport(self) -> Http:
        auth = OAuth(store=self._tokens) if self.house.plan.signs_in else self._token
        return Http(URL, http_client=self._client, auth=auth)

    @property
    def is_heard(self) -> bool:
        """True if a client reads its notifications."""
        return any(worker.is_heard for worker in self.process.workers.values())

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=Connection(self), trust_env=False)

    def _token(self) -> str:
        return self.house.token

    def sign_in(self) -> None:
        trio.lowlevel.spawn_system_task(self._sign_in)

    async def _sign_in(self) -> None:
        """Have a person sign in with another program."""
        async with self._tokens.lock(""):
            self._tokens.note(self.house.token)

    def crash(self) -> None:
        process, self.process = self.process, HttpProcess(self)
        process.end()
        self.thaw()

    def freeze(self) -> None:
        if self.thawed.is_set():
            self.thawed = trio.Event()

    def thaw(self) -> None:
        self.thawed.set()
        for worker in self.process.workers.values():
            worker.wake()

    def change(self) -> None:
        for worker in self.process.workers.values():
            worker.notify()

    def update(self) -> None:
        for worker in self.process.workers.values():
            worker.update()

    def cut(self) -> None:
        for worker in self.process.workers.values():
            worker.cut()

    def lose(self) -> None:
        for worker in self.process.workers.values():
            worker.lose()


class HttpProcess:
    """One process: its sessions, and a worker for each connection."""

    def __init__(self, machine: HttpMachine) -> None:
        self.machine = machine
        self.sessions: set[str] = set()
        self.workers: dict[Connection, HttpWorker] = {}
        self.ended = False

    def open_session(self) -> str:
        """Return the id of a new session."""
        session = f"{next(self.machine.numbers)}"
        self.sessions.add(session)
        return session

    def worker(self, connection: Connection) -> HttpWorker:
        """Return the worker of a connection."""
        return self.workers.setdefault(connection, HttpWorker(self))

    def end(self) -> None:
        """Break all responses."""
        self.ended = True
        for worker in self.workers.values():
            worker.end()
            worker.cut()


class Connection(httpx2.AsyncBaseTransport):
    """The connections of one client to the server."""

    def __init__(self, machine: HttpMachine) -> None:
        self._machine = machine

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        await trio.lowlevel.checkpoint()
        if self._machine.house.down:
            raise httpx2.ConnectError("it is down")
        process = self._machine.process
        body = b"".join([part async for part in request.stream])  # type: ignore[union-attr]  # an AsyncClient's are async
        await self._machine.thawed.wait()
        if process.ended:
            raise httpx2.ReadError("it has crashed")
        if (refusal := self._refused(request, process)) is not None:
            return refusal
        worker = process.worker(self)
        response = await self._respond(request, worker, body)
        self._machine.proven.add(request.headers["authorization"])
        return response

    async def _respond(self, request: httpx2.Request, worker: HttpWorker, body: bytes) -> httpx2.Response:
        match request.method:
            case "GET" if worker.modern:
                return httpx2.Response(405)
            case "GET":
                worker.notifications = Answers(worker, None)
                return httpx2.Response(200, headers=EVENTS, stream=worker.notifications)
            case "DELETE":
                worker.process.sessions.remove(request.headers[SESSION])
                return httpx2.Response(200)
        return await self._post(worker, json.loads(body))

    def _refused(self, request: httpx2.Request, process: HttpProcess) -> httpx2.Response | None:
        """Return the answer to a request for a token, or to one whose credentials or session are not known."""
        session = request.headers.get(SESSION)
        if request.url.path == "/token":
            return self._new_token()
        credentials = request.headers.get("authorization")
        if credentials != f"Bearer {self._machine.house.token}":
            self._machine.house.unproven |= credentials not in self._machine.proven
            return httpx2.Response(401)
        return httpx2.Response(404, json=FORGOTTEN) if session not in (None, *process.sessions) else None

    def _new_token(self) -> httpx2.Response:
        """Answer the request for a new token."""
        house = self._machine.house
        if not house.signed_in:
            return httpx2.Response(400, json={"error": "invalid_grant"})
        return httpx2.Response(200, json={"access_token": house.token, "token_type": "Bearer", "refresh_token": "next"})

    async def _post(self, worker: HttpWorker, message: Json) -> httpx2.Response:
        if "id" not in message or "method" not in message:
            worker.take(message)
            return httpx2.Response(202)
        worker.open[message["id"]] = response = Answers(worker, message["id"])
        worker.take(message)
        call = message.get("params", {}).get("arguments", {}).get("call", 1)
        if message["method"] == "subscriptions/listen" or as_events(call):
            return httpx2.Response(200, headers=EVENTS, stream=response)
        try:
            answer = await response.next()
        finally:
            await response.aclose()
        headers = {SESSION: worker.process.open_session()} if message["method"] == "initialize" else {}
        return httpx2.Response(200, json=answer, headers=headers)


def as_events(call: int) -> bool:
    """Return True if the response to a call is a stream of events. Each form in turn, so that a run has both."""
    return call % 2 == 0


class HttpWorker(Worker):
    """The server of one connection.

    Attributes:
        open: the responses that wait for messages, by the id of their request.
        notifications: the response that brings those of the legacy era.
    """

    def __init__(self, process: HttpProcess) -> None:
        super().__init__(process.machine.house)
        self.process = process
        self.open: dict[object, Answers] = {}
        self.notifications: Answers | None = None

    @property
    def ended(self) -> bool:
        return self.process.ended

    def crash(self) -> None:
        self.process.machine.crash()

    @property
    def responses(self) -> list[Answers]:
        """Those that are open."""
        return [*self.open.values(), *([] if self.notifications is None else [self.notifications])]

    @property
    def is_heard(self) -> bool:
        """True if there is a stream for its notifications."""
        listeners = self.listeners("toolsListChanged")
        streams = [self.open.get(each) for each in listeners] if self.modern else [self.notifications]
        return any(stream is not None for stream in streams)

    def wake(self) -> None:
        """Send what waits."""
        for response in self.responses:
            response.wake()

    def cut(self) -> None:
        """Break all responses."""
        for response in self.responses:
            response.cut()

    def lose(self) -> None:
        """Send nothing over the open responses any more, and do not break them."""
        self.open.clear()
        self.notifications = None

    def send_within(self, request: object, call: int, message: Json) -> None:
        response = self.open.get(request) if as_events(call) else self.notifications
        if response is not None:
            response.put(message)

    def send(self, message: Json) -> None:
        if "method" not in message:
            response = self.open.get(message["id"])
        elif self.modern:
            response = self.open.get(message["params"]["_meta"][SUBSCRIPTION])
        else:
            response = self.notifications
        if response is not None:
            response.put(message)


class Answers(httpx2.AsyncByteStream):
    """The messages of one response, to be sent as events or as a whole."""

    def __init__(self, worker: HttpWorker, request: object) -> None:
        self._worker = worker
        self._request = request
        self._messages: deque[Json | None] = deque()
        self._news = trio.Event()
        self._broken = False

    def put(self, message: Json | None) -> None:
        """Send a message, or keep it while the server is frozen; None is a comment."""
        self._messages.append(message)
        self.wake()

    def wake(self) -> None:
        """Look again whether there is something to read."""
        self._news.set()

    def cut(self) -> None:
        """Break it, as if the network had failed."""
        self._broken = True
        self.wake()

    async def next(self) -> Json | None:
        """Return the next message."""
        await trio.lowlevel.checkpoint()
        # No other checkpoint between a look and the wait: a change at it would wake no reader.
        while not self._broken:
            if self._messages and self._worker.process.machine.thawed.is_set():
                return self._messages.popleft()
            self._news = trio.Event()
            await self._news.wait()
        raise httpx2.ReadError("it was cut")

    def __aiter__(self) -> Answers:
        return self

    async def __anext__(self) -> bytes:
        message = await self.next()
        return b": still here\n\n" if message is None else b"data: %s\n\n" % json.dumps(message).encode()

    async def aclose(self) -> None:
        """Note that the client has left, which cancels a request of the modern era. A lost one goes on."""
        if self._worker.notifications is self:
            self._worker.notifications = None
        if self._worker.open.pop(self._request, None) is not None and self._worker.modern:
            self._worker.cancel(self._request)
