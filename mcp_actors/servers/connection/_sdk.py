"""Adapt the SDK's session: no validation, and watched requests for input.

Since 2026-07-28 a server that needs input for an answer (from a model, a person, or about roots) returns a request for
input instead of the answer, and is then sent the same request with that input. The SDK runs these rounds with the
user's callbacks. This file adds what the SDK leaves open: an error that names the cause if the rounds do not end or no
callback exists, and a pause of ``progress_timeout`` while a callback runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import trio
from mcp import MCPError
from mcp.client import ClientRequestContext, InputRequiredRoundsExceededError
from mcp.types import CreateMessageRequest, ElicitRequest, ErrorData, InputRequiredResult, ListRootsRequest, Result

from ..._errors import LimitExceeded, NotSupported
from ..basics import current_trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp import Client, ClientSession
    from mcp.types import CallToolResult, InputRequest, InputResponse, InputResponses

    from ..record import ServerRecord
    from ..requests import PlainRequest

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
