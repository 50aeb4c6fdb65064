"""Offer a group to Pydantic AI as a toolset.

Pydantic AI records the tool calls of a `DynamicToolset`, such as `PydanticAIToolset`, as steps of a durable workflow.
After a crash the workflow runs again, but does not repeat recorded calls.

Owns: nothing.
Writes: requests to servers.
Calls: bridge, catalog, _offer.
"""

from __future__ import annotations

import base64
import copy
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Never, NoReturn, Protocol, TypeAlias

import pydantic_core
from mcp import MCPError
from pydantic_ai import BinaryContent, ModelRetry, RunContext, ToolDefinition
from pydantic_ai.durable_exec import DurableRunContext
from pydantic_ai.exceptions import ToolFailed as ToolFailedForModel, UserError
from pydantic_ai.messages import InstructionPart, ToolReturn
from pydantic_ai.toolsets import DynamicToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from .._errors import InvalidArguments, ServerError, ToolFailed, ToolNotFound
from ..bridge import AsyncioServerGroup
from ..catalog import unwrapped
from ._offer import (
    CARRIED_OUT,
    Offer,
    binary_of,
    check_options,
    context_of,
    failure_text,
    meta_of,
    parts_of,
)

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from ..catalog import CatalogTool

_Behavior: TypeAlias = Literal["retry", "failed", "error"]
_BEHAVIORS: Final = ("retry", "failed", "error")

_ANY_ARGUMENTS: Final = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""Accepts all arguments: a call checks them against the tool's own schema."""

# Remedy → the refused options of `pydantic_ai.mcp.MCPToolset`; `CARRIED_OUT` → the supported options.
MCP_TOOLSET_OPTIONS: Final = {
    CARRIED_OUT: "id max_retries tool_error_behavior process_tool_call include_instructions include_return_schema",
    "give it to open_servers()": "client client_info",
    "give it to Http(…)": "headers auth verify http_client",
    "set ServerConfig(connect_timeout=…, request_timeout=…)": "init_timeout read_timeout",
    "set tool_cache, or ServerConfig(keep_resources=True)": "cache_tools cache_resources",
    "set Callbacks": "sampling_model sampling_handler elicitation_handler log_handler log_level message_handler roots",
    "set call_tool(progress=…)": "progress_handler",
    "leave it out": "cache_prompts prefer_tasks",
}


class CallToolFn(Protocol):
    """The function by which a `ToolCallHook` calls a tool."""

    def __call__(
        self, name: str, args: dict[str, Any], *, metadata: dict[str, Any] | None = None
    ) -> Awaitable[Any]: ...


ToolCallHook: TypeAlias = Callable[[RunContext[Any], CallToolFn, str, dict[str, Any]], Awaitable[Any]]
"""The type of ``process_tool_call``; any ``pydantic_ai.mcp.ProcessToolCallback`` is one."""


