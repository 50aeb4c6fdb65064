"""Validators, and their errors, for configuration classes.

An error names the class (or the server), the field, the value and a remedy. A value that is not a scalar may hold a
credential, so an error shows only the value's type.

Owns: nothing.
Writes: the ``__repr__`` of classes that `brief` decorates.
Calls: nothing.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

import attrs

from .._errors import ConfigError
from .._misuse import is_function as is_function, is_number, is_whole, takes, type_of

Value = TypeVar("Value")


class Validator(Protocol):
    """A validator for attrs. If `value` were `Any`, the type checker ty would forget the field's converter."""

    def __call__(self, instance: Any, attribute: attrs.Attribute[Value], value: Value, /) -> None: ...


_SHOWN_VALUE: Final = 60  # characters of a value in a message


def shown(value: object) -> str:
    """Return the shortened text of a scalar, or the type of any other value."""
    if isinstance(value, float) or value is None:
        return repr(value)
    if isinstance(value, int) and value.bit_length() > 256:
        return f"<int of {value.bit_length()} bits>"  # Python refuses to print very long numbers
    if isinstance(value, (str, int)):
        text = repr(value)
        return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…"
    return f"<{type_of(value)}>"


def a_type(value: object) -> str:
    """Return a type with its article: ``"an int"``, ``"None"``, ``"the class OAuth"``."""
    if value is None:
        return "None"
    name = type_of(value)
    if isinstance(value, type):
        return name
    return f"an {name}" if name[0] in "AEIOUaeiou" else f"a {name}"


def brief(cls: type[Value]) -> type[Value]:
    """Make the ``repr`` of an attrs class the call that creates the object, without default arguments.

    The ``repr`` of each field shows its argument, and can hide credentials.
    """
    cls.__repr__ = _brief_repr  # type: ignore[method-assign, assignment]  # of an attrs class
    return cls


def _brief_repr(instance: attrs.AttrsInstance) -> str:
    arguments = []
    for of, value in changed(instance, _equal).items():
        field = getattr(attrs.fields(type(instance)), of)
        name = "" if field.default is attrs.NOTHING and not field.kw_only else f"{field.name}="
        arguments.append(name + (field.repr if callable(field.repr) else repr)(value))
    return f"{type(instance).__name__}({', '.join(arguments)})"


def changed(instance: Any, equal: Callable[[Any, Any], bool] = operator.eq) -> dict[str, Any]:
    """Return the fields of an attrs object that differ from their defaults."""
    fields = ((field, getattr(instance, field.name)) for field in attrs.fields(type(instance)))
    return {
        field.name: value
        for field, value in fields
        if field.default is attrs.NOTHING or not equal(value, _default(field, instance))
    }


def _equal(value: object, default: object) -> bool:
    # Compare only values of the same type: the `__eq__` of other code may raise.
    if value is default or type(value) is not type(default):
        return value is default
    if not attrs.has(type(value)):
        return value == default
    fields = attrs.fields(type(value))  # type: ignore[arg-type]  # it has them
    return all(_equal(getattr(value, field.name), getattr(default, field.name)) for field in fields)


def _default(field: attrs.Attribute[Any], instance: attrs.AttrsInstance) -> object:
    default: Any = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # a function for type checkers
        return default.factory(instance) if default.takes_self else default.factory()
    return default


def refused(owner: str, field: str, problem: str) -> ConfigError:
    """Return the error for a field of a class that does not know its server."""
    return ConfigError(problem, owner=owner, source=owner, path=field)


def refused_type(owner: str, field: str, value: object, remedy: str) -> ConfigError:
    """Return the error for a value of a wrong type; the value is not shown."""
    if isinstance(value, type):
        remedy = f"write {field}={made(value)}"
    return refused(owner, field, f"{field} is {a_type(value)}; {remedy}")


def refused_value(instance: Any, field: str, value: object, remedy: str) -> ConfigError:
    """Return the error for ``field=value``, naming the server if the instance has a name."""
    return refused_text(instance, field, shown(value), remedy)


def refused_text(instance: Any, field: str, text: str, remedy: str) -> ConfigError:
    """Like `refused_value`, for values that `shown` would not show well."""
    owner = type(instance).__name__
    problem = f"{field}={text} is not valid; {remedy}"
    server = getattr(instance, "name", None)
    if server is None:
        return refused(owner, field, problem)
    return ConfigError(problem, owner=f"server {server!r}", source=owner, path=f"servers.{server}.{field}")


