"""Show and control a gateway's servers on a web page.

No text of a server may become script or style, so texts are escaped, and the Content-Security-Policy allows only the
page's own. Browsers send a cookie to every port of a host, so a sign-in is a cookie *and* an unguessable path.

Owns: pages; sign-ins; the latest events of servers; an HTML file that redirects a browser to the page.
Writes: observers of groups; paths of the `HttpDoor`; actions on servers; HTTP replies; the log.
Calls: catalog, gateway, kernel, observe, servers, _access, _door, _wire.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from base64 import b64encode
from collections import deque
from functools import partial
from html import escape
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final, TypeAlias
from urllib.parse import parse_qs

import attrs
import trio
from mcp.types import TextContent
from pydantic_core import to_json

from ..._errors import McpActorsError
from ..._foreign import Log
from ..._text import escaped, plain_text
from ...catalog._pins import definition_lines
from ...kernel import Event
from ...observe import missing
from ...servers import StateChanged, ToolsChanged
from .._daemon import folder
from .._front import Front, json_of
from ._access import ANYBODY, BEARER_HEADER, Access
from ._door import HttpDoor, Route, listen_at, serve_http, url_of
from ._wire import HttpRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from mcp.types import CallToolResult

    from ...catalog import CatalogTool
    from ...kernel import TreeNode
    from ...servers import ServerRef, ServerStatus
    from ...servers._admission import KnownTool
    from .._session import Gateway
    from ._wire import Head, HttpAnswer, HttpConnection

logger = Log("mcp_actors.gateway")

Json: TypeAlias = dict[str, Any]

KEPT_EVENTS: Final = 50
"""Events kept for each server."""

TEXT: Final = 500
"""Characters shown of an event or a reason."""

SHOWN_RESULT: Final = 100_000
"""Characters shown of a tool's result or a server's stderr."""

FACTS_PERIOD: Final = 1.0
"""Seconds between two sendings of the facts, at most."""

PAGE_PAUSE: Final = 0.1
"""Seconds between two sendings of the facts, at least."""

COOKIE: Final = "mcp-actors"

MAX_SIGNED_IN: Final = 100
"""Signed-in browsers of an identity. One more signs the first out."""

SIGN_IN_SECONDS: Final = 12 * 3600
"""Seconds until a person has to sign in again."""

READ_ONLY_REMEDY: Final = "to change it, use mcp-actors restart, stop, start or reload on its machine"

HTML: Final = (Path(__file__).parent / "page.html").read_text()

_COMMON: Final = {each.name for each in attrs.fields(Event)}

_SLOT: Final = re.compile(r"\{(view|hide_sign_in|hide_sign_out|hide_main|problem|source|rows|tree|failed)\}")

_PATH: Final = re.compile(r"/ui/([A-Za-z0-9_-]{32})/")


def _hash(name: str) -> str:
    _, _, after = HTML.partition(f"<{name}>")
    text, _, _ = after.partition(f"</{name}>")
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# The hashes allow the page's own script and style. The script shows texts by ``textContent``.
POLICY: Final = (
    f"default-src 'none'; script-src {_hash('script')}; style-src {_hash('style')}; img-src data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

PAGE_HEADERS: Final = (
    f"content-security-policy: {POLICY}\r\ncache-control: no-store\r\nreferrer-policy: same-origin\r\n"
    "x-content-type-options: nosniff\r\n"
).encode()
"""The headers of all HTML."""


class Problem(Exception):
    """An action is refused or has failed; the text is for the person on the page."""


@attrs.frozen(eq=False)
class _SignIn:
    identity: str
    token: str
    cookie: str = attrs.field(factory=partial(secrets.token_urlsafe, 32))
    until: float = attrs.field(factory=lambda: trio.current_time() + SIGN_IN_SECONDS)


class Page:
    """The view that people of one identity have of their servers, and their actions.

    Args:
        source: where the servers are configured, for people.
        actions: False lets people only look.
        alone: True without other identities. With others, shared servers may be called, but not changed.
        reload: reads the configuration again; None disables the action.
    """

    wants_requests: ClassVar[bool] = False

    def __init__(
        self,
        front: Front,
        *,
        source: str,
        actions: bool,
        alone: bool = True,
        reload: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._front = front
        self._groups = front.groups
        self._source = source
        self._actions = actions
        self._alone = alone
        self._reload = reload if alone else None
        self._events: dict[str, deque[Json]] = {}
        self._news = trio.Event()
        for group in self._groups:
            group._hub.add(self)

    def __call__(self, event: Event) -> None:
        server = event.actor.partition(":")[0]
        if self._find(server) is not None:
            kept = self._events.setdefault(server, deque(maxlen=KEPT_EVENTS))
            kept.appendleft({"at": event.at.isoformat(), "text": plain_text(_words(event), limit=TEXT)})
        self._news.set()
        self._news = trio.Event()

    def close(self) -> None:
        for group in self._groups:
            group._hub.remove(self)

    def _find(self, server: object) -> ServerRef | None:
        found = (group.get(server) for group in self._groups if isinstance(server, str))
        return next((ref for ref in found if ref is not None), None)

    # --- look ---------------------------------------------------------------------------------------------------------

    def html(self) -> bytes:
        by_trouble = sorted(self._front.status().values(), key=lambda each: each.state in ("ready", "stopped"))
        rows = "".join(map(_row, by_trouble))
        trees = "\n".join(str(group.tree()) for group in self._groups)
        hidden = {"hide_sign_in": "hidden", "hide_sign_out": "" if self._actions else "hidden"}
        failed = self.facts()["failed"]
        return _filled(view="page", **hidden, source=self._source, rows=rows, tree=trees, failed=failed)

    def facts(self, server: str = "", known: Sequence[CatalogTool] | None = None) -> Json:
        """Return everything the page shows: all servers, the tree, and one server in detail.

        Args:
            server: the server to detail.
            known: tools that the page has. If unchanged, tools are left out: they may be megabytes.
        """
        ref = self._find(server)
        return {
            "now": trio.current_time(),
            "source": self._source,
            "actions": self._actions,
            "reloads": self._reload is not None,
            "ready": not missing(self._front),
            "failed": "\n".join(
                plain_text(str(each.error), limit=SHOWN_RESULT) for each in self._front.sources if each.error
            ),
            "servers": [_fact(each) for each in self._front.status().values()],
            "trees": [_branch(group.tree()) for group in self._groups],
            "server": None if ref is None else self._details(ref, known),
        }

    def _tools_of(self, server: str) -> Sequence[CatalogTool]:
        return [tool for group in self._groups for tool in group.tools.of(server)]

    def _details(self, ref: ServerRef, known: Sequence[CatalogTool] | None) -> Json:
        tools = self._tools_of(ref.name)
        are_known = tools == known
        return {
            "name": ref.name,
            "title": ref.config.title or ref.name,
            "events": list(self._events.get(ref.name, ())),
            "stderr": plain_text(ref.stderr_tail, limit=SHOWN_RESULT, lines=True),
            "tools_are_known": are_known,
            "tools": [
                {
                    "name": each.name,
                    "description": plain_text(each.description or "", limit=4000, lines=True),
                    "schema": each.input_schema,
                }
                for each in ([] if are_known else tools)
            ],
            "changes": [
                {"tool": tool, "shown": escaped(tool), "hash": each.pin} for tool, each in _pending(ref).items()
            ],
        }

    async def live(self, server: str, is_ready: Callable[[], bool], send: Callable[[bytes], object]) -> None:
        """Send the facts at each event and each second. Does not return.

        Args:
            server: the server to detail.
            is_ready: False skips a sending.
            send: takes the facts as JSON, and never waits.
        """
        known: Sequence[CatalogTool] | None = None
        while True:
            news = self._news
            if is_ready():
                facts = self.facts(server, known)
                known = None if self._find(server) is None else self._tools_of(server)
                send(to_json(facts, inf_nan_mode="null", fallback=str))  # schemas may have NaN
            await trio.sleep(PAGE_PAUSE)
            with trio.move_on_after(FACTS_PERIOD - PAGE_PAUSE):
                await news.wait()

    # --- act ----------------------------------------------------------------------------------------------------------

    async def act(self, wish: Json) -> Json:
        """Carry out an action, and return the facts to show.

        **Cancellation**: withdraws a call. The group completes any other action that has begun.

        Args:
            wish: ``{"do": "restart", "server": "docs"}``, or ``stop``, ``start``, ``reload``, ``review`` or ``approve``
                with the ``tool`` and ``hash`` of a change, or ``call`` with ``tool`` and ``arguments``.

        Raises:
            Problem: the action is refused, or has failed.
        """
        if not self._actions:
            problem = "this gateway was started with --no-token, so the page only shows"
            raise Problem(f"{problem}; start it with a token to act")
        name, action = wish.get("server"), wish.get("do")
        try:
            if action == "reload" and self._reload is not None:
                await self._reload()
                return {}
            if (ref := self._find(name)) is None:
                raise Problem(f"there is no server {plain_text(str(name), limit=80)!r}")
            if action not in ("call", "review") and not self._alone and ref.name in self._groups[0]:
                raise Problem(f"{ref.name} is shared by several identities; {READ_ONLY_REMEDY}")
            match wish:
                case {"do": "restart" | "stop" | "start"}:
                    await getattr(ref, str(action))()
                case {"do": "review" | "approve", "tool": str(tool), "hash": str(pin)}:
                    return await _review(ref, tool, pin, approve=action == "approve")
                case {"do": "call", "tool": str(tool), "arguments": dict(arguments)}:
                    result = await ref.call_tool(tool, arguments)
                    return {"text": _text_of(result), "error": bool(result.is_error)}
                case _:
                    raise Problem("the page asks for something that this gateway does not know; load the page again")
        except McpActorsError as exc:
            raise Problem(str(exc)) from None
        return {}


def _pending(ref: ServerRef) -> Mapping[str, KnownTool]:
    return ref._record.catalog.admission.pending


async def _review(ref: ServerRef, tool: str, pin: str, *, approve: bool) -> Json:
    """Return a tool's changed definition, or approve it. Raises `Problem` unless the change has the hash `pin`."""
    known = _pending(ref).get(tool)
    if known is None or known.pin != pin:
        raise Problem("this tool has changed again since, or was approved; look at it once more")
    if approve:
        await ref.approve_tools(ref.tool_changes, tool)
        return {}
    return {"definition": "\n".join(await trio.to_thread.run_sync(definition_lines, json_of(known.tool)))}


