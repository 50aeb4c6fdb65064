"""Send requests over one connection, and answer the server's questions.

In a `ConnectionSession`, the `SdkListener` (a `ClientSession` of the SDK) gets the server's notifications and
questions. A `LinkDispatcher` carries all messages.

`carry_on` finishes a request whose first answer is a request for input, or a result claimed by an extension.

Owns: the `SdkListener`; the agreed version; the agreed capabilities; tasks for questions.
Writes: requests to servers; fields of results; errors for callers about unanswered questions; settings of the
`LinkDispatcher`; the log.
Calls: config, transports, _dialects, _dispatcher, _eras.
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
from ._eras import SHOWN_PROBLEM, bounded, first_problem, is_modern, older_version, without_later_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from mcp.client import ClientExtension
    from mcp.client.extension import ResultClaim
    from mcp.client.session import ElicitationFnT, ListRootsFnT, MessageHandlerFnT, SamplingFnT
    from mcp.client.subscriptions import Subscription
    from mcp.types import ElicitRequestURLParams, InputRequest, InputResponse, InputResponses, Tool

    from ..transports import Json, Link, Report
    from ._deadlines import Deadline


_INPUT_KINDS: Final = {
    CreateMessageRequest: ("sampling", "sampling_callback"),
    ElicitRequest: ("elicitation", "elicitation_callback"),
    ListRootsRequest: ("roots", "list_roots_callback"),
}
"""The kinds of input, with their callbacks."""

_REQUEST_REFUSALS: Final = {
    "sampling/createMessage": ("sampling_callback", "Sampling not supported"),
    "elicitation/create": ("elicitation_callback", "Elicitation not supported"),
}
"""The server's possibly large requests, with their callbacks, and the SDK's error without a callback."""


class SessionCallbacks(TypedDict, total=False):
    """Keyword arguments of `ClientSession`: the callbacks of a session, and their capabilities."""

    message_handler: MessageHandlerFnT
    sampling_callback: SamplingFnT
    sampling_capabilities: SamplingCapability | None
    elicitation_callback: ElicitationFnT
    list_roots_callback: ListRootsFnT


class SdkListener(ClientSession):
    """The SDK's session, listening on a connection.

    Attributes:
        offered: the names of the configured callbacks.
    """

    server: str
    offered: frozenset[str]

    async def validate_tool_result(self, name: str, result: CallToolResult) -> None:
        """Accept any result, even for tools called by an extension.

        The SDK discards invalid results of a tool that has run, and sends its own ``tools/list`` for unlisted tools. If
        configured, `mcp_actors.catalog.ToolChecks` validates results.
        """

    async def dispatch_input_request(
        self, ctx: ClientRequestContext, request: InputRequest
    ) -> InputResponse | ErrorData:
        """Answer a question of the server by its callback; without a callback, note an error that names the cause."""
        question, response = CURRENT_QUESTION.get(), await super().dispatch_input_request(ctx, request)
        kind, callback = _INPUT_KINDS[type(request)]
        if isinstance(response, ErrorData) and callback not in self.offered and question.attempt is not None:
            question.failure = not_offered(self.server, question.attempt.operation, kind)
        return response


class ConnectionSession:
    """The session of one connection.

    Args:
        info: introduces this client.
        callbacks: receive the server's messages.
        declared: the capabilities of a gateway's client, sent to the server instead of this client's.

    Attributes:
        version: the protocol version; until agreed on, the latest with a handshake.
        agreed: the server's answer to ``server/discover`` or ``initialize``; None before.
        stamp: completes each request.
        claims: the types of results that extensions finish at this version.
        return_objects: the tools whose structured content is an object; before 2026-07-28 every tool's is.
    """

    def __init__(
        self,
        dispatcher: LinkDispatcher,
        info: Implementation,
        callbacks: SessionCallbacks,
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
        self._answered = False  # whether the server has named the version, on this connection
        self._info = info
        self._callbacks = callbacks
        self._declared = declared or {}
        self._extensions = extensions
        claims = [claim for each in extensions for claim in each.claims()]
        dispatcher.claimed = frozenset(claim.result_type for claim in claims)
        dispatcher.refusals = {
            method: words for method, (name, words) in _REQUEST_REFUSALS.items() if name not in callbacks
        }
        self.listener: SdkListener = SdkListener(
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
        """Read the server's messages during a block, and pass them on. Exceptions of the block leave unwrapped."""
        error: Exception | None = None
        async with self.listener:  # it starts the task of the SDK that runs `LinkDispatcher.run`
            try:
                yield
            except Exception as exc:
                error = exc  # the SDK's task group would wrap it
            finally:
                self.oddities.close()
        if error is not None:
            raise error

    # --- what was agreed on -----------------------------------------------------------------------------------------

    @property
    def modern(self) -> bool:
        return is_modern(self.version)

    @property
    def capabilities(self) -> ServerCapabilities:
        return ServerCapabilities() if self.agreed is None else self.agreed.capabilities

    @property
    def instructions(self) -> str | None:
        return None if self.agreed is None else self.agreed.instructions

    def offers(self, version: str) -> Json:
        """Return the client's capabilities at a version, from its callbacks and extensions.

        An extension is left out if it claims only results of other versions: its results would be refused.
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
        """Use a server's answer from now on.

        Raises:
            RuntimeError: the server and this client have no common version.
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
        """Send a request, and return the parsed ``result`` of the answer.

        **Cancellation**: the server is asked to cancel a sent request.

        Args:
            method: the protocol's method.
            params: the params without ``_meta``, completed in place.
            attempt: the attempt behind the request; None while connecting.
            meta: the caller's ``_meta``.
            report: takes progress.
            capabilities: see `ModernStamp.stamp`.

        Raises:
            mcp.MCPError: the server answered with an error, or the connection was lost.
            ServerError, ConnectionOver: any other failure.
        """
        if meta:
            params["_meta"] = dict(meta)
        headers = self.stamp.stamp(method, params, capabilities)
        return await self.dispatcher.exchange(RequestUnderWay(method, params, attempt, headers, report))

    async def discover(self, version: str = LATEST_MODERN_VERSION) -> DiscoverResult:
        """Send ``server/discover``, without a timeout, and return the answer.

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
        """Send ``initialize``, and return the answer. Once adopted, ``notifications/initialized`` must follow.

        A server should answer with a version of its own; a server that refuses and names its version is asked again.

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
        """Return a parsed result, as far as understood, and log deviations.

        The `result` is changed in place, and read by the session's version, unless another is given.

        Raises:
            pydantic_core.ValidationError: as for `read_result`.
        """

        def report(problem: ValidationError) -> None:
            what = first_problem(problem, self.link.masker)
            said = f"a result of {method} is not valid ({what}), and was read as far as possible"
            self.oddities.note((method, re.sub(r"\d+", "", what)), said)

        return read_result(method, version or self.version, result, report, certain=self._answered)

    async def notify(self, method: str) -> None:
        await self.dispatcher.notify(method, None, {"headers": self.stamp.stamp(method, {})})

    def listen(self, **lists: Any) -> AbstractAsyncContextManager[Subscription]:
        """Open a stream of notifications (``subscriptions/listen``); see `mcp.Client.listen`."""
        return listen(self.listener, **lists)

    async def resolve(self, value: Any, tool: str | None) -> Any:
        """Let an extension finish a claimed result of a `tool`; return any other result as is."""
        claim = self.claims.get(getattr(value, "result_type", None) or "") if self.claims else None
        if claim is None or tool is None or not isinstance(value, claim.model):
            return value
        context = ClaimContext(session=self.listener, tool_name=tool, read_timeout_seconds=None)
        return await claim.resolve(value, context)

    def note_tools(self, tools: Sequence[Tool]) -> None:
        """Note all tools of the server: since 2026-07-28, some arguments are headers over HTTP."""
        self.stamp.note_tools(tools)
        self.return_objects = {tool.name for tool in tools if (tool.output_schema or {}).get("type") == "object"}


