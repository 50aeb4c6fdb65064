"""The model of LangChain that a test plays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from .frameworks import words_of


class LangChainModel(GenericFakeChatModel):
    """LangChain's own fake model, which is offered tools and thinks."""

    messages: Any = iter(())
    think: Any
    offered: tuple[str, ...] = ()

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.model_copy(update={"offered": tuple(tool.name for tool in tools)})

    async def _agenerate(self, messages: list[Any], *args: Any, **kwargs: Any) -> Any:
        heard = [words_of(message.content) for message in messages if isinstance(message, ToolMessage)]
        thought = await self.think(len(heard) + 1, list(self.offered), heard)
        calls = [] if isinstance(thought, str) else [{"name": thought[0], "args": thought[1], "id": str(len(heard))}]
        self.messages = iter([AIMessage(thought if isinstance(thought, str) else "", tool_calls=calls)])
        return self._generate(messages)