# Pydantic AI turns calls into steps for three classes of toolsets only. Of the three, `DynamicToolset` needs no
# dependency of ``pydantic_ai.mcp``.
class PydanticAIToolset(DynamicToolset[Any]):
    """A group of servers, for ``Agent(toolsets=[…])`` of Pydantic AI.

    The tools are those of the group at each step of a run, under their public names; the predicate of a `ToolFilter`
    gets the agent and the ``RunContext``. Agents and runs may share a toolset. It owns no connection: entering and
    leaving do nothing.

    Results are those of ``pydantic_ai.mcp.MCPToolset``: structured content if the rest is only text, otherwise text,
    ``BinaryContent`` and so on. But structured content is kept next to other parts, a link is a dict, an empty result
    becomes a text, and ``_meta`` becomes the ``metadata`` of a ``ToolReturn``.

    **Cancellation** of a run cancels its calls, at the server too; the model gets no result.

    Args:
        group: from `mcp_actors.bridge.open_servers`.
        servers: the names of the servers to offer. Default None: all.
        tool_cache: False lists tools at each turn, for servers that do not notify changes. Default True uses the last
            lists.
        include_instructions: True adds the instructions of the servers to the agent's (see `server_instructions`).
            Trust the servers. With an ``id``, changes are appended, so a provider's cache stays valid. Default False.
        include_return_schema: True shows the model the ``outputSchema`` of tools; False never does. Default None: as
            Pydantic AI's capability ``IncludeToolReturnSchemas`` has it.
        process_tool_call: ``async (context, call_tool, name, arguments)``, called once instead of a tool, with the
            ``RunContext`` of the run and the public name of the tool; returns the tool's result. ``await
            call_tool(name, arguments, metadata=…)`` calls the tool, perhaps with other arguments; ``metadata`` is the
            request's ``_meta``. Raise ``ModelRetry`` or ``pydantic_ai.ToolFailed`` to refuse. Default None: the tool is
            called.
        id: the toolset's id, unique within an agent. An agent with ``DBOSDurability``, ``PrefectDurability`` or
            ``TemporalDurability`` needs an id; then a recovery does not repeat a call whose result was recorded. The
            code of a workflow of DBOS or Temporal, or of a ``PrefectAgent`` if the toolset has no id, is not offered
            the tools, because a recovery would repeat the calls. Default None.
        max_retries: how often the model may try a call again after a ``ModelRetry``. Default None: as the agent has it.
        tool_error_behavior: the reaction to a tool that reports a failure. ``"retry"`` (default): ``ModelRetry``, so
            the model may do better. ``"failed"``: ``pydantic_ai.ToolFailed``, so the model knows, and no retry is
            counted. ``"error"``: `mcp_actors.ToolFailed`, which ends the run. A refused call (`mcp.MCPError`,
            `InvalidArguments`, `ToolNotFound`) is raised with ``"error"``, and otherwise becomes a ``ModelRetry``.
        server_error_behavior: the reaction to a server that does not answer: `RequestTimedOut`, `ConnectionLost`,
            `ServerUnavailable` and any other `ServerError`. Default ``"error"``: raised.

    Raises:
        TypeError: `group` is not a group of the bridge, or an option of ``MCPToolset`` is not supported here.
        ValueError: a behavior does not exist.
        KeyError: the group has no such server.
    """

    def __init__(
        self,
        group: AsyncioServerGroup,
        *,
        servers: Iterable[str] | None = None,
        tool_cache: bool = True,
        include_instructions: bool = False,
        include_return_schema: bool | None = None,
        process_tool_call: ToolCallHook | None = None,
        id: str | None = None,
        max_retries: int | None = None,
        tool_error_behavior: _Behavior = "retry",
        server_error_behavior: _Behavior = "error",
        **others: Never,
    ) -> None:
        check_options(PydanticAIToolset, MCP_TOOLSET_OPTIONS, others)
        behaviors = {"tool_error_behavior": tool_error_behavior, "server_error_behavior": server_error_behavior}
        for name, value in behaviors.items():
            if value not in _BEHAVIORS:
                known = ", ".join(map(repr, _BEHAVIORS))
                raise ValueError(f"PydanticAIToolset: {name}={value!r} is not valid; give one of {known}")
        super().__init__(_itself, id=id)
        self._offer = Offer.of(group, servers, tool_cache=tool_cache)
        self._include_instructions = include_instructions
        self._include_return_schema = include_return_schema
        self._process_tool_call = process_tool_call
        self._max_retries = max_retries
        self._on_tool_error = tool_error_behavior
        self._on_server_error = server_error_behavior

    def __eq__(self, other: object) -> bool:
        return self is other  # a `DynamicToolset` compares factories and ids

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<PydanticAIToolset {self._offer!r}>"

    async def for_run(self, ctx: RunContext[Any]) -> PydanticAIToolset:
        """Return this toolset, which any number of runs may use."""
        return self

    async def for_run_step(self, ctx: RunContext[Any]) -> PydanticAIToolset:
        """Return this toolset; see `for_run`."""
        return self

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools to offer to an agent now.

        Raises:
            ServerUnavailable: the block of the group has exited.
            UserError: this is the code of a durable workflow and not a step.
        """
        _check_step()
        tools = await self._offer.tools(context_of(ctx.agent, ctx))
        return {tool.public_name: self._tool(_definition(tool, self._include_return_schema), ctx) for tool in tools}

    async def get_tool_for_tool_def(self, tool_def: ToolDefinition, ctx: RunContext[Any]) -> ToolsetTool[Any]:
        """Return the tool of a definition that `get_tools` has returned, perhaps in another process."""
        return self._tool(tool_def, ctx)

    def _tool(self, definition: ToolDefinition, ctx: RunContext[Any]) -> ToolsetTool[Any]:
        retries = ctx.max_retries if self._max_retries is None else self._max_retries
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=retries, args_validator=_ANY_ARGUMENTS)

    async def get_instructions(self, ctx: RunContext[Any]) -> InstructionPart | None:
        """With ``include_instructions``, return the instructions of the servers whose tools are offered now."""
        if not self._include_instructions:
            return None
        text = self._offer.instructions(await self._offer.known_tools(context_of(ctx.agent, ctx)))
        if self._id is not None:  # an empty part withdraws earlier instructions
            return InstructionPart(text, on_change="append")
        return InstructionPart(text, dynamic=True) if text else None

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool by its public name, like `mcp_actors.ServerGroup.call_tool`, through ``process_tool_call``.

        Raises:
            ModelRetry: the tool failed, or the call was refused.
            UserError: this is the second attempt of an activity of Temporal.
            Exception: see ``tool_error_behavior`` and ``server_error_behavior``; or ``process_tool_call`` raised it.
        """
        # Temporal repeats an activity after the death of its worker, or a failure, until the activity succeeds.
        temporal = sys.modules.get("temporalio.activity")
        if temporal and isinstance(ctx, DurableRunContext) and temporal.in_activity() and temporal.info().attempt > 1:
            problem = f"tool {name!r} is not called again: an earlier attempt of this activity may have executed it"
            raise UserError(f"{problem}; to see why that failed, set RetryPolicy(maximum_attempts=1)")
        if self._process_tool_call is not None:
            return await self._process_tool_call(ctx, self._call, name, tool_args)
        return await self._call(name, tool_args)

    async def _call(self, name: str, args: dict[str, Any], *, metadata: dict[str, Any] | None = None) -> Any:
        try:
            result = await self._offer.call(name, args, meta=metadata)
        except (MCPError, InvalidArguments, ToolNotFound) as exc:
            if self._on_tool_error == "error":
                raise
            raise ModelRetry(str(exc)) from exc
        except ServerError as exc:
            _raise_as(str(exc), self._on_server_error, exc)
        if result.is_error:
            message = failure_text(result, f"tool {name!r} failed and gave no reason")
            failure = ToolFailed(f"tool {name!r} failed: {message!r}", result=result)
            _raise_as(message, self._on_tool_error, failure)
        return _value(result)


