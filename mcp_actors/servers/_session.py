"""One session with a server: its requests, and how each is completed.

`Session` sends requests over one connection, those of the handshake too, and knows the protocol version and the
capabilities of both sides. Above it `Listener`, the SDK's `ClientSession`, reads the notifications and questions of the
server, and calls the callbacks; below it `LinkDispatcher` carries the messages. `carry_on` finishes a request whose
answer is a question, in `MAX_ROUNDS` at most, or is for an extension. `LegacyStamp` and `ModernStamp`, the last part,
make the headers of a request, and write what the protocol version adds to its ``_meta``; for the headers they are given
the tools of the server.

The negotiation makes a session for each link, the actor opens it, and requests send over it. It uses the link,
``_dispatcher`` and ``_eras``, runs the program's extensions, opens streams of notifications by the SDK
(`Session.listen`), and imports no record or actor. In the trace of a request it notes a question without a callback,
and stops the time without progress while a question is answered. Its tasks are those of the SDK's task group, and one
for each question in `carry_on`. It logs by `Oddities`.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

import trio
from attrs import define, field, frozen
from mcp import ClientSession, MCPError
from mcp.client import ClaimContext, ClientRequestContext, InputRequiredRoundsExceededError
from mcp.client.subscriptions import listen
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    ClientCapabilities,
    CreateMessageRequest,
    DiscoverResult,
    ElicitationCapability,
    ElicitationRequiredErrorData,
    ElicitRequest,
    ElicitResult,
    ErrorData,
    FormElicitationCapability,
    Implementation,
    InitializeResult,
    InputRequiredResult,
    ListRootsRequest,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
    UrlElicitationCapability,
    methods,
)
from mcp.types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic_core import ValidationError, to_json

from .._errors import HttpStatusError, NotSupported
from .._text import plain_text
from ..config import mask_url
from ..transports import RequestUnderWay
from ._dialects import Oddities, read_result
from ._dispatcher import CURRENT_QUESTION, CarriedFailure, LinkDispatcher, ServerQuestion
from ._eras import PROBLEM, bounded, first_problem, is_modern, older_version, without_later_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from mcp.client import ClientExtension
    from mcp.client.extension import ResultClaim
    from mcp.client.session import ElicitationFnT, ListRootsFnT, MessageHandlerFnT, SamplingFnT
    from mcp.client.subscriptions import Subscription
    from mcp.types import ElicitRequestURLParams, InputRequest, InputResponse, InputResponses, Tool

    from ..transports import Json, Link, Report
    from ._deadlines import Deadline


_KINDS: Final = {
    CreateMessageRequest: ("sampling", "sampling_callback"),
    ElicitRequest: ("elicitation", "elicitation_callback"),
    ListRootsRequest: ("roots", "list_roots_callback"),
}
"""The kinds of input, each with the callback for it."""

_REFUSALS: Final = {
    "sampling/createMessage": ("sampling_callback", "Sampling not supported"),
    "elicitation/create": ("elicitation_callback", "Elicitation not supported"),
}
"""The requests of a server that may be large, each with the callback for it, and the SDK's error if there is none."""


class Callbacks(TypedDict, total=False):
    """The callbacks of a session: keyword arguments of `ClientSession`, and the capabilities that go with them."""

    message_handler: MessageHandlerFnT
    sampling_callback: SamplingFnT
    sampling_capabilities: SamplingCapability | None
    elicitation_callback: ElicitationFnT
    list_roots_callback: ListRootsFnT