def is_positive(value: Any, *, unlimited: bool = False) -> bool:
    """Return whether `value` is a positive number, or infinity if `unlimited`. NaN is not."""
    return is_number(value) and 0 < value <= (math.inf if unlimited else sys.float_info.max)


def seconds(*, unlimited: bool = False, optional: bool = False) -> Validator:
    """Make a validator for positive seconds; `unlimited` allows infinity, `optional` None."""
    number = "a positive number of seconds, or math.inf" if unlimited else "a positive, finite number of seconds"
    remedy = f"give {number}{', or None' if optional else ''}"

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not (optional and value is None) and not is_positive(value, unlimited=unlimited):
            raise refused_value(instance, attribute.name, value, remedy + _unquoted(attribute, value))

    return check


def _unquoted(attribute: attrs.Attribute[Any], value: object) -> str:
    """Return the end of the remedy for a number given as text."""
    example = attribute.default if is_positive(attribute.default) else 30
    return f"; for example {example:.15g}, without quotes" if isinstance(value, str) else ""


def count(lowest: int, remedy: str, *, highest: float = math.inf) -> Validator:
    """Make a validator for an int, never a bool."""

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not is_whole(value, lowest) or value > highest:
            raise refused_value(instance, attribute.name, value, remedy + _unquoted(attribute, value))

    return check


at_least_one: Final = count(1, "give a whole number of 1 or more")


def one_of(*choices: str) -> Validator:
    remedy = "choose " + " or ".join(repr(choice) for choice in choices)

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, str) or value not in choices:
            raise refused_value(instance, attribute.name, value, remedy)

    return check


def flag(instance: Any, attribute: attrs.Attribute[Value], value: Value) -> None:
    """Refuse everything but True and False; ``enabled="no"`` would otherwise count as true."""
    if not isinstance(value, bool):
        raise refused_value(instance, attribute.name, value, "give True or False")


def kind(*types: type, remedy: str = "", more: str = "") -> Validator:
    """Make a validator for an instance of one of `types`. An error shows only the type of the value.

    NoneType as the last type makes the value optional. The default remedy names the first type; `more` is added.
    """
    remedy = (remedy or f"give a {types[0].__name__}(...){', or None' if len(types) > 1 else ''}") + more

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, types):
            of_it = isinstance(value, type) and issubclass(value, types)
            write = f"write {attribute.name}={made(value)}" if of_it else remedy
            # Only the type, even of a str: a URL with a password may have been passed as the transport.
            raise refused_text(instance, attribute.name, f"<{type_of(value)}>", write)

    return check


def made(kind: type) -> str:
    """Return the call that makes an object."""
    return f"{kind.__name__}({'' if takes(kind, 0) else '…'})"


def check_function(instance: Any, field: str, value: object, parameters: tuple[str, ...], remedy: str) -> None:
    if not is_function(value):
        raise refused_value(instance, field, value, remedy)
    if not takes(value, len(parameters)):
        problem = f"<{name_of(value)}, which cannot be called with ({', '.join(parameters)})>"
        raise refused_text(instance, field, problem, remedy)


def name_of(value: object) -> str:
    """Return the name of a function. The `repr` of a method would show the object."""
    return getattr(value, "__qualname__", None) or type(value).__name__


def shown_function(value: object) -> str:
    return "None" if value is None else f"<{getattr(value, '__name__', type(value).__name__)}>"


def shown_functions(values: Iterable[object]) -> str:
    return f"[{', '.join(map(shown_function, values))}]"


def as_tuple(value: Iterable[Value]) -> tuple[Value, ...]:
    """Return a collection as a tuple, and anything else unchanged, for `tuple_of` to refuse."""
    if isinstance(value, (str, Mapping)):
        return value  # type: ignore[return-value]  # it is refused by the validator
    try:
        return tuple(value)
    except TypeError:
        return value  # type: ignore[return-value]  # it is refused by the validator


def tuple_of(fits: Callable[[object], bool], remedy: str) -> Validator:
    """Make a validator for a tuple of values that fit. An error shows only types."""

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, tuple):
            raise refused_text(instance, attribute.name, f"<{type_of(value)}>", remedy)
        for each in value:
            if not fits(each):
                write = f"write [{made(each)}]" if isinstance(each, type) else remedy
                raise refused_text(instance, attribute.name, f"<a tuple with {a_type(each)} in it>", write)

    return check
