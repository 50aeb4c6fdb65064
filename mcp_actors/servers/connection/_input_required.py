"""What a server asks back before it answers.

Since 2026-07-28 a server that needs something of its client for an answer (a model's words, a person's, the roots)
says so in place of the answer, and is asked again with what it wanted. The SDK does these rounds, with the callbacks
that the user has configured. What is here is what the SDK leaves open: an error that says who did what when the rounds
do not end, or nobody can answer; and while a person thinks, nobody waits for progress of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp.types import CreateMessageRequest, ElicitRequest, ErrorData, ListRootsRequest

from ..._errors import LimitExceeded, NotSupported
from ..basics import current_trace

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import ClientRequestContext
    from mcp.types import InputRequest, InputResponse

__all__ = ["MAX_ROUNDS", "attend_to_questions", "too_many_rounds"]

MAX_ROUNDS: Final = 10
"""How often a server may ask back for one answer; what the SDKs of all languages have as their default."""

_KINDS: Final = {CreateMessageRequest: "sampling", ElicitRequest: "elicitation", ListRootsRequest: "roots"}


def attend_to_questions(client: Client, server: str) -> None:
    """Be there when a server asks back. To be done once, before the first request."""
    session = client.session
    answer = session.dispatch_input_request

    async def attend(ctx: ClientRequestContext, request: InputRequest) -> InputResponse | ErrorData:
        trace = current_trace()
        with trace.asked_back():
            response = await answer(ctx, request)
        kind = _KINDS[type(request)]
        if isinstance(response, ErrorData) and kind not in _answered(client) and trace.deadline is not None:
            trace.failure = _not_offered(server, trace.deadline.operation, kind)
        return response

    # A public method, through which the SDK sends every question.
    session.dispatch_input_request = attend  # type: ignore[method-assign]  # that is what is meant


def _answered(client: Client) -> set[str]:
    """What there are callbacks for."""
    callbacks = {
        "sampling": client.sampling_callback,
        "elicitation": client.elicitation_callback,
        "roots": client.list_roots_callback,
    }
    return {kind for kind, callback in callbacks.items() if callback is not None}


def _not_offered(server: str, operation: str, kind: str) -> NotSupported:
    return NotSupported(
        f"server {server!r}: {operation}: it asks for {kind}, for which there is no callback, so that it was not "
        f"offered; give the server callbacks=Callbacks({kind}=…), or do without this request",
        server=server,
        capability=kind,
    )


def too_many_rounds(server: str, operation: str) -> LimitExceeded:
    """The error for a server that asks back again and again."""
    return LimitExceeded(
        f"server {server!r}: {operation}: it asked back {MAX_ROUNDS} times and still has no answer; it may have acted "
        "on the request, and has to be mended",
        server=server,
    )
