"""Values that may be credentials: `Secret`, and mappings of names to values.

A value of ``env`` or ``headers`` is a str, a `Secret` or a function. It is kept as it was written, and resolved at each
connect (``_resolve``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, NoReturn, Self, TypeAlias, final

from ..._errors import ConfigError
from ..._misuse import explained
from .._validators import a_type, refused
from ._masking import MASK


@explained
@final
class Secret:
    """Hides a str: ``repr``, ``str`` and plain formatting return a placeholder.

    It cannot be pickled. Two secrets with the same text are equal. The text is used literally: ``${VAR}`` in it is not
    expanded. Because formatting hides it too, write ``Secret(f"Bearer {token}")``, not ``f"Bearer {Secret(token)}"``.

    Args:
        value: the text to hide.

    Raises:
        ConfigError: `value` is not a str.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = _text_of_secret(value)

    def reveal(self) -> str:
        """Return the text itself."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled; pass a function that reads it, or pass its reveal() explicitly")

    def __getstate__(self) -> NoReturn:
        self.__reduce__()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._value))


def _text_of_secret(value: object) -> str:
    if not isinstance(value, str):
        message = f"Secret: the value is {a_type(value)}; give a str (decode bytes first)"
        raise ConfigError(message, source="Secret")
    return value


ConfigValue: TypeAlias = str | Secret | Callable[[], str | Awaitable[str]]
"""A str in which ``${VAR}`` is expanded, a `Secret`, or a function (plain or async) that returns a str."""


@final
class NamedValues(Mapping[str, ConfigValue]):
    """An immutable mapping of names to values whose ``repr`` shows the names only."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, ConfigValue] | None = None) -> None:
        self._items: dict[str, ConfigValue] = dict(items or {})

    def __getitem__(self, name: str) -> ConfigValue:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {MASK}" for name in self._items) + "}"

    def __hash__(self) -> int:
        # Hash the names only: that is consistent with equality, and values that are callables may not be hashable.
        return hash(frozenset(self._items))


NO_VALUES: Final = NamedValues()


def check_value(owner: str, field: str, name: str, value: object) -> str | None:
    """Raise ConfigError unless `value` is a ConfigValue. Return its text, or None for a function."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, str):
        return value
    if not callable(value):
        remedy = "give a str, a Secret, or a function that returns a str"
        raise refused(owner, f"{field}.{name}", f"{field}[{name!r}] is {a_type(value)}; {remedy}")
    return None


def check_mapping(owner: str, field: str, value: object) -> None:
    if not isinstance(value, Mapping):
        problem = f'{field} is {a_type(value)}; write {field}={{"NAME": "value"}}'
        raise refused(owner, field, problem)
