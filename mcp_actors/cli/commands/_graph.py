"""``mcp-actors graph``: draw the tree of actors behind the servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernel import TreeNode
from .._configuration import load
from .._output import Output
from .._session import open_once


async def draw_graph(names: Sequence[str], config: str | None, output: Output) -> int:
    """Print the tree of actors behind the servers, and return the exit code."""
    loaded = load(config, names, output)
    async with open_once(loaded, output) as group:
        tree = group.tree()
        errors = [*loaded.errors, *group.errors.values()]
    for line in str(tree).splitlines():
        output.line(line)
    output.json(_as_data(tree))
    return output.errors(errors)


def _as_data(node: TreeNode) -> dict[str, Any]:
    return {
        "id": node.id,
        "path": node.path,
        "kind": node.kind,
        "state": node.state,
        "incarnation": node.incarnation,
        "queued": node.queued,
        "in_flight": node.in_flight,
        "oldest_wait": node.oldest_wait,
        "restarts": node.restarts,
        "last_error": node.last_error,
        "children": [_as_data(child) for child in node.children],
    }
