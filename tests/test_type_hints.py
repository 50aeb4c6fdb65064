"""`typing.get_type_hints` works where frameworks call it: for methods and functions that are given as tools."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

from mcp_actors.bridge import AsyncioMonitor

from .test_doors import DOORS
from .test_public_objects import PLACES, things


@pytest.mark.parametrize("kind", [*DOORS[:3], *DOORS[4:7], AsyncioMonitor, *DOORS[7:]], ids=lambda kind: kind.__name__)
def test_the_type_hints_of_each_method_can_be_read(kind: type) -> None:
    """D-94: a method that is a tool of pydantic-ai, OpenAI Agents or LangChain needs no import of the program."""
    checked = 0
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__.startswith("mcp_actors"):
            assert "return" in get_type_hints(function), name
            checked += 1
    assert checked >= 3


def test_the_type_hints_of_each_public_class_and_function_can_be_read() -> None:
    """D-94: but for `LangChainMiddleware`: its base class has a name that LangChain imports for type checkers only."""
    checked = 0
    for name, thing in things(*PLACES).items():
        if isinstance(thing, type) or inspect.isfunction(thing):
            assert get_type_hints(thing) is not None, name
            checked += 1
    assert checked >= 200
