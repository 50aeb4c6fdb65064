"""A server that asks back: the user in a form and by a URL, a model, and which folders it may look at; and that logs.

The server is `servers/concierge.py`. The user and the model are played by functions here.

Prints::

    concierge asks: A table at Chez Nous: for how many? (guests, outside)
    booked for 2 inside
    concierge wants you to visit https://bank.example/pay/1: Please pay 20 €.
    paid
    a model is asked for at most 50 tokens: Welcome Mary in one sentence.
    Welcome, Mary!
    file:///srv/luggage
    concierge has logged: booking at Chez Nous
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio
import trio.lowlevel
from mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    TextContent,
)
from pydantic import FileUrl

from mcp_actors import Callbacks, ServerConfig, Stdio, open_servers, result_value
from mcp_actors.config import CallbackContext

CONCIERGE = Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "concierge.py")])


async def ask_user(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
    """Show what a server wants to know, always with its name; and never open a URL that the user did not see."""
    if isinstance(params, ElicitRequestFormParams):
        print(f"{context.server} asks: {params.message} ({', '.join(params.requested_schema['properties'])})")
        await trio.lowlevel.checkpoint()  # here the user fills in the form
        return ElicitResult(action="accept", content={"guests": 2})
    print(f"{context.server} wants you to visit {params.url}: {params.message}")
    return ElicitResult(action="accept")  # "decline" is a button too, and "cancel" is closing the window


async def ask_model(context: CallbackContext, params: CreateMessageRequestParams) -> CreateMessageResult:
    """Have a model write something; a person should be able to look at it first."""
    [message] = params.messages
    assert isinstance(message.content, TextContent)
    print(f"a model is asked for at most {params.max_tokens} tokens: {message.content.text}")
    answer = TextContent(type="text", text="Welcome, Mary!")
    return CreateMessageResult(role="assistant", content=answer, model="fake-1", stop_reason="endTurn")


async def folders(context: CallbackContext) -> ListRootsResult:
    """Say where a server may look."""
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///srv/luggage"), name="luggage")])


class Log(list[str]):
    """Keeps what servers log. They are heard beside everything else, so in a moment of their own."""

    async def __call__(self, context: CallbackContext, params: LoggingMessageNotificationParams) -> None:
        """Hear of one message."""
        self.append(f"{context.server} has logged: {params.data}")


async def main() -> None:
    """Call tools that ask back."""
    log = Log()
    callbacks = Callbacks(sampling=ask_model, elicitation=ask_user, roots=folders, logging=log)
    config = ServerConfig("concierge", CONCIERGE, required=True, request_timeout=600)
    async with open_servers(config, callbacks=callbacks) as servers:
        concierge = servers["concierge"]
        print(result_value(await concierge.call_tool("book", {"restaurant": "Chez Nous"})))
        print(result_value(await concierge.call_tool("pay")))
        print(result_value(await concierge.call_tool("welcome", {"guest": "Mary"})))
        print(result_value(await concierge.call_tool("where")))
    print(*log, sep="\n")


trio.run(main)