def _text_of(result: CallToolResult) -> str:
    texts: list[str] = []
    size = 0
    for each in result.content:
        texts.append(each.text[:SHOWN_RESULT] if isinstance(each, TextContent) else _indented(json_of(each)))
        size += len(texts[-1])
        if size >= SHOWN_RESULT:
            break
    if not texts and result.structured_content is not None:
        texts.append(_indented(result.structured_content))
    return "\n".join(texts)[:SHOWN_RESULT]


def _indented(value: object) -> str:
    """Return JSON of slightly more than `SHOWN_RESULT` characters at most: writing a large value takes a second."""
    pieces, size = [], 0
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False, default=str).iterencode(value):
        pieces.append(piece)
        size += len(piece)
        if size > SHOWN_RESULT:
            break
    return "".join(pieces)


# --- The paths --------------------------------------------------------------------------------------------------------


class StatusPages:
    """The paths of the page, and the sign-ins. A sign-in ends with its token, or after `SIGN_IN_SECONDS`.

    Signing in exchanges the token for a cookie and a path (``/ui/PATH/``); requests need both.
    """

    def __init__(self, access: Access, make: Callable[[str], Page]) -> None:
        self._access = access
        self._make = make
        self._pages: dict[str, Page] = {}
        self._signed_in: dict[str, _SignIn] = {}
        get, post = ("GET", "HEAD"), ("POST",)
        self._routes: Mapping[str, Route] = {
            "/": Route(get, self._redirect, secret=False),
            "/ui": Route(get, self._redirect, secret=False),
            "/ui/": Route(get, self._show, secret=False),
            "/ui/live": Route(("GET",), self._follow, self._signed, secret=False),
            "/ui/sign-in": Route(post, self._sign_in, secret=False),
            "/ui/sign-out": Route(post, self._sign_out, secret=False),
            "/ui/do": Route(post, self._act, self._signed, secret=False, most=1024 * 1024),  # the arguments of a tool
        }
        self.update()

    def update(self) -> None:
        valid, identities, now = self._access.tokens.items(), self._access.identities, trio.current_time()
        self._signed_in = {
            path: each
            for path, each in self._signed_in.items()
            if (each.identity, each.token) in valid and now < each.until
        }
        for gone in self._pages.keys() - identities:
            self._pages.pop(gone).close()
        self._pages |= {each: self._make(each) for each in identities if each not in self._pages}

    def find(self, path: str) -> Route | None:
        """Return the route of a path, with or without a sign-in's part."""
        return self._routes.get(_PATH.sub("/ui/", path, count=1))

    def _redirect(self, connection: HttpConnection, head: Head, body: bytes, reply: HttpAnswer) -> None:
        reply.headers += b"location: /ui/\r\n"  # a browser keeps the fragment with the token
        reply.send(303)

    def _show(self, connection: HttpConnection, head: Head, body: bytes, reply: HttpAnswer) -> None:
        if (page := self._page_of(head)) is not None:
            _send_html(reply, 200, page.html())
        elif head.path == "/ui/":
            _send_html(reply, 200, sign_in_html())
        else:
            self._redirect(connection, head, body, reply)

    def _sign_in(self, connection: HttpConnection, head: Head, body: bytes, reply: HttpAnswer) -> None:
        given = parse_qs(body.decode(errors="replace")).get("token", [""])[0].strip()
        identity = self._access.identity_of(given)
        if identity is None:
            _send_html(reply, 403, sign_in_html("This gateway does not know this token."))
            return
        self.update()
        own = [path for path, each in self._signed_in.items() if each.identity == identity]
        if len(own) >= MAX_SIGNED_IN:
            del self._signed_in[own[0]]
        path, signed = secrets.token_urlsafe(24), _SignIn(identity, given)
        self._signed_in[path] = signed
        _send_cookie(reply, f"/ui/{path}/", signed.cookie, SIGN_IN_SECONDS)
        reply.headers += f"location: /ui/{path}/\r\n".encode()
        reply.send(303)

    def _sign_out(self, connection: HttpConnection, head: Head, body: bytes, reply: HttpAnswer) -> None:
        if (path := self._path_of(head)) is not None:
            del self._signed_in[path]
            _send_cookie(reply, f"/ui/{path}/", "", 0)
        self._redirect(connection, head, body, reply)

    def _follow(self, connection: HttpConnection, head: Head, body: bytes, reply: HttpAnswer) -> None:
        page = self._signed(connection, head)
        server = parse_qs(head.query).get("server", [""])[0]
        scope = trio.CancelScope()

        def is_ready() -> bool:
            if self._page_of(head) is not page:  # checked each second, so a stream soon ends with its sign-in
                scope.cancel("the sign-in has ended")
            return not connection.output.waiting and not scope.cancel_called

        async def follow() -> None:
            with scope:
                await page.live(server, is_ready, reply.say)
            reply.end()

        reply.on_gone = reply.on_drain = partial(scope.cancel, "the page is closed")
        connection.start(follow)

    def _act(self, connection: HttpConnection, head: Head, body: bytes, reply: HttpAnswer) -> None:
        page = self._signed(connection, head)
        try:
            wish = json.loads(body)
        except (ValueError, RecursionError):
            wish = None
        if type(wish) is not dict:
            raise HttpRefused(400, "the body is not a JSON object")
        scope = trio.CancelScope()

        async def act() -> None:
            status, answer = 200, {}
            with scope:
                try:
                    answer = await page.act(wish)
                except Problem as problem:
                    status, answer = 409, {"error": str(problem)}
                except Exception:
                    logger.exception("an action of the page failed")
                    status, answer = 500, {"error": "a defect of the gateway; its log has more"}
            reply.send(status, json.dumps(answer).encode())

        reply.on_gone = partial(scope.cancel, "the page is closed")
        connection.start(act)

    def _path_of(self, head: Head) -> str | None:
        """Return the path of a sign-in, if the request has both path and cookie."""
        found = _PATH.match(head.path)
        signed = None if found is None else self._signed_in.get(found[1])
        if found is None or signed is None or trio.current_time() >= signed.until:
            return None
        cookies = [each.strip() for each in head.headers.get("cookie", "").split(";")]
        return found[1] if f"{COOKIE}={signed.cookie}" in cookies else None

    def _page_of(self, head: Head) -> Page | None:
        if not self._access.tokens:
            return self._pages[ANYBODY]
        path = self._path_of(head)
        return None if path is None else self._pages[self._signed_in[path].identity]

    def _signed(self, connection: HttpConnection, head: Head) -> Page:
        page = self._page_of(head)
        if page is None:
            raise HttpRefused(401, "sign in at /ui/ first", BEARER_HEADER)
        connection.site.strangers.pop(connection, None)
        return page