class Listener(ClientSession):
    """The SDK's session, as the listener of a connection.

    It runs the callbacks for questions, and adds an error that names the cause if there is no callback.

    Attributes:
        server: the name of the server.
        offered: the names of the configured callbacks.
    """

    server: str
    offered: frozenset[str]

    async def validate_tool_result(self, name: str, result: CallToolResult) -> None:
        """Accept any result, also of a tool that an extension calls.

        The SDK validates a result after the tool has run, and discards an invalid one. For a tool that was not listed
        it sends a ``tools/list`` of its own. `mcp_actors.catalog.ToolChecks` validates results if so configured.
        """

    async def dispatch_input_request(
        self, ctx: ClientRequestContext, request: InputRequest
    ) -> InputResponse | ErrorData:
        """Answer a question of the server with the callback for it."""
        question, response = CURRENT_QUESTION.get(), await super().dispatch_input_request(ctx, request)
        kind, callback = _KINDS[type(request)]
        if isinstance(response, ErrorData) and callback not in self.offered and question.attempt is not None:
            question.failure = not_offered(self.server, question.attempt.operation, kind)
        return response


class Session:
    """The session of one connection.

    Args:
        dispatcher: carries its messages.
        info: how this client introduces itself.
        callbacks: what the server's messages are passed to.
        extensions: the extensions that the client supports.
        declared: the capabilities that the client of a gateway has declared. The server is sent these instead of ours.

    Attributes:
        dispatcher: see above.
        link: the link to the server.
        listener: the SDK's session.
        version: the protocol version; the latest with a handshake until one is agreed on.
        agreed: the server's answer to ``server/discover`` or ``initialize``; None before.
        stamp: completes each request.
        claims: the types of results that extensions finish at this version.
        oddities: logs what the server does in a way of its own.
        return_objects: the tools whose structured content is an object; before 2026-07-28 that of all tools is one.
    """

    def __init__(
        self,
        dispatcher: LinkDispatcher,
        info: Implementation,
        callbacks: Callbacks,
        extensions: Sequence[ClientExtension] = (),
        declared: Json | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.link: Link = dispatcher.link
        self.version: str = LATEST_HANDSHAKE_VERSION
        self.agreed: DiscoverResult | InitializeResult | None = None
        self.stamp: Stamp = LegacyStamp(self.version)
        self.claims: dict[str, ResultClaim[Any]] = {}
        self.oddities: Oddities = Oddities(dispatcher.server)
        self.return_objects: set[str] = set()
        self._answered = False  # whether the server itself has named the version, on this connection
        self._info = info
        self._callbacks = callbacks
        self._declared = declared or {}
        self._extensions = extensions
        claims = [claim for each in extensions for claim in each.claims()]
        dispatcher.claimed = frozenset(claim.result_type for claim in claims)
        dispatcher.refusals = {method: words for method, (name, words) in _REFUSALS.items() if name not in callbacks}
        self.listener: Listener = Listener(
            dispatcher=dispatcher,
            client_info=info,
            extensions={each.identifier: each.settings() for each in extensions} or None,
            result_claims={each.identifier: given for each in extensions if (given := tuple(each.claims()))},
            notification_bindings=[binding for each in extensions for binding in each.notifications()],
            **callbacks,
        )
        self.listener.server, self.listener.offered = dispatcher.server, frozenset(callbacks)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Read what the server sends during a block, and pass it on. An exception of the block leaves as itself."""
        error: Exception | None = None
        async with self.listener:
            try:
                yield
            except Exception as exc:
                error = exc  # carried past the task group of the SDK, which would wrap it
            finally:
                self.oddities.close()
        if error is not None:
            raise error

    # --- what was agreed on -----------------------------------------------------------------------------------------

    @property
    def modern(self) -> bool:
        """True if the protocol version is of 2026-07-28 or later."""
        return is_modern(self.version)

    @property
    def discovered(self) -> DiscoverResult | None:
        """The answer to ``server/discover``; None in the legacy era."""
        return self.agreed if isinstance(self.agreed, DiscoverResult) else None

    @property
    def identity(self) -> Implementation | None:
        """The name and version of the server, if it has named itself."""
        return self.listener.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities of the server."""
        return ServerCapabilities() if self.agreed is None else self.agreed.capabilities

    @property
    def instructions(self) -> str | None:
        """The instructions of the server, if it has any."""
        return None if self.agreed is None else self.agreed.instructions

    def offers(self, version: str) -> Json:
        """Return the capabilities of this client at a version: those that it has callbacks and extensions for.

        An extension that claims results is left out where none of its claims holds: its results would be refused.
        """
        given, modern = self._callbacks, is_modern(version)
        extensions = {
            each.identifier: each.settings()
            for each in self._extensions
            if not each.claims() or (modern and any(_holds(claim, version) for claim in each.claims()))
        }
        form, url = FormElicitationCapability(), UrlElicitationCapability()
        own = ClientCapabilities(
            sampling=(given.get("sampling_capabilities") or SamplingCapability())
            if "sampling_callback" in given
            else None,
            elicitation=ElicitationCapability(form=form, url=url) if "elicitation_callback" in given else None,
            roots=RootsCapability(list_changed=True) if "list_roots_callback" in given else None,
            extensions=extensions or None,
        )
        return {name: self._declared.get(name, each) for name, each in _dumped(own).items()}

    def adopt(self, agreed: DiscoverResult | InitializeResult) -> None:
        """Use what a server has answered, from now on.

        Raises:
            RuntimeError: it has no version in common with this client.
        """
        self.listener.adopt(agreed)
        assert self.listener.protocol_version is not None
        self.version = self.dispatcher.version = self.listener.protocol_version
        self.agreed = agreed
        if not self.modern:
            self.stamp, self.claims = LegacyStamp(self.version), {}
            return
        self.stamp = modern_stamp(self.version, self._info, self.offers(self.version))
        claims = [claim for each in self._extensions for claim in each.claims()]
        self.claims = {claim.result_type: claim for claim in claims if _holds(claim, self.version)}

    # --- requests ---------------------------------------------------------------------------------------------------

    async def ask(
        self,
        method: str,
        params: Json,
        *,
        attempt: Deadline | None = None,
        meta: Mapping[str, Any] | None = None,
        report: Report | None = None,
        capabilities: Json | None = None,
    ) -> Json:
        """Send a request, and return the ``result`` of its answer, as it was parsed.

        **Cancellation**: the server is asked to cancel a request that was sent.

        Args:
            method: the protocol's method.
            params: its params, without ``_meta``. They are completed in place.
            attempt: the attempt that it belongs to; None while the connection is opened.
            meta: the caller's ``_meta``.
            report: takes reports of progress.
            capabilities: see `ModernStamp.stamp`.

        Raises:
            mcp.MCPError: the server answered with an error, or the connection was lost.
            ServerError, ConnectionOver: the request has failed.
        """
        if meta:
            params["_meta"] = dict(meta)
        headers = self.stamp.stamp(method, params, capabilities)
        return await self.dispatcher.exchange(RequestUnderWay(method, params, attempt, headers, report))

    async def discover(self, version: str = LATEST_MODERN_VERSION) -> DiscoverResult:
        """Send ``server/discover``, and return the answer. There is no timeout.

        Raises:
            mcp.MCPError: as for `ask`.
            pydantic_core.ValidationError: the answer does not conform to the protocol.
        """
        params: Json = {}
        headers = modern_stamp(version, self._info, self.offers(version)).stamp("server/discover", params)
        request = RequestUnderWay("server/discover", params, None, headers, cancellable=False)
        result = await self.dispatcher.exchange(request)
        return self._read_answer("server/discover", version, result)  # type: ignore[no-any-return]  # it is of the class that the method has

    async def initialize(self, version: str = LATEST_HANDSHAKE_VERSION) -> InitializeResult:
        """Send ``initialize``, and return the answer. ``notifications/initialized`` must follow, once it is adopted.

        A server should answer with a version of its own. One that refuses, and names it, is asked again.

        Raises:
            mcp.MCPError, pydantic_core.ValidationError: as for `discover`.
        """
        params = {
            "protocolVersion": version,
            "capabilities": self.offers(version),
            "clientInfo": _dumped(self._info),
        }
        try:
            result = await self.dispatcher.exchange(RequestUnderWay("initialize", params, cancellable=False))
        except (MCPError, HttpStatusError) as exc:
            if version != LATEST_HANDSHAKE_VERSION or (older := older_version(exc)) is None:
                raise
            return await self.initialize(older)
        return self._read_answer("initialize", LATEST_HANDSHAKE_VERSION, result)  # type: ignore[no-any-return]  # it is of the class that the method has

    def _read_answer(self, method: str, version: str, result: Json) -> Any:
        without_later_fields(method, version, result)
        answer = self.read(method, result, version)
        self._answered = True
        return answer

    def read(self, method: str, result: Json, version: str | None = None) -> Any:
        """Return a result that was parsed from JSON, as far as it can be understood. What is odd is logged.

        Args:
            method: the protocol's method.
            result: the parsed ``result`` of the answer. It is changed to what was read.
            version: the protocol version; None for that of the session.

        Raises:
            pydantic_core.ValidationError: nothing of it conforms to the protocol.
        """

        def report(problem: ValidationError) -> None:
            what = first_problem(problem, self.link.masker)
            said = f"a result of {method} is not valid ({what}), and was read as far as possible"
            self.oddities.note((method, re.sub(r"\d+", "", what)), said)

        return read_result(method, version or self.version, result, report, certain=self._answered)

    async def notify(self, method: str) -> None:
        """Send a notification without params; drop it if the connection has ended."""
        await self.dispatcher.notify(method, None, {"headers": self.stamp.stamp(method, {})})

    def listen(self, **lists: Any) -> AbstractAsyncContextManager[Subscription]:
        """Open a stream of notifications (``subscriptions/listen``); see `mcp.Client.listen`."""
        return listen(self.listener, **lists)

    async def resolve(self, value: Any, tool: str | None) -> Any:
        """Have the extension finish a result that it claims; return any other result as it is.

        Args:
            value: the result.
            tool: the tool that was called; None for other requests.
        """
        claim = self.claims.get(getattr(value, "result_type", None) or "") if self.claims else None
        if claim is None or tool is None or not isinstance(value, claim.model):
            return value
        context = ClaimContext(session=self.listener, tool_name=tool, read_timeout_seconds=None)
        return await claim.resolve(value, context)

    def note_tools(self, tools: Sequence[Tool]) -> None:
        """Note all tools of the server: since 2026-07-28 some of their arguments are headers over HTTP."""
        self.stamp.note_tools(tools)
        self.return_objects = {tool.name for tool in tools if (tool.output_schema or {}).get("type") == "object"}


def _dumped(model: ClientCapabilities | Implementation) -> Json:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def _holds(claim: ResultClaim[Any], version: str) -> bool:
    """Return True if a claim of an extension holds at a protocol version."""
    return is_modern(version) and (claim.protocol_versions is None or version in claim.protocol_versions)


def not_offered(server: str, operation: str, kind: str) -> NotSupported:
    """Return the error for a request during which a server has asked what no callback answers."""
    what = (
        f"server {server!r}: {operation} needs {kind}, which this client does not support, because no callback is "
        f"configured for it; configure callbacks=Callbacks({kind}=…)"
    )
    return NotSupported(what, server=server, capability=kind)


# --- Finish requests whose first answer is not their result -----------------------------------------------------------

# Since 2026-07-28 a server that needs input for an answer (from a model, a person, or about roots) returns a request
# for input instead of the answer, and is then sent the same request with that input. A result may also be of a type
# that an extension claims, which then finishes it. Before that, a server may refuse a request until a person has opened
# some pages (−32042), and reports when they are done.


MAX_ROUNDS: Final = 10
"""Requests for input that a server may send for one answer: the default of the SDKs of all languages."""

AT_ONCE: Final = 100
"""Questions that are begun in one step. A server may not have as many open, so it is refused before the next ones."""

FIRST_DELAY: Final = 0.05
"""Seconds before a request is repeated for a server that asks nothing, as in the SDK. They double each time."""

LAST_DELAY: Final = 0.25
"""The maximum of these seconds."""


class Rounds:
    """Counts the requests for input of one request."""

    def __init__(self) -> None:
        self._delay = FIRST_DELAY
        self.begun: int = 0

    async def begin(self, value: InputRequiredResult) -> None:
        """Count another one. If it asks nothing, wait before the request is sent again.

        Raises:
            InputRequiredRoundsExceededError: there were too many.
        """
        if self.begun == MAX_ROUNDS:
            raise InputRequiredRoundsExceededError(MAX_ROUNDS)
        self.begun += 1
        if value.input_requests:
            self._delay = FIRST_DELAY
        else:
            await trio.sleep(self._delay)
            self._delay = min(2 * self._delay, LAST_DELAY)


async def carry_on(
    session: Session,
    tool: str | None,
    value: Any,
    resend: Callable[[Json], Awaitable[Any]],
    attempt: Deadline | None = None,
) -> Any:
    """Answer the questions of a result that requires input, round by round; return the last result.

    **Cancellation**: cancels the user's callbacks.

    Args:
        session: the session.
        tool: the tool that was called; None for other requests.
        value: the first result. If it requires no input, it is of a type that an extension claims.
        resend: sends the request again, with further params, and returns its result.
        attempt: the attempt that it belongs to.

    Raises:
        CarriedFailure, ServerError, mcp.MCPError: a question was refused, or the request has failed.
        InputRequiredRoundsExceededError: the server requires input again and again.
    """
    rounds = Rounds()
    while isinstance(value, InputRequiredResult):
        await rounds.begin(value)
        more: Json = {}
        if value.input_requests:
            answers = await _answer(session, value.input_requests, attempt)
            more["inputResponses"] = {
                key: answer.model_dump(by_alias=True, mode="json", exclude_none=True) for key, answer in answers.items()
            }
        if value.request_state is not None:
            more["requestState"] = value.request_state
        value = await resend(more)
    return await session.resolve(value, tool)


def pages_of(error: MCPError) -> list[ElicitRequestURLParams]:
    """Return the pages that a person must open before a request can succeed; none for another error."""
    if error.code == URL_ELICITATION_REQUIRED:
        with suppress(ValidationError):
            found: ElicitationRequiredErrorData = bounded(ElicitationRequiredErrorData).validate_python(error.data)
            return found.elicitations
    return []


async def open_pages(
    session: Session,
    pages: Sequence[ElicitRequestURLParams],
    seconds: float,
    wait: Callable[[list[str]], Awaitable[None]],
    attempt: Deadline | None,
) -> str:
    """Have a person open pages, and wait until all are done; return why they are not, or nothing.

    Args:
        session: the session.
        pages: the pages.
        seconds: how long the server may take to report that they are done.
        wait: waits for the reports of pages with these ids.
        attempt: the attempt that was refused.
    """
    if "elicitation_callback" not in session.listener.offered:
        return "no callback is configured for it; configure callbacks=Callbacks(elicitation=…)"
    questions = {f"page {at}": ElicitRequest(params=page) for at, page in enumerate(pages)}
    try:
        answers = await _answer(session, questions, attempt)
    except MCPError as exc:
        return exc.message
    for answer in answers.values():
        if isinstance(answer, ElicitResult) and answer.action != "accept":
            return f"the answer of the person was {answer.action!r}"
    ids = [page.elicitation_id for page in pages if page.elicitation_id is not None]
    if (
        len(ids) < len(pages)
        or ("notifications/elicitation/complete", session.version) not in methods.SERVER_NOTIFICATIONS
    ):
        return "it was opened, and the server cannot report that it is done"
    with trio.move_on_after(seconds):
        await wait(ids)
        return ""
    return f"it was opened, and the server has not reported within {seconds:g} s that it is done"


def pages_required(server: str, operation: str, refusal: MCPError, why: str) -> MCPError:
    """Return the error for a request that needs a person at some pages."""
    named = " and ".join(dict.fromkeys(mask_url(each.url).partition("?")[0] for each in pages_of(refusal)))
    what = f"server {server!r}: {operation} needs a person at {plain_text(named, limit=PROBLEM)}: {plain_text(why)}"
    return MCPError(refusal.code, f"{what}; open the URLs in its data, then send the request again", refusal.data)


async def _answer(session: Session, requests: Mapping[str, InputRequest], attempt: Deadline | None) -> InputResponses:
    answers: InputResponses = {}
    refused: tuple[ErrorData, Exception | None] | None = None

    async def answer(key: str, request: InputRequest) -> None:
        nonlocal refused
        meta = request.params.meta if request.params is not None else None
        context = ClientRequestContext(session=session.listener, request_id=key, meta=meta)
        CURRENT_QUESTION.set(question := ServerQuestion(attempt))
        response = await session.listener.dispatch_input_request(context, request)
        if isinstance(response, ErrorData):
            refused = response, question.failure
            questions.cancel_scope.cancel("another question was refused")
        else:
            answers[key] = response

    async with trio.open_nursery(strict_exception_groups=True) as questions:
        for number, (key, request) in enumerate(requests.items(), 1):
            questions.start_soon(answer, key, request)
            if number % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()  # raises if one of them was refused, which has cancelled all
    if refused is not None:
        error, failure = refused
        raise MCPError.from_error_data(error) if failure is None else CarriedFailure(failure, error)
    return answers


# --- Complete requests as each protocol era wants them ----------------------------------------------------------------

# Up to 2025-11-25 a request has a header for its version. Since 2026-07-28 a server remembers nothing of a client, so
# each request names the version, the client and its capabilities in ``_meta``. Over HTTP its method, what it names, and
# the arguments that the tool's schema marks are headers too.


@frozen
class LegacyStamp:
    """Completes requests up to 2025-11-25, where a handshake has said the rest."""

    version: str
    members: bytes | None = None
    """The ``_meta`` of every request as a member of JSON text; None if it has none."""

    def stamp(self, method: str, params: Json, capabilities: Json | None = None) -> dict[str, str]:
        """Complete the params of a request, and return its headers. The handshake has named the capabilities."""
        return {MCP_PROTOCOL_VERSION_HEADER: self.version}

    def note_tools(self, tools: Sequence[Tool]) -> None:
        """Do nothing: no argument is a header."""


@define(eq=False)
class ModernStamp:
    """Completes requests since 2026-07-28, each of which says everything."""

    version: str
    _meta: Json
    members: bytes = field(init=False)
    """As for `LegacyStamp`."""
    _schemas: dict[str, Json] = field(factory=dict, init=False)
    _mirrored: dict[str, Mapping[tuple[str, ...], str]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.members = to_json({"_meta": self._meta})[1:-1]

    def stamp(self, method: str, params: Json, capabilities: Json | None = None) -> dict[str, str]:
        """Complete the params of a request, and return its headers.

        Args:
            method: the protocol's method.
            params: the params.
            capabilities: the capabilities that it names, of another client; None for those of this one.
        """
        params["_meta"] = {**(params.get("_meta") or {}), **self._meta}
        if capabilities is not None:
            params["_meta"][CLIENT_CAPABILITIES_META_KEY] = capabilities
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version, MCP_METHOD_HEADER: method}
        name: Any = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call" and (mirrored := self._mirrored_by(name)):
                headers |= mcp_param_headers(mirrored, params.get("arguments") or {})
        return headers

    def note_tools(self, tools: Sequence[Tool]) -> None:
        """Note all tools of the server, whose schemas say which of their arguments are headers."""
        self._schemas = {tool.name: tool.input_schema for tool in tools}
        self._mirrored.clear()

    def _mirrored_by(self, tool: str) -> Mapping[tuple[str, ...], str]:
        """Return which arguments of a tool are headers; nothing if the tool is not listed."""
        if tool not in self._schemas:
            return {}
        if tool not in self._mirrored:
            self._mirrored[tool] = x_mcp_header_map(self._schemas[tool])
        return self._mirrored[tool]


Stamp: TypeAlias = LegacyStamp | ModernStamp


def modern_stamp(version: str, info: Implementation, capabilities: Json) -> ModernStamp:
    """Return the stamp of a version since 2026-07-28."""
    return ModernStamp(
        version,
        {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: _dumped(info),
            CLIENT_CAPABILITIES_META_KEY: capabilities,
        },
    )