def _dumped(model: ClientCapabilities | Implementation) -> Json:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def _holds(claim: ResultClaim[Any], version: str) -> bool:
    return is_modern(version) and (claim.protocol_versions is None or version in claim.protocol_versions)


def not_offered(server: str, operation: str, kind: str) -> NotSupported:
    """Return the error for a request during which the server asked what no callback answers."""
    what = (
        f"server {server!r}: {operation} needs {kind}, which this client does not support, because no callback is "
        f"configured for it; configure callbacks=Callbacks({kind}=…)"
    )
    return NotSupported(what, server=server, capability=kind)


# --- Finish requests whose first answer is not their result -----------------------------------------------------------

# Since 2026-07-28 a server that needs input (from a model, a person, or about roots) answers with a request for input,
# and then gets the original request again with that input. A result may also have a type claimed by an extension, which
# finishes the request. A server of an older version may refuse a request until a person has opened some pages (−32042),
# and reports when these are done.


MAX_ROUNDS: Final = 10
"""Requests for input per answer: the default of the SDKs of all languages."""

QUESTIONS_A_STEP: Final = 100
"""Questions begun in one step: more than a server may have open, so a refusal stops the rest."""

FIRST_DELAY: Final = 0.05
"""Seconds before repeating a request whose server asks nothing, as in the SDK; doubled each time."""

LAST_DELAY: Final = 0.25
"""The longest of these delays."""


class Rounds:
    def __init__(self) -> None:
        self._delay = FIRST_DELAY
        self.begun: int = 0

    async def begin(self, value: InputRequiredResult) -> None:
        """Count a round, or raise if there are too many. Before repeating a request whose server asks nothing, wait."""
        if self.begun == MAX_ROUNDS:
            raise InputRequiredRoundsExceededError(MAX_ROUNDS)
        self.begun += 1
        if value.input_requests:
            self._delay = FIRST_DELAY
        else:
            await trio.sleep(self._delay)
            self._delay = min(2 * self._delay, LAST_DELAY)


