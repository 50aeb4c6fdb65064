"""Immutable dicts and lists for JSON.

They are subclasses of dict and list, so `json.dumps`, schema validators and the SDKs of model providers accept them. A
copy (``copy.copy``, ``copy.deepcopy``, ``.copy()``) is an ordinary dict or list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

C = TypeVar("C", bound=type)

_ADVICE: Final = "this belongs to the tool catalogue and is shared; change a copy of it: copy.deepcopy(...)"

_CHANGES: Final = (
    *("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"),
    *("__iadd__", "__imul__", "append", "extend", "insert", "remove", "reverse", "sort"),
)


_LEAVES: Final = frozenset({str, bool, int, float, type(None)})
"""The types of most values, which need no test for an abstract class."""


def freeze(value: Any) -> Any:
    """Return a copy of a JSON-like value with every dict and list frozen; a frozen value is returned as it is."""
    kind = type(value)
    if kind in _LEAVES or kind is FrozenDict or kind is FrozenList:
        return value
    if kind is dict or isinstance(value, (dict, Mapping)):  # the second test takes as long as all the rest
        # Not from a generator: a start freezes the schemas of thousands of tools.
        return FrozenDict({key: each if type(each) in _LEAVES else freeze(each) for key, each in value.items()})
    if isinstance(value, (list, tuple)):
        return FrozenList([freeze(each) for each in value])
    return value


def thaw(value: Any) -> Any:
    """Return a copy of a value with every dict and list an ordinary one."""
    if isinstance(value, dict):
        return {key: thaw(each) for key, each in value.items()}
    if isinstance(value, list):
        return [thaw(each) for each in value]
    return value


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError(_ADVICE)


def _thawed(self: Any, memo: object = None) -> Any:
    return thaw(self)


def _reduced(self: Any, protocol: object) -> Any:
    # An unpickled value is frozen again: a pickle transports a value, it does not make a copy to modify.
    return freeze, (thaw(self),)


def _frozen(cls: C) -> C:
    """Replace the methods of a class that change its values, and those that copy them."""
    for name in _CHANGES:
        if hasattr(cls, name):
            setattr(cls, name, _refuse)
    for name in ("__copy__", "__deepcopy__", "copy"):
        setattr(cls, name, _thawed)
    cls.__reduce_ex__ = _reduced  # type: ignore[method-assign, assignment]  # it takes the value, as `self`
    return cls


@_frozen
class FrozenDict(dict[str, Any]):
    """A dict that raises `TypeError` on every attempt to change it."""

    __slots__ = ()


@_frozen
class FrozenList(list[Any]):
    """A list that raises `TypeError` on every attempt to change it."""

    __slots__ = ()
