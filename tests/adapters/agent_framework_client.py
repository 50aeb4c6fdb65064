"""A chat client of Agent Framework that a test plays; imported if that is installed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent_framework import (
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
)


class PlayedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A client whose model thinks as in `tests.adapters.frameworks`, also in a stream.

    Attributes:
        instructions: those of each turn.
    """

    def __init__(self, think: Callable[[int, list[str], list[str]], Awaitable[Any]], *, details: bool = True) -> None:
        super().__init__(function_invocation_configuration={"include_detailed_errors": details})
        self.think = think
        self.instructions: list[str | None] = []
        self.turn = 0

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Any:
        async def answer() -> list[Content]:
            self.turn += 1
            self.instructions.append(options.get("instructions"))
            heard = [
                " ".join(filter(None, [each.result, *(item.uri for item in each.items or ())]))
                for message in messages
                for each in message.contents
                if each.type == "function_result"
            ]
            thought = await self.think(self.turn, [tool.name for tool in options.get("tools") or ()], heard)
            if isinstance(thought, str):
                return [Content.from_text(thought)]
            return [Content.from_function_call(f"c{self.turn}", thought[0], arguments=thought[1])]

        async def whole() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", await answer())])

        async def pieces() -> Any:
            for content in await answer():
                yield ChatResponseUpdate(role="assistant", contents=[content])

        return self._build_response_stream(pieces()) if stream else whole()
