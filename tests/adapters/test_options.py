"""Each option of each framework's own class is carried out, or refused with the remedy."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_actors import adapters
from mcp_actors.adapters._offer import CARRIED_OUT
from mcp_actors.bridge import open_servers

from ..messages import Said


def parameters_of(*paths: str) -> Iterator[str]:
    """The options of classes that can be imported."""
    for path in paths:
        module, _, name = path.rpartition(".")
        for each in inspect.signature(getattr(importlib.import_module(module), name)).parameters.values():
            if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                yield each.name


def written_in(module: str) -> Iterator[str]:
    """The options of the classes of a module that cannot be imported without what this package does not need."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for kind in ast.parse(Path(spec.origin).read_text()).body:
        if isinstance(kind, ast.ClassDef) and kind.name.startswith("MCP") and not kind.name.endswith("Error"):
            for method in kind.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    yield from (each.arg for each in (*method.args.args, *method.args.kwonlyargs))


ADAPTERS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "OpenAIAgentsServer": (
        "agents",
        lambda: parameters_of(
            *(f"agents.mcp.{name}" for name in dir(importlib.import_module("agents.mcp")) if is_server(name))
        ),
    ),
    "PydanticAIToolset": ("pydantic_ai", lambda: written_in("pydantic_ai.mcp")),
    "AgentFrameworkProvider": (
        "agent_framework",
        lambda: parameters_of(*(f"agent_framework.MCP{each}Tool" for each in ("Stdio", "StreamableHTTP", "Websocket"))),
    ),
}


def is_server(name: str) -> bool:
    kind = getattr(importlib.import_module("agents.mcp"), name)
    return inspect.isclass(kind) and issubclass(kind, importlib.import_module("agents.mcp").MCPServer)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_new_version_of_a_framework_has_no_option_that_the_table_lacks(adapter: str) -> None:
    """D-02. Those that are carried out are arguments of the adapter, or, if it takes any, options of its base class."""
    framework, options = ADAPTERS[adapter]
    pytest.importorskip(framework)
    kind = getattr(adapters, adapter)
    module = vars(importlib.import_module(f"mcp_actors.adapters._{framework_file(adapter)}"))
    [table] = (value for name, value in module.items() if name.endswith("_OPTIONS"))
    theirs = set(options()) - {"self"}
    assert len(theirs) > 5
    listed = [name for names in table.values() for name in names.split()]
    assert sorted(theirs) == sorted(listed)
    parameters = inspect.signature(kind).parameters
    if all(each.kind is not each.VAR_KEYWORD for each in parameters.values()):
        assert set(table.get(CARRIED_OUT, "").split()) <= parameters.keys()


def framework_file(adapter: str) -> str:
    return {
        "OpenAIAgentsServer": "openai_agents",
        "PydanticAIToolset": "pydantic_ai",
        "AgentFrameworkProvider": "agent_framework",
    }[adapter]


@pytest.mark.parametrize(
    "row",
    [
        "OpenAIAgentsServer: tool_filter",
        "OpenAIAgentsServer: require_aproval",
        "OpenAIAgentsServer: quite_new",
        "PydanticAIToolset: elicitation_handler",
        "PydanticAIToolset: process_tool_calls",
        "AgentFrameworkProvider: approval_mode",
        "AgentFrameworkProvider: allowed_tools",
    ],
)
def test_an_option_that_is_not_carried_out_is_refused_with_the_remedy(row: str, said: Said) -> None:
    """D-02."""
    adapter, _, option = row.partition(": ")
    pytest.importorskip(ADAPTERS[adapter][0])

    async def main() -> None:
        async with open_servers() as servers:
            options: dict[str, Any] = {option: None}
            with pytest.raises(TypeError) as caught:
                getattr(adapters, adapter)(servers, **options)
            said(row, str(caught.value))

    asyncio.run(main())
