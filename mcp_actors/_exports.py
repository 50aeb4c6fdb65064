"""Publish the names of a folder, and import some only when used.

Tracebacks and `repr` show ``mcp_actors.ConnectFailed``, not its private file. `dir` lists the public names, which
editors then complete. `fetch_later` delays a slow import until a name of the module is used.

Owns: nothing.
Writes: module names of functions and classes; lists for `dir`; namespaces of folders.
Calls: nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any, ForwardRef

_PACKAGE = __name__.partition(".")[0]
_PLAIN = re.compile(r"(?:(?:str|int|float|bool|bytes|object|None)(?: \| (?!$))?)+")
"""Matches annotations of builtins only, which need no slow `ForwardRef`."""


def publish(module: str, namespace: dict[str, Any]) -> None:
    """Set ``__module__`` of every class and function in `namespace` that a private module of this package defines.

    The new value is ``mcp_actors`` for names in ``mcp_actors/__init__.py``, else `module`. A folder's ``__init__`` ends
    with ``publish(__name__, globals())``; a file directly in ``mcp_actors`` passes the name of the folder that exports
    its names. Constants, type aliases, private names, and things of public modules or of other packages do not change.

    Args:
        module: the dotted name under which users import the things.
        namespace: name → thing.
    """
    # Importing this file has imported `mcp_actors` first.
    homes: Mapping[str, str] = sys.modules[_PACKAGE]._HOMES
    if namespace.get("__name__") == module:
        namespace["__dir__"] = lambda: public_names(namespace)
    for name, thing in namespace.items():
        if name.startswith("_") or not isinstance(thing, (type, FunctionType)):
            continue
        package, *rest = thing.__module__.split(".")
        if package == _PACKAGE and any(part.startswith("_") for part in rest):
            # `mcp_actors` may offer another thing under this name: `open_servers` exists for Trio and for asyncio.
            home = homes.get(name)
            offered = home is not None and f"{thing.__module__}.".startswith(f"{home}.")
            if isinstance(thing, type):
                _publish_members(thing)
            thing.__module__ = _PACKAGE if offered else module


def _publish_members(kind: Any) -> None:
    """Let `typing.get_type_hints` find the names in a class's annotations, and let `dir` list its public members."""
    own = kind.__annotations__
    for name, text in own.items():
        if isinstance(text, ForwardRef) and text.__forward_module__ is None:  # of a named tuple
            text = text.__forward_arg__
        if isinstance(text, str) and _PLAIN.fullmatch(text) is None:
            own[name] = ForwardRef(text, is_argument=False, module=kind.__module__, is_class=True)
    if kind.__dir__ is object.__dir__:
        kind.__dir__ = public_members


def public_members(self: object) -> list[str]:
    """List an object's members, without private members if the class is ours."""
    foreign = type(self).__module__.partition(".")[0] != _PACKAGE
    return [name for name in object.__dir__(self) if foreign or not name.startswith("_") or name.startswith("__")]


def public_names(namespace: Mapping[str, Any]) -> list[str]:
    """List a folder's public names and folders, and the names that Python sets."""
    place, public = namespace["__name__"], namespace["__all__"]
    folders = {
        name
        for name, thing in namespace.items()
        if isinstance(thing, ModuleType) and thing.__name__ == f"{place}.{name}" and hasattr(thing, "__all__")
    }
    return sorted({*public, *folders, *(name for name in namespace if name.startswith("__"))})


def fetch_later(namespace: dict[str, Any], homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a folder, which imports a module at the first use of its names.

    The folder's ``__init__`` imports the same names under ``TYPE_CHECKING``. Code of this package that must not load
    the module early writes ``from .. import config`` and, in a function, ``config.load_config``.

    Args:
        namespace: the ``globals()`` of the folder's ``__init__``, which keeps fetched names.
        homes: module, relative to the folder (``".formats"``) → its names, with spaces between.
    """
    folder = str(namespace["__name__"])

    def fetch(name: str) -> object:
        module = next((each for each, names in homes.items() if name in names.split()), None)
        if module is None:
            raise AttributeError(f"module {folder!r} has no attribute {name!r}")
        home = import_module(module, folder)
        fetched = {each: getattr(home, each) for each in homes[module].split()}
        publish(folder, fetched)
        namespace.update(fetched)
        return fetched[name]

    return fetch
