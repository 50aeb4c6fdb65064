"""Publish the names of a folder, and import some only when used.

`publish` writes ``__module__`` of the public classes and functions in a namespace that come from private files of this
package. For those that the façade offers it becomes ``mcp_actors``, for all others the module that is given. So
tracebacks and `repr` show ``mcp_actors.ConnectFailed``, not the private file of its code. It reads ``_HOMES`` of the
façade in ``sys.modules``.

`fetch_later` makes a ``__getattr__`` for a folder. The first use of a name imports its module of the folder, publishes
what is fetched from that, and writes it into the folder's namespace. So a program that reads no files, signs in nowhere
or has no server over HTTP does not wait for the import of that code.

Editors complete what `dir` lists: of a folder its `public_names`, of an object its members without an underscore.

The ``__init__`` of ``adapters``, ``auth``, ``bridge``, ``catalog``, ``cli``, ``config``, ``kernel``, ``servers``,
``testing`` and ``transports/http`` use this file (`fetch_later`: ``auth``, ``config``, ``testing`` and
``transports/http``), and so do ``_backoff`` and ``_errors``. When it is imported itself, it imports nothing of the
package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any, ForwardRef

_PACKAGE = __name__.partition(".")[0]


def publish(module: str, namespace: dict[str, Any]) -> None:
    """Set ``__module__`` of every class and function in `namespace` that a private module of this package defines.

    It becomes ``mcp_actors`` for the names that ``mcp_actors/__init__.py`` offers, and `module` for all others. The
    last line of a folder's ``__init__`` is ``publish(__name__, globals())``. A file directly in ``mcp_actors``, such as
    ``_errors.py``, ends with a call for the folder that exports its names.

    A class or function whose ``__module__`` is already public keeps it, so several modules may re-export it. Names that
    begin with an underscore, constants, type aliases and things of other packages are left alone.

    Args:
        module: the dotted name under which users import the things.
        namespace: name → thing.
    """
    # The façade is the package that contains this file, so it has been imported; it lists its names as plain text.
    homes: Mapping[str, str] = sys.modules[_PACKAGE]._HOMES
    if namespace.get("__name__") == module:
        namespace["__dir__"] = lambda: public_names(namespace)
    for name, thing in namespace.items():
        if name.startswith("_") or not isinstance(thing, (type, FunctionType)):
            continue
        package, *rest = thing.__module__.split(".")
        if package == _PACKAGE and any(part.startswith("_") for part in rest):
            # The façade may offer another thing under this name: `open_servers` exists for Trio and for asyncio.
            home = homes.get(name)
            offered = home is not None and f"{thing.__module__}.".startswith(f"{home}.")
            if isinstance(thing, type):
                _publish_members(thing)
            thing.__module__ = _PACKAGE if offered else module


def _publish_members(kind: Any) -> None:
    """Let `typing.get_type_hints` find the names in annotations of a class in its file, and `dir` list public ones."""
    own = kind.__annotations__
    for name, text in own.items():
        if isinstance(text, ForwardRef) and text.__forward_module__ is None:  # of a named tuple
            text = text.__forward_arg__
        if isinstance(text, str):
            own[name] = ForwardRef(text, is_argument=False, module=kind.__module__, is_class=True)
    if kind.__dir__ is object.__dir__:
        kind.__dir__ = public_members


def public_members(self: object) -> list[str]:
    """List all members of an object of a user's class, and of others those without an underscore."""
    foreign = type(self).__module__.partition(".")[0] != _PACKAGE
    return [name for name in object.__dir__(self) if foreign or not name.startswith("_") or name.startswith("__")]


def public_names(namespace: Mapping[str, Any]) -> list[str]:
    """Return what `dir` lists of a folder: its public names and folders, and what Python sets."""
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
    them at its own import writes ``from .. import config`` and, in a function, ``config.load_config``.

    Args:
        namespace: the ``globals()`` of the folder's ``__init__``, which keeps what was fetched.
        homes: name → module, relative to the folder (``".formats"``).
    """
    folder = str(namespace["__name__"])

    def fetch(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {folder!r} has no attribute {name!r}")
        home = import_module(homes[name], folder)
        fetched = {each: getattr(home, each) for each in homes if homes[each] == homes[name]}
        publish(folder, fetched)
        namespace.update(fetched)
        return fetched[name]

    return fetch
