"""A tool with an effect and a model that calls it once, for the programs of durable execution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from mcp_actors import InProcess, ServerConfig

PAY = "mcp__bank__pay"


class Bank:
    """A server whose ledger is a file, which outlives the program."""

    def __init__(self, folder: Path) -> None:
        self._ledger = folder / "ledger"
        server: Any = MCPServer("bank")
        server.tool()(self.pay)
        self.config = ServerConfig("bank", InProcess(server))

    def pay(self, amount: int) -> str:
        with self._ledger.open("a") as ledger:
            ledger.write(f"{amount}\n")
        return f"paid {amount}"

    def paid(self) -> list[str]:
        return self._ledger.read_text().split() if self._ledger.exists() else []


def payer(after: Callable[[], object] = lambda: None) -> FunctionModel:
    """Return a model that pays 5 and repeats the result; `after` is called in between."""

    async def think(messages: Any, info: Any) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart(PAY, {"amount": 5})])
        after()
        return ModelResponse(parts=[TextPart(messages[-1].parts[0].content)])

    return FunctionModel(think)


async def outcome(run: Any) -> str:
    """Return the outcome of a run, in words."""
    try:
        result = await run
        return str(getattr(result, "output", result))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
