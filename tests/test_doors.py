"""Each method of each door is a ``def`` of its class."""

from __future__ import annotations

import ast
import pydoc
from collections.abc import Iterator
from functools import cache

import pytest

from mcp_actors import ServerGroup, ServerRef, bridge, sync
from mcp_actors.kernel import ActorRef, Monitor, SupervisorRef

from .doors import BRIDGE, SYNC, Door, written
from .source import PACKAGE, parse, python_files

DOORS: list[type] = [
    ServerRef,
    ServerGroup,
    ActorRef,
    Monitor,
    SupervisorRef,
    bridge.AsyncioServerRef,
    bridge.AsyncioServerGroup,
    bridge.AsyncioActorRef,
    bridge.AsyncioMonitor,
    bridge.AsyncioSupervisorRef,
    sync.SyncServerRef,
    sync.SyncServerGroup,
]


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Return the classes of the folders of the doors, as they are written."""
    folders = [PACKAGE / folder for folder in ("bridge", "kernel", "servers", "sync")]
    found = (node for path in python_files(*folders) for node in parse(path).body)
    return {node.name: node for node in found if isinstance(node, ast.ClassDef)}


def own_classes(kind: type) -> Iterator[type]:
    """Yield the classes of this package that a class has its members from."""
    return (each for each in kind.__mro__ if each.__name__ in classes() and each.__module__.startswith("mcp_actors"))


@pytest.mark.parametrize("kind", DOORS, ids=lambda kind: kind.__name__)
def test_each_member_is_a_def_of_its_class_with_its_docstring(kind: type) -> None:
    """D-90: a value that is called like a method has no documentation in an editor, and fits no `Protocol`."""
    for owner in own_classes(kind):
        tree = classes()[owner.__name__]
        defined = {
            node.name: node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        for name, member in vars(owner).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert name in defined, f"{owner.__name__}.{name} is a value"
                assert ast.get_docstring(defined[name]), f"{owner.__name__}.{name} has no docstring"


@pytest.mark.parametrize("kind", [bridge.AsyncioServerRef, sync.SyncServerRef])
def test_help_shows_the_arguments_and_the_documentation_of_a_call(kind: type) -> None:
    shown = pydoc.plain(pydoc.render_doc(kind.call_tool))  # type: ignore[attr-defined]  # each of them has it
    assert "name: 'str', arguments: 'Mapping[str, Any] | None' = None" in shown
    assert "Call a tool of this server." in shown
    assert ("Ctrl-C" in shown, "Cancellation" in shown) == (kind is sync.SyncServerRef, kind is not sync.SyncServerRef)


def test_the_members_that_only_read_are_the_same_on_each_door() -> None:
    for kinds in (DOORS[0], DOORS[5], DOORS[10]), (DOORS[1], DOORS[6], DOORS[11]):
        facts = [
            {
                name: member
                for owner in own_classes(kind)
                for name, member in vars(owner).items()
                if is_fact(name, member)
            }
            for kind in kinds
        ]
        assert len(facts[0]) >= 7
        assert facts[0] == facts[1] == facts[2]


def is_fact(name: str, member: object) -> bool:
    """Return True for a property that programs read."""
    return isinstance(member, property) and not name.startswith("_")


@pytest.mark.parametrize("door", [BRIDGE, SYNC], ids=["bridge", "sync"])
def test_the_generated_files_are_current(door: Door) -> None:
    """If this fails, run ``python -m tests.doors``."""
    for path, text in written(door).items():
        assert shape(text) == shape((PACKAGE / path).read_text()), path


def shape(text: str) -> tuple[set[str], list[str]]:
    """Return what a file imports, and its classes without regard to their format."""
    tree = ast.parse(text)
    imported = {
        f"{'.' * getattr(node, 'level', 0)}{getattr(node, 'module', '')} {each.name}"
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for each in node.names
    }
    return imported, [ast.dump(node) for node in tree.body if isinstance(node, ast.ClassDef)]


def test_the_files_are_generated_for_no_other_class() -> None:
    assert {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("_generated*.py")} == {
        path for door in (BRIDGE, SYNC) for path in written(door)
    }
