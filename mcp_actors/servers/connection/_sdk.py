"""Adapt the SDK's session: bounded validation, and watched requests for input.

Since 2026-07-28 a server that needs input for an answer (from a model, a person, or about roots) returns a request for
input instead of the answer, and is then sent the same request with that input. The SDK runs these rounds with the
user's callbacks. This file adds what the SDK leaves open: an error that names the cause if the rounds do not end or no
callback exists, and a pause of ``progress_timeout`` while a callback runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
from mcp import Client, MCPError
from mcp.client import ClientRequestContext, InputRequiredRoundsExceededError
from mcp.types import (
    INVALID_REQUEST,
    CreateMessageRequest,
    ElicitRequest,
    ErrorData,
    InputRequiredResult,
    ListRootsRequest,
    Result,
)
from mcp.types.version import LATEST_HANDSHAKE_VERSION

from ..._errors import LimitExceeded, NotSupported
from ..basics import current_trace
from ..policy import check_request, check_result, fits, has_many, is_costly
from ..requests import without_later_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AsyncExitStack

    from mcp import ClientSession
    from mcp.shared.dispatcher import CallOptions, DispatchContext, Dispatcher
    from mcp.shared.transport_context import TransportContext
    from mcp.types import CallToolResult, InputRequest, InputResponse, InputResponses

    from ..record import ServerRecord
    from ..requests import PlainRequest

    SendRaw = Callable[..., Awaitable[dict[str, Any]]]

MAX_ROUNDS: Final = 10
"""Requests for input that a server may send for one answer: the default of the SDKs of all languages."""

FIRST_DELAY: Final = 0.05
"""Seconds before a request is repeated for a server that only needs time, as in the SDK. They double each time."""

LAST_DELAY: Final = 0.25
"""Maximum of these seconds."""

ResultT = TypeVar("ResultT", bound=Result)

_KINDS: Final = {
    CreateMessageRequest: ("sampling", "sampling_callback"),
    ElicitRequest: ("elicitation", "elicitation_callback"),
    ListRootsRequest: ("roots", "list_roots_callback"),
}
"""The kinds of input, each with the attribute of `mcp.Client` that has the callback for it."""


_UNCALLED: Final = {
    "sampling/createMessage": ("sampling_callback", "Sampling not supported"),
    "elicitation/create": ("elicitation_callback", "Elicitation not supported"),
}
"""The requests of a server that may be large, each with the callback for it, and the SDK's error if there is none."""

_MISFIT: Final = {"_meta": 0}
"""Params that no message may have. The SDK finds one error in them, and does what it does for all invalid params."""


class BoundedClient(Client):
    """A client whose session validates large messages at a bounded cost; see `mcp_actors.servers.policy`."""

    async def _build_session(self, exit_stack: AsyncExitStack) -> ClientSession:
        # The SDK creates the session here, and sends `initialize` before it offers the session to anyone.
        session = await super()._build_session(exit_stack)
        _check_answers(session, self)
        _check_messages(session, self)
        return session


def _version(session: ClientSession) -> str:
    return session.protocol_version or LATEST_HANDSHAKE_VERSION


