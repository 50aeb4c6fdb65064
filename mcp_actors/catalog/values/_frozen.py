"""Immutable dicts and lists for JSON.

They are subclasses of dict and list, so `json.dumps`, schema validators and the SDKs of model providers accept them. A
copy (``copy.copy``, ``copy.deepcopy``, ``.copy()``) is an ordinary dict or list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

_ADVICE: Final = "this belongs to the tool catalogue and is shared; change a copy of it: copy.deepcopy(...)"


def freeze(value: Any) -> Any:
    """Return a copy of a JSON-like value with every dict and list frozen; a frozen value is returned as it is."""
    if isinstance(value, (FrozenDict, FrozenList)):
        return value
    if isinstance(value, Mapping):
        return FrozenDict((key, freeze(each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return FrozenList(freeze(each) for each in value)
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


class FrozenDict(dict[str, Any]):
    """A dict that raises `TypeError` on every attempt to change it."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
    __copy__ = __deepcopy__ = copy = _thawed
    __reduce_ex__ = _reduced


class FrozenList(list[Any]):
    """A list that raises `TypeError` on every attempt to change it."""

    __slots__ = ()

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __copy__ = __deepcopy__ = copy = _thawed
    __reduce_ex__ = _reduced