def add_page(door: HttpDoor, source: str, reload: Callable[[], Awaitable[object]]) -> None:
    """Add the page to a gateway. `source` names the configuration for people; `reload` reads it again."""

    def make(identity: str) -> Page:
        actions, alone = bool(door.access.tokens), not door.several
        return Page(door.front_of(identity), source=source, actions=actions, alone=alone, reload=reload)

    source = source.encode(errors="replace").decode()  # a path may be in any encoding
    pages = StatusPages(door.access, make)
    door.find = pages.find
    door.on_tokens = pages.update


async def serve_page(
    nursery: trio.Nursery, gateway: Gateway, source: str, reload: Callable[[], Awaitable[object]]
) -> tuple[str, str, HttpDoor]:
    """Serve the page on a port of this machine, for servers whose clients connect elsewhere.

    `nursery` runs the page. `source` and `reload` are as for `add_page`. The lists that `gateway` has for its clients
    are not updated here (`Front.follow`).

    Returns:
        The address of the page with the token, a file that redirects a browser there, and the door. All users see a
        browser's command line, but only this user can read the file, which exists as long as the page.

    Raises:
        OSError: there is no port, or the file cannot be made.
    """

    async def keep(*, task_status: trio.TaskStatus[IO[str]]) -> None:
        with NamedTemporaryFile("w", dir=folder(), prefix="page-", suffix=".html") as file:  # mode 0600
            task_status.started(file)
            await trio.sleep_forever()

    file = await nursery.start(keep)
    listeners = await listen_at("127.0.0.1:0")
    token = secrets.token_urlsafe(32)
    address = f"{url_of(listeners[0])}#token={token}"
    door = await nursery.start(partial(serve_http, gateway, listeners, Access({"page": token}), follow=False))
    add_page(door, source, reload)
    file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}"><a href="{address}">the page</a>')
    file.flush()
    return address, file.name, door


