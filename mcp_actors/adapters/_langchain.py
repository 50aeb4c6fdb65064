"""Offer the tools of a group to LangChain.

LangChain's tools swallow an argument ``config``; tools made here pass all arguments to the server. This file needs only
``langchain_core``; ``_langchain_middleware`` needs all of LangChain.

Owns: nothing.
Writes: requests to servers.
Calls: bridge, config, _offer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from langchain_core.tools import StructuredTool, ToolException
from mcp import MCPError

from .._errors import McpActorsError, ServerUnavailable
from ..bridge import AsyncioServerGroup
from ..config import ToolContext
from ._offer import Offer, binary_of, failure_text, parts_of

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from ..catalog import CatalogTool

_Content: TypeAlias = "str | list[dict[str, Any]]"


async def langchain_tools(
    group: AsyncioServerGroup,
    *,
    servers: Iterable[str] | None = None,
    context: ToolContext | None = None,
    tool_cache: bool = True,
    handle_tool_error: bool | str | Callable[[ToolException], Any] = False,
) -> list[StructuredTool]:
    """Return the current tools of a group as tools of LangChain, under their public names.

    An agent's loop may call this function at each turn; with ``tool_cache`` it sends no request. For an agent that is
    built once, use a `LangChainMiddleware`.

    The message of a tool holds a text, or a list of blocks if the result has several parts or is not text. Structured
    content becomes a text, unless another text says the same. The artifact is the whole result, as on the wire. A tool
    that reports a failure raises ``ToolException``. Errors of the call (`McpActorsError`, `mcp.MCPError`) are raised
    unchanged, or, with ``handle_tool_error``, become the cause of a ``ToolException``.

    **Cancellation** of a tool cancels its call, at the server too, and is raised. The tools are awaited; a synchronous
    ``invoke`` is refused. A pickled tool can be read and shown to a model, but not called.

    Args:
        group: from `mcp_actors.bridge.open_servers`; the tools do not own the group.
        servers: the names of the servers to offer. Default None: all.
        context: the agent and run, for the predicates of `ToolFilter`. Default None: unknown.
        tool_cache: with False, tools are listed anew, for servers that do not notify changes. Default True.
        handle_tool_error: how LangChain handles a ``ToolException``. Default False: raised.

    Raises:
        ConfigError: a server's ToolFilter has a predicate, and there is no context.
        ServerUnavailable: the block of the group has exited.
        TypeError: `group` is not a group of the bridge.
        KeyError: the group has no such server.
    """
    offer = Offer.of(group, servers, tool_cache=tool_cache)
    return [tool_of(offer, tool, handle_tool_error) for tool in await offer.tools(context)]


def tool_of(offer: Offer, tool: CatalogTool, handle_tool_error: Any) -> StructuredTool:
    async def call(arguments: dict[str, Any]) -> Any:
        return await offer.call(tool.public_name, arguments)

    return _GroupTool(
        name=tool.public_name,
        description=tool.description or tool.title or tool.name,
        args_schema={"type": "object", "properties": {}, **copy.deepcopy(dict(tool.input_schema))},
        coroutine=call,
        response_format="content_and_artifact",
        handle_tool_error=handle_tool_error,
        metadata={"mcp_server": tool.server, "mcp_tool": tool.name, "mcp_annotations": copy.deepcopy(tool.annotations)},
    )


class _GroupTool(StructuredTool):
    """Takes all arguments: LangChain's own tool would keep some (``config``)."""

    def __getstate__(self) -> dict[Any, Any]:
        """Pickle all but the connection."""
        state = super().__getstate__()
        return {**state, "__dict__": {**state["__dict__"], "coroutine": partial(_call_copy, self.name)}}

    def _run(self, /, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"tool {self.name!r} is async; await its ainvoke(…), or that of its agent")

    async def _arun(self, /, **arguments: Any) -> tuple[_Content, dict[str, Any]]:
        try:
            result = await self.coroutine(arguments)
        except (McpActorsError, MCPError) as exc:
            if not self.handle_tool_error:
                raise
            raise ToolException(str(exc)) from exc
        if result.is_error:
            raise ToolException(failure_text(result))
        return _content(result), result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def _call_copy(name: str, _: dict[str, Any]) -> NoReturn:
    problem = f"tool {name!r} was pickled, and a pickle has no connection; get the tool again by langchain_tools(group)"
    raise ServerUnavailable(problem, server="*", state="stopped", outcome="not_sent")


# --- Results ----------------------------------------------------------------------------------------------------------


def _content(result: CallToolResult) -> _Content:
    blocks = [_block(part) for part in parts_of(result)]
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return str(blocks[0]["text"])
    return blocks


def _block(part: Any) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    data, mime_type = binary_of(part)
    # A message of a tool has no blocks of the type "audio": they would become text.
    return {"type": "image" if mime_type.startswith("image/") else "file", "base64": data, "mime_type": mime_type}