def _itself(ctx: RunContext[Any]) -> None:
    """Serve as the required factory of a `DynamicToolset`; never called."""


def _check_step() -> None:
    """Refuse to offer tools in the code of a durable workflow, which a recovery runs again.

    The check is for the deprecated ``DBOSAgent`` and ``PrefectAgent``, and for an agent without a capability; Pydantic
    AI itself handles other agents. In a flow of Prefect, an agent without a capability is ordinary code, so flows count
    only if Pydantic AI's integration is loaded.
    """
    dbos, temporal = sys.modules.get("dbos"), sys.modules.get("temporalio.workflow")
    prefect = sys.modules.get("prefect.context") if "pydantic_ai.durable_exec.prefect" in sys.modules else None
    if dbos and dbos.DBOS.workflow_id is not None and dbos.DBOS.step_id is None:
        engine, step = "DBOS", "a step"
    elif temporal and temporal.in_workflow():
        engine, step = "Temporal", "an activity"
    elif prefect and prefect.FlowRunContext.get() and not prefect.TaskRunContext.get():
        engine, step = "Prefect", "a task"
    else:
        return
    problem = f"a recovery of this workflow of {engine} would execute the tools again"
    remedy = f"give the toolset an id and the agent the capability {engine}Durability, or run the agent in {step}"
    raise UserError(f"PydanticAIToolset: {problem}; {remedy}")


def _raise_as(message: str, behavior: _Behavior, failure: Exception) -> NoReturn:
    """Raise a failure, unchanged or as an exception that Pydantic AI shows to the model."""
    match behavior:
        case "retry":
            raise ModelRetry(message) from failure
        case "failed":
            raise ToolFailedForModel(message) from failure
        case "error":
            raise failure


def _definition(tool: CatalogTool, include_return_schema: bool | None) -> ToolDefinition:
    """Return the definition of a tool, with the metadata of ``MCPToolset``, which filters read."""
    return ToolDefinition(
        name=tool.public_name,
        description=tool.description,
        parameters_json_schema=copy.deepcopy(dict(tool.input_schema)),
        return_schema=None if tool.output_schema is None else copy.deepcopy(dict(tool.output_schema)),
        include_return_schema=include_return_schema,
        # `task` is False as in ``MCPToolset`` with the SDK 2.x: since 2026-07-28 the server begins a task.
        metadata={"meta": copy.deepcopy(tool.meta), "annotations": copy.deepcopy(tool.annotations), "task": False},
    )


# --- Results ----------------------------------------------------------------------------------------------------------


def _value(result: CallToolResult) -> Any:
    structured = result.structured_content
    if structured is not None and all(part.type == "text" for part in result.content):
        value = unwrapped(structured)
    else:
        values = [_part(part) for part in parts_of(result)]
        value = values[0] if len(values) == 1 else values
    return ToolReturn(value, metadata=meta) if (meta := meta_of(result)) else value


def _part(part: Any) -> Any:
    if part.type == "text":
        return _text(part.text)
    data, media_type = binary_of(part)
    return BinaryContent.narrow_type(BinaryContent(base64.b64decode(data), media_type=media_type))


def _text(text: str) -> Any:
    if text.startswith(("[", "{")):
        with suppress(ValueError):
            return pydantic_core.from_json(text)
    return text