def _send_cookie(reply: HttpAnswer, path: str, value: str, seconds: int) -> None:
    rules = f"Max-Age={seconds}; HttpOnly; SameSite=Strict; Path={path}"
    reply.headers += f"set-cookie: {COOKIE}={value}; {rules}\r\n".encode()


def _send_html(reply: HttpAnswer, status: int, html: bytes) -> None:
    reply.headers += PAGE_HEADERS
    reply.send(status, html, "text/html; charset=utf-8")


# --- HTML and facts ---------------------------------------------------------------------------------------------------


def sign_in_html(problem: str = "") -> bytes:
    return _filled(view="sign-in", hide_main="hidden", problem=problem)


def _filled(**slots: str) -> bytes:
    marked = {name: text if name == "rows" else escape(text) for name, text in slots.items()}
    return _SLOT.sub(lambda slot: marked.get(slot[1], ""), HTML).encode()


def _row(status: ServerStatus) -> str:
    fact = _fact(status)
    times = ["" if fact[each] is None else f"{fact[each] * 1000:.3g} ms" for each in ("p50", "p95")]
    numbers: Sequence[object] = (fact["restarts"], fact["queued"], fact["in_flight"], "", *times)
    cells = [fact["name"], fact["state"].replace("_", " "), fact["reason"], *numbers, ""]
    return f"<tr>{''.join(f'<td>{escape(str(each))}</td>' for each in cells)}</tr>"


