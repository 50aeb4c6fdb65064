"""Finish requests whose first answer is not their result.

Since 2026-07-28 a server that needs input for an answer (from a model, a person, or about roots) returns a request for
input instead of the answer, and is then sent the same request with that input. A result may also be of a type that an
extension claims, which then finishes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio
from mcp import MCPError
from mcp.client import ClientRequestContext, InputRequiredRoundsExceededError
from mcp.types import ErrorData, InputRequiredResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.types import InputRequest, InputResponses

    from ...transports import Json
    from ._session import Session

MAX_ROUNDS: Final = 10
"""Requests for input that a server may send for one answer: the default of the SDKs of all languages."""

AT_ONCE: Final = 100
"""Questions that are begun in one step. A server may not have as many open, so it is refused before the next ones."""

FIRST_DELAY: Final = 0.05
"""Seconds before a request is repeated for a server that asks nothing, as in the SDK. They double each time."""

LAST_DELAY: Final = 0.25
"""The maximum of these seconds."""


async def carry_on(session: Session, tool: str | None, value: Any, resend: Callable[[Json], Awaitable[Any]]) -> Any:
    """Answer the questions of a result that requires input, round by round; return the last result.

    **Cancellation**: cancels the user's callbacks.

    Args:
        session: the session.
        tool: the tool that was called; None for other requests.
        value: the first result. If it requires no input, it is of a type that an extension claims.
        resend: sends the request again, with further params, and returns its result.

    Raises:
        mcp.MCPError: a question was refused, or the server has answered with an error.
        InputRequiredRoundsExceededError: the server requires input again and again.
    """
    delay, rounds = FIRST_DELAY, 0
    while isinstance(value, InputRequiredResult):
        if rounds == MAX_ROUNDS:
            raise InputRequiredRoundsExceededError(MAX_ROUNDS)
        rounds += 1
        more: Json = {}
        if value.input_requests:
            delay = FIRST_DELAY
            answers = await _answer(session, value.input_requests)
            more["inputResponses"] = {
                key: answer.model_dump(by_alias=True, mode="json", exclude_none=True) for key, answer in answers.items()
            }
        else:
            await trio.sleep(delay)
            delay = min(2 * delay, LAST_DELAY)
        if value.request_state is not None:
            more["requestState"] = value.request_state
        value = await resend(more)
    return await session.resolve(value, tool)


async def _answer(session: Session, requests: Mapping[str, InputRequest]) -> InputResponses:
    answers: InputResponses = {}
    refused: ErrorData | None = None

    async def answer(key: str, request: InputRequest) -> None:
        nonlocal refused
        meta = request.params.meta if request.params is not None else None
        context = ClientRequestContext(session=session.listener, request_id=key, meta=meta)
        response = await session.listener.dispatch_input_request(context, request)
        if isinstance(response, ErrorData):
            refused = response
            questions.cancel_scope.cancel("another question was refused")
        else:
            answers[key] = response

    async with trio.open_nursery(strict_exception_groups=True) as questions:
        for number, (key, request) in enumerate(requests.items(), 1):
            questions.start_soon(answer, key, request)
            if number % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()  # raises if one of them was refused, which has cancelled all
    if refused is not None:
        raise MCPError.from_error_data(refused)
    return answers
