"""JSON that nobody can change: what servers list is shared by everybody who looks at the catalogue.

The frozen forms *are* a dict and a list, so that `json.dumps`, schema validators and the SDKs of model providers take
them as they are. Copying one (``copy.copy``, ``copy.deepcopy``, ``.copy()``) gives an ordinary dict or list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

_ADVICE: Final = "this belongs to the tool catalogue and is shared; change a copy of it: copy.deepcopy(...)"


def freeze(value: Any) -> Any:
    """Return JSON-like `value` with every dict and list in it copied into its frozen form; what is frozen stays."""
    if isinstance(value, (FrozenDict, FrozenList)):
        return value
    if isinstance(value, Mapping):
        return FrozenDict((key, freeze(each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return FrozenList(freeze(each) for each in value)
    return value


def thaw(value: Any) -> Any:
    """Return `value` with every dict and list in it copied into an ordinary one."""
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
    # Unpickled it is frozen again: a pickle is the same value at another place, not a copy to work on.
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
