"""A framework is imported when its adapter is asked for, and not before; what is missing is named."""

from __future__ import annotations

import ast

import pytest

from mcp_actors import adapters
from tests.forkserver import run_python
from tests.importing import FRAMEWORKS, importing
from tests.source import ROOT

PATIENCE = 120.0

ADAPTERS = {
    "McpClient": [],
    "langchain_tools": ["langchain_core"],
    "PydanticAIToolset": ["pydantic_ai"],
    "OpenAIAgentsServer": ["agents"],
}
"""Adapter → what it imports."""


def run(code: str) -> str:
    finished = run_python("-c", code, cwd=ROOT, timeout=PATIENCE)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def test_importing_it_imports_no_framework() -> None:
    assert importing()["frameworks imported by"] == []


@pytest.fixture(scope="module")
def imported() -> dict[str, list[str]]:
    """Import one adapter after the other in one process, and forget its framework; what they share is imported once."""
    code = f"""
import sys, asyncio
from mcp_actors import adapters

found, before = {{}}, dict(vars(asyncio))
for name in {[*ADAPTERS]}:
    assert getattr(adapters, name).__module__ == "mcp_actors.adapters" and "trio_asyncio" not in sys.modules
    assert vars(asyncio) == before
    found[name] = [each for each in {FRAMEWORKS} if each in sys.modules]
    for module in [*sys.modules]:
        if module.partition(".")[0] in found[name]:
            del sys.modules[module]
print(found)
"""
    found: dict[str, list[str]] = ast.literal_eval(run(code))
    return found


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_imports_its_own_framework_and_leaves_asyncio_as_it_is(
    name: str, imported: dict[str, list[str]]
) -> None:
    assert imported[name] == ADAPTERS[name]


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("AgentFrameworkProvider", "agent_framework", "agent-framework"),
        ("OpenAIAgentsServer", "agents", "openai-agents"),
        ("PydanticAIToolset", "pydantic_ai", "pydantic-ai"),
        ("langchain_tools", "langchain_core", "langchain"),
        ("LangChainMiddleware", "langchain", "langchain"),
    ],
)
def test_a_framework_that_is_missing_is_named_with_its_extra(name: str, package: str, extra: str) -> None:
    missing = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
try:
    from mcp_actors.adapters import {name}
except ImportError as exc:
    print(exc)
"""
    assert run(missing) == (
        f"mcp_actors.adapters.{name} needs the package {package!r}, which is not installed; "
        f"run: pip install 'mcp-actors[{extra}]'"
    )


def test_a_missing_dependency_of_a_framework_is_its_own_error() -> None:
    broken = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "openai":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
try:
    from mcp_actors.adapters import OpenAIAgentsServer
except ImportError as exc:
    print(exc)
"""
    assert run(broken) == "No module named 'openai'"


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'mcp_actors.adapters' has no attribute 'Toolset'"):
        _ = adapters.Toolset  # type: ignore[attr-defined]  # that is what is tested