def _fact(status: ServerStatus) -> Json:
    return {
        "name": status.name,
        "title": status.title,
        "state": status.state,
        "since": status.changed_at.isoformat(),
        "reason": plain_text(status.reason, limit=TEXT),
        "restarts": status.restarts,
        "queued": status.queued,
        "in_flight": status.in_flight,
        "calls": status.latency.done + status.latency.failed,
        "p50": status.latency.p50,
        "p95": status.latency.p95,
    }


def _branch(root: TreeNode) -> Json:
    """Return a tree as JSON, without recursion: a tree may be deeper than Python's stack."""
    made: dict[str, Json] = {}
    for node in reversed([*root.walk()]):
        children = [made.pop(child.path) for child in node.children if not _is_internal(root, child)]
        made[node.path] = {
            "id": node.id,
            "state": node.state,
            "note": plain_text(node._activity(), limit=80),
            "children": children,
        }
    return made[root.path]


def _is_internal(root: TreeNode, node: TreeNode) -> bool:
    """Return True for a group's own task, such as ``servers:deadlines``, unless failed."""
    return node.id.startswith(f"{root.id}:") and not node.children and node.state == "running"


def _words(event: Event) -> str:
    """Describe an event: ``connecting → ready: connected, 2 tools``, or ``start failed: error: …``."""
    if isinstance(event, StateChanged):
        return f"{event.old} → {event.new}: {event.reason}"
    if isinstance(event, ToolsChanged):
        counts = ((len(event.added), "added"), (len(event.changed), "changed"), (len(event.removed), "removed"))
        return ", ".join(f"{n} {'tool' if n == 1 else 'tools'} {what}" for n, what in counts if n) or "tools reordered"
    kind = re.sub("[A-Z]", lambda letter: f" {letter[0].lower()}", type(event).__name__).strip()
    values = {each.name: getattr(event, each.name) for each in attrs.fields(type(event)) if each.name not in _COMMON}
    return kind + "".join(f", {name.replace('_', ' ')}: {_value(value)}" for name, value in values.items())


def _value(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
