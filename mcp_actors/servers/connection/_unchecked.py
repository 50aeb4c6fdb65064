"""Results of tools as the server sent them: the SDK's own check is switched off.

The SDK checks every result against the tool's output schema, after the tool has run, and if it does not like it, the
result is gone: a bare `RuntimeError` is raised, which holds the whole value and the whole schema as text. The same
happens if the *schema* is broken. And for a tool that was not listed it asks the server for its tools, behind the back
of everybody who counts requests or orders them; if that fails, the result is gone too.

Here results are returned as they are, and checked where that was asked for (`mcp_actors.catalog.ToolChecks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult

__all__ = ["leave_results_unchecked"]


def leave_results_unchecked(session: ClientSession) -> None:
    """Make a session return what tools return, without a look at it. To be done once, before the first call."""
    # A public method, which the SDK calls for each result. It offers no switch.
    session.validate_tool_result = _accept  # type: ignore[method-assign]  # that is what is meant


async def _accept(name: str, result: CallToolResult) -> None:
    """Find nothing wrong."""
