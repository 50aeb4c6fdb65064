"""Offer the servers of a group to agent frameworks.

This file only gathers the public names, and imports an adapter, with its framework, at first use. Adapters use a
group of the bridge, and do not own the group. Each framework is an extra: ``pip install 'mcp-actors[openai-agents]'``.
`McpClient` and `server_instructions` need no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .._exports import publish

if TYPE_CHECKING:
    from mcp_actors.adapters._agent_framework import AgentFrameworkProvider as AgentFrameworkProvider
    from mcp_actors.adapters._langchain import langchain_tools as langchain_tools
    from mcp_actors.adapters._langchain_middleware import LangChainMiddleware as LangChainMiddleware
    from mcp_actors.adapters._openai_agents import OpenAIAgentsServer as OpenAIAgentsServer
    from mcp_actors.adapters._pydantic_ai import PydanticAIToolset as PydanticAIToolset

    from ._offer import McpClient as McpClient, server_instructions as server_instructions

__all__ = [
    "AgentFrameworkProvider",
    "LangChainMiddleware",
    "McpClient",
    "OpenAIAgentsServer",
    "PydanticAIToolset",
    "langchain_tools",
    "server_instructions",
]

_ADAPTER_HOMES: Final = {
    "AgentFrameworkProvider": ("_agent_framework", "agent_framework", "mcp-actors[agent-framework]"),
    "LangChainMiddleware": ("_langchain_middleware", "langchain", "mcp-actors[langchain]"),
    "McpClient": ("_offer", "mcp", "mcp-actors"),
    "OpenAIAgentsServer": ("_openai_agents", "agents", "mcp-actors[openai-agents]"),
    "PydanticAIToolset": ("_pydantic_ai", "pydantic_ai", "mcp-actors[pydantic-ai]"),
    "langchain_tools": ("_langchain", "langchain_core", "mcp-actors[langchain]"),
    "server_instructions": ("_offer", "mcp", "mcp-actors"),
}
"""Public name → its module, the package that the module needs, and what to install for it."""

# Hidden from type checkers, which would accept every misspelled name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Fetch an adapter from its module, and keep it (PEP 562)."""
        if name not in _ADAPTER_HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        from .. import _sdk as _sdk  # before anything that imports the SDK

        module, framework, requirement = _ADAPTER_HOMES[name]
        try:
            thing = getattr(import_module(f"{__name__}.{module}"), name)
        except ModuleNotFoundError as exc:
            if exc.name is None or exc.name.partition(".")[0] != framework:
                raise
            problem = f"{__name__}.{name} needs the package {framework!r}, which is not installed"
            raise ImportError(f"{problem}; run: pip install '{requirement}'") from exc
        publish(__name__, {name: thing})
        globals()[name] = thing
        return thing


publish(__name__, globals())