def _check_answers(session: ClientSession, client: Client) -> None:
    """Have a session refuse a large invalid result by its first errors, before it builds all of them."""
    dispatcher = session._dispatcher  # the session offers no way to see a result before it validates
    send = dispatcher.send_raw_request
    claims = [claim.result_type for each in client.extensions or () for claim in each.claims()]

    async def checked(method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> dict[str, Any]:
        raw, version = await send(method, params, opts), _version(session)
        if is_costly(method, version, raw):
            result = dict(raw)
            without_later_fields(method, version, result)
            check_result(method, version, result, claimed=result.get("resultType") in claims)
        return raw

    dispatcher.send_raw_request = checked  # type: ignore[method-assign]  # replacing it is the purpose


def unchecked(dispatcher: Dispatcher[Any]) -> SendRaw:
    """Return the method of a dispatcher that a `BoundedClient` has replaced, for results that are validated here."""
    return partial(type(dispatcher).send_raw_request, dispatcher)


def _check_messages(session: ClientSession, client: Client) -> None:
    """Have a session refuse large invalid requests and notifications of its server likewise."""
    answer, notify, intercept = session._on_request, session._on_notify, session._intercept_notification

    async def on_request(
        context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        callback, refusal = _UNCALLED.get(method, (None, ""))
        if callback is not None and getattr(client, callback) is None and has_many(params):
            raise MCPError(INVALID_REQUEST, refusal)
        check_request(method, _version(session), params)
        return await answer(context, method, params)

    async def on_notify(
        context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> None:
        await notify(context, method, params if fits(method, _version(session), params) else _MISFIT)

    def intercept_notification(method: str, params: Mapping[str, Any] | None) -> bool:
        return fits(method, _version(session), params) and intercept(method, params)

    # The session passes these to its dispatcher when it is entered.
    session._on_request = on_request  # type: ignore[method-assign,assignment]  # replacing it is the purpose
    session._on_notify = on_notify  # type: ignore[method-assign,assignment]  # likewise
    session._intercept_notification = intercept_notification  # type: ignore[method-assign]  # likewise


def disable_result_validation(session: ClientSession) -> None:
    """Make a session return the results of tools as they are. Call it once, before the first request.

    The SDK validates a result after the tool has run, and discards an invalid one: it raises a bare `RuntimeError` with
    the whole value and the whole schema as text, also if only the schema is broken. For a tool that was not listed it
    sends a ``tools/list`` of its own, past the mailbox and all limits. `mcp_actors.catalog.ToolChecks` validates
    results where that is configured.
    """
    # A public method, which the SDK calls for each result. It has no option for this.
    session.validate_tool_result = _accept  # type: ignore[method-assign]  # replacing it is the purpose


async def _accept(name: str, result: CallToolResult) -> None:
    """Accept any result."""


def watch_input_requests(client: Client, server: str) -> None:
    """Pause the progress timeout while a server waits for input. Call it once, before the first request."""
    session = client.session
    answer = session.dispatch_input_request

    async def watch(ctx: ClientRequestContext, request: InputRequest) -> InputResponse | ErrorData:
        trace = current_trace()
        with trace.asked_back():
            response = await answer(ctx, request)
        kind, callback = _KINDS[type(request)]
        if isinstance(response, ErrorData) and getattr(client, callback) is None and trace.deadline is not None:
            trace.failure = _not_offered(server, trace.deadline.operation, kind)
        return response

    # A public method, through which the SDK passes every request for input.
    session.dispatch_input_request = watch  # type: ignore[method-assign]  # replacing it is the purpose


async def carry_on(
    client: Client, record: ServerRecord, request: PlainRequest[ResultT], required: InputRequiredResult
) -> ResultT:
    """Answer the questions of a result that requires input, round by round, as `mcp.Client` does.

    **Cancellation**: cancels the user's callbacks.

    Args:
        client: the SDK's client for the connection.
        record: the record of the server.
        request: the request, which is sent once more with the answers of each round.
        required: its first result.

    Raises:
        mcp.MCPError: a question was refused, or the server has answered with an error.
        InputRequiredRoundsExceededError: the server requires input again and again.
    """
    delay = FIRST_DELAY
    for _ in range(MAX_ROUNDS):
        answers: InputResponses | None = None
        if required.input_requests:
            delay = FIRST_DELAY
            answers = await _answer(client, required.input_requests)
        else:
            await trio.sleep(delay)
            delay = min(2 * delay, LAST_DELAY)
        result = await request.resume(client, record, answers, required.request_state)
        if not isinstance(result, InputRequiredResult):
            return result
        required = result
    raise InputRequiredRoundsExceededError(MAX_ROUNDS)


async def _answer(client: Client, requests: Mapping[str, InputRequest]) -> InputResponses:
    session = client.session
    answers: InputResponses = {}
    refused: ErrorData | None = None

    async def answer(key: str, request: InputRequest) -> None:
        nonlocal refused
        meta = request.params.meta if request.params is not None else None
        context = ClientRequestContext(session=session, request_id=key, meta=meta)
        response = await session.dispatch_input_request(context, request)
        if isinstance(response, ErrorData):
            refused = response
            questions.cancel_scope.cancel("another question was refused")
        else:
            answers[key] = response

    async with trio.open_nursery(strict_exception_groups=True) as questions:
        for key, request in requests.items():
            questions.start_soon(answer, key, request)
    if refused is not None:
        raise MCPError.from_error_data(refused)
    return answers


def _not_offered(server: str, operation: str, kind: str) -> NotSupported:
    return NotSupported(
        f"server {server!r}: {operation} needs {kind}, which this client does not support, because no callback is "
        f"configured for it; configure callbacks=Callbacks({kind}=…)",
        server=server,
        capability=kind,
    )


def too_many_rounds(server: str, operation: str) -> LimitExceeded:
    """Return the error for a server that requests input again and again."""
    return LimitExceeded(
        f"server {server!r}: {operation} asked for input {MAX_ROUNDS} times without an answer, and may have taken "
        "effect; fix the server",
        server=server,
    )
