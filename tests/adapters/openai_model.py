"""The model of the OpenAI Agents SDK that a test plays."""

from __future__ import annotations

import json
from typing import Any

import agents
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from .frameworks import Think, words_of


class OpenAIModel(Model):
    """The model of a run."""

    def __init__(self, think: Think) -> None:
        self.think = think
        self.turn = 0

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002 - the framework calls it so
        model_settings: Any,
        tools: Any,
        *rest: Any,
        **kwargs: Any,
    ) -> agents.ModelResponse:
        self.turn += 1
        heard = [words_of(item["output"]) for item in input if item.get("type") == "function_call_output"]
        thought = await self.think(self.turn, [tool.name for tool in tools], heard)
        output: Any
        if isinstance(thought, str):
            words = ResponseOutputText(text=thought, type="output_text", annotations=[])
            output = ResponseOutputMessage(
                id="m", content=[words], role="assistant", status="completed", type="message"
            )
        else:
            name, arguments = thought
            output = ResponseFunctionToolCall(
                arguments=json.dumps(arguments), call_id=f"c{self.turn}", name=name, type="function_call"
            )
        return agents.ModelResponse(output=[output], usage=agents.Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError
