"""A server that sends requests: to the user in a form and through a URL, to a model, and for folders; and that logs.

The server is `servers/concierge.py`. A function plays the model, and the answers of the user are constants.

Prints::

    concierge asks: A table at Chez Nous: for how many? (guests) booked for 2 inside
    concierge wants you to visit https://bank.example/pay/1: Please pay 20 €.
    paid
    a model is asked for at most 50 tokens: Welcome Mary in one sentence.
    Welcome, Mary!
    the stranger may not ask a model: Client did not declare the sampling capability ...
    file:///srv/luggage
    concierge has logged: booking at Chez Nous
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import trio
from mcp import MCPError
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

CONCIERGE = Stdio(
    sys.executable, [str(Path(__file__).parent / "servers" / "concierge.py")]
)


async def ask_user(
    context: CallbackContext, params: ElicitRequestParams
) -> ElicitResult:
    """Show the question with the name of the server; open no URL unseen."""
    if isinstance(params, ElicitRequestFormParams):
        fields = ", ".join(params.requested_schema["required"])
        prompt = f"{context.server} asks: {params.message} ({fields}) "
        line = await trio.to_thread.run_sync(input, prompt, abandon_on_cancel=True)
        return ElicitResult(action="accept", content={"guests": int(line)})
    print(f"{context.server} wants you to visit {params.url}: {params.message}")
    # Offer a button for "decline" as well; "cancel" means that the window was closed.
    return ElicitResult(action="accept")


async def ask_model(
    context: CallbackContext, params: CreateMessageRequestParams
) -> CreateMessageResult:
    """Ask a model for a text; a person should be able to see it first."""
    [message] = params.messages
    assert isinstance(message.content, TextContent)
    limit = f"at most {params.max_tokens} tokens"
    print(f"a model is asked for {limit}: {message.content.text}")
    answer = TextContent(type="text", text="Welcome, Mary!")
    return CreateMessageResult(
        role="assistant", content=answer, model="fake-1", stop_reason="endTurn"
    )


async def folders(context: CallbackContext) -> ListRootsResult:
    """Say where a server may look."""
    return ListRootsResult(
        roots=[Root(uri=FileUrl("file:///srv/luggage"), name="luggage")]
    )


class Log(list[str]):
    """Keep the log messages of servers, which arrive concurrently."""

    async def __call__(
        self, context: CallbackContext, params: LoggingMessageNotificationParams
    ) -> None:
        """Keep one message."""
        self.append(f"{context.server} has logged: {params.data}")


async def main() -> None:
    """Call tools that ask back."""
    log = Log()
    callbacks = Callbacks(
        sampling=ask_model, elicitation=ask_user, roots=folders, logging=log
    )
    stranger = ServerConfig("stranger", CONCIERGE, callbacks=Callbacks(sampling=False))
    async with open_servers(
        ServerConfig("concierge", CONCIERGE), stranger, strict=True, callbacks=callbacks
    ) as servers:
        concierge = servers["concierge"]
        print(
            result_value(await concierge.call_tool("book", {"restaurant": "Chez Nous"}))
        )
        print(result_value(await concierge.call_tool("pay")))
        print(result_value(await concierge.call_tool("welcome", {"guest": "Mary"})))
        try:
            await servers["stranger"].call_tool("welcome", {"guest": "Mary"})
        except MCPError as error:
            print("the stranger may not ask a model:", error)
        print(result_value(await concierge.call_tool("where")))
    print(*log, sep="\n")


sys.stdin = io.StringIO("2\n")
trio.run(main)
