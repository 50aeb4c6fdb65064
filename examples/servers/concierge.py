"""A concierge: a small MCP server over stdio that asks back, for the examples."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

from mcp import MCPDeprecationWarning
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, ListRoots, Resolve, Sample
from mcp.types import (
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

# The protocol deprecated server logs on 2026-07-28.
warnings.simplefilter("ignore", MCPDeprecationWarning)

concierge = MCPServer("concierge", version="1.0", log_level="WARNING")


class Table(BaseModel):
    """The details of a booking."""

    guests: int
    outside: bool = False


def ask_for_table(restaurant: str) -> Elicit[Table]:
    """Ask the user, in a form."""
    return Elicit(f"A table at {restaurant}: for how many?", Table)


def ask_for_words(guest: str) -> Sample:
    """Ask the client's model."""
    question = TextContent(type="text", text=f"Welcome {guest} in one sentence.")
    return Sample(
        [SamplingMessage(role="user", content=question)],
        max_tokens=50,
        temperature=0.5,
        stop_sequences=["\n"],
    )


def ask_for_folders() -> ListRoots:
    """Ask the client where to look."""
    return ListRoots()


@concierge.tool()
async def book(
    restaurant: str, table: Annotated[Table, Resolve(ask_for_table)], ctx: Context[Any]
) -> str:
    """Book a table."""
    await ctx.info(f"booking at {restaurant}")
    return f"booked for {table.guests} {'outside' if table.outside else 'inside'}"


@concierge.tool()
async def pay(ctx: Context[Any]) -> str | InputRequiredResult:
    """Have the user pay, on a page of the bank."""
    page = ElicitRequestURLParams(
        message="Please pay 20 €.", url="https://bank.example/pay/1", elicitation_id="1"
    )
    answer = (ctx.input_responses or {}).get("payment")
    if not isinstance(answer, ElicitResult):
        return InputRequiredResult(
            input_requests={"payment": ElicitRequest(params=page)}
        )
    return "paid" if answer.action == "accept" else "not paid"


@concierge.tool()
async def welcome(
    guest: str, words: Annotated[CreateMessageResult, Resolve(ask_for_words)]
) -> str:
    """Have the client's model welcome a guest."""
    return words.content.text if isinstance(words.content, TextContent) else "Welcome."


@concierge.tool()
async def where(folders: Annotated[ListRootsResult, Resolve(ask_for_folders)]) -> str:
    """Say where luggage may be put."""
    return ", ".join(str(root.uri) for root in folders.roots)


if __name__ == "__main__":
    concierge.run()