async def carry_on(
    session: ConnectionSession,
    tool: str | None,
    value: Any,
    resend: Callable[[Json], Awaitable[Any]],
    attempt: Deadline | None = None,
) -> Any:
    """Answer a server's questions round by round; return the last result.

    **Cancellation**: cancels the user's callbacks.

    Args:
        session: the session.
        tool: the called tool; None for other requests.
        value: the first result: requires input, or has a type claimed by an extension.
        resend: sends the request again, with further params, and returns the result.
        attempt: the attempt behind the request.

    Raises:
        CarriedFailure, ServerError, mcp.MCPError: a question was refused, or the request has failed.
        InputRequiredRoundsExceededError: too many rounds.
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
    """Return the pages that a person must open before a request can succeed; empty for other errors."""
    if error.code == URL_ELICITATION_REQUIRED:
        with suppress(ValidationError):
            found: ElicitationRequiredErrorData = bounded(ElicitationRequiredErrorData).validate_python(error.data)
            return found.elicitations
    return []


async def open_pages(
    session: ConnectionSession,
    pages: Sequence[ElicitRequestURLParams],
    seconds: float,
    wait: Callable[[list[str]], Awaitable[None]],
    attempt: Deadline | None,
) -> str:
    """Ask a person to open pages, and wait until all are done; return the reason for a failure, or "".

    The server has `seconds` to report completion. `wait` takes the ids of pages, and waits for the reports.
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
    notice = "notifications/elicitation/complete", session.version
    if len(ids) < len(pages) or notice not in methods.SERVER_NOTIFICATIONS:
        return "it was opened, and the server cannot report that it is done"
    with trio.move_on_after(seconds):
        await wait(ids)
        return ""
    return f"it was opened, and the server has not reported within {seconds:g} s that it is done"


def pages_required(server: str, operation: str, refusal: MCPError, why: str) -> MCPError:
    named = " and ".join(dict.fromkeys(mask_url(each.url).partition("?")[0] for each in pages_of(refusal)))
    what = (
        f"server {server!r}: {operation} needs a person at {plain_text(named, limit=SHOWN_PROBLEM)}: {plain_text(why)}"
    )
    return MCPError(refusal.code, f"{what}; open the URLs in its data, then send the request again", refusal.data)


async def _answer(
    session: ConnectionSession, requests: Mapping[str, InputRequest], attempt: Deadline | None
) -> InputResponses:
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

    # A refused question cancels all, and its error is raised below, outside the nursery, so callers see no group. A
    # server may send thousands of questions in one message: without the checkpoint, all callbacks would start before a
    # refusal could stop any. Cancelled here comes from a refusal, or from the caller.
    async with trio.open_nursery(strict_exception_groups=True) as questions:
        for number, (key, request) in enumerate(requests.items(), 1):
            questions.start_soon(answer, key, request)
            if number % QUESTIONS_A_STEP == 0:
                await trio.lowlevel.checkpoint()
    if refused is not None:
        error, failure = refused
        raise MCPError.from_error_data(error) if failure is None else CarriedFailure(failure, error)
    return answers


# --- Complete requests as each protocol era wants them ----------------------------------------------------------------

# Up to 2025-11-25 a request has a header for the version. Since 2026-07-28 servers remember nothing of a client, so
# each request names version, client and capabilities in ``_meta``. Over HTTP, headers repeat the method, the named
# object, and arguments marked in the tool's schema.


@frozen
class LegacyStamp:
    """Completes requests up to 2025-11-25, after a handshake.

    `members` is the ``_meta`` of every request as a member of JSON text; None without ``_meta``.
    """

    version: str
    members: bytes | None = None

    def stamp(self, method: str, params: Json, capabilities: Json | None = None) -> dict[str, str]:
        """Return the headers of a request. The handshake has named the capabilities."""
        return {MCP_PROTOCOL_VERSION_HEADER: self.version}

    def note_tools(self, tools: Sequence[Tool]) -> None:
        """Do nothing: no argument is a header."""


@define(eq=False)
class ModernStamp:
    """Completes requests since 2026-07-28, all self-contained. `members` is as for `LegacyStamp`."""

    version: str
    _meta: Json
    members: bytes = field(init=False)
    _schemas: dict[str, Json] = field(factory=dict, init=False)
    _mirrored: dict[str, Mapping[tuple[str, ...], str]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.members = to_json({"_meta": self._meta})[1:-1]

    def stamp(self, method: str, params: Json, capabilities: Json | None = None) -> dict[str, str]:
        """Complete the params of a request, and return its headers. `capabilities` are those of another client."""
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
        self._schemas = {tool.name: tool.input_schema for tool in tools}
        self._mirrored.clear()

    def _mirrored_by(self, tool: str) -> Mapping[tuple[str, ...], str]:
        """Return which arguments of a tool are headers; empty for unlisted tools."""
        if tool not in self._schemas:
            return {}
        if tool not in self._mirrored:
            self._mirrored[tool] = x_mcp_header_map(self._schemas[tool])
        return self._mirrored[tool]


Stamp: TypeAlias = LegacyStamp | ModernStamp


def modern_stamp(version: str, info: Implementation, capabilities: Json) -> ModernStamp:
    return ModernStamp(
        version,
        {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: _dumped(info),
            CLIENT_CAPABILITIES_META_KEY: capabilities,
        },
    )
