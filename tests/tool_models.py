"""Make the models of a tool of an SDK server once for all servers of a process that have it.

To make them takes 3 ms of processor time for each tool, and thousands of tests make a server of two tools or more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from types import FunctionType, MethodType
from typing import Any

from mcp.server.mcpserver.tools import base


def share() -> None:
    """Give tools that are the same code the same models. One with a default may have another at another time."""
    tools: Any = base
    make, made = tools.func_metadata, dict[object, Any]()

    def find(func: Callable[..., Any], skip_names: Sequence[str] = (), structured_output: bool | None = None) -> Any:
        key = (_signature(func), tuple(skip_names), structured_output)
        if key[0] is None:
            return make(func, skip_names, structured_output)
        if key not in made:
            made[key] = make(func, skip_names, structured_output)
            model = made[key].arg_model
            schema = model.model_json_schema(by_alias=True)
            model.model_json_schema = lambda by_alias: deepcopy(schema)  # as a tool asks for it
        return made[key]

    tools.func_metadata = find


def _signature(func: Any) -> object:
    """Return all that the models depend on; None where it may be more than the function has itself."""
    bound = isinstance(func, MethodType)
    plain = func.__func__ if bound else func
    if not isinstance(plain, FunctionType) or {"__wrapped__", "__signature__"} & vars(plain).keys():
        return None
    annotations = tuple(plain.__annotations__.items())
    if plain.__defaults__ or plain.__kwdefaults__ or not all(isinstance(each, str) for _, each in annotations):
        return None
    return plain.__code__, plain.__name__, plain.__module__, bound, annotations
