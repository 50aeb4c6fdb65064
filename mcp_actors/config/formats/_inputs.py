"""Ask a person for the inputs (``${input:id}``) of a configuration.

The caller's function ``ask`` may block, or raise. Each input that a server needs is asked for once, even if the person
declined.

Owns: the inputs; their answers.
Writes: questions to a person.
Calls: config, _file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

import attrs

from ..._collapse import caused_by
from ..._errors import ConfigError
from .._values import Secret
from ._file import child, found

_ID: Final = re.compile(r"[\w.-]{1,64}")
_NAMED_INPUTS: Final = 10  # inputs named in a message
IN_INPUT: Final = ("id", "type", "description", "default", "options", "password", "command", "args")
"""The known keys of an input; inputs of type ``command`` are refused."""


@attrs.frozen(kw_only=True)
class Input:
    """A value that a configuration file asks a person for, with ``${input:id}``.

    Attributes:
        id: the name of the input in the file.
        description: the question.
        default: the value if no answer is given, or None.
        options: the possible answers; empty if any str is valid.
        password: whether the answer must be hidden while typed.
    """

    id: str
    description: str = ""
    default: str | None = attrs.field(default=None, repr=False)
    options: tuple[str, ...] = ()
    password: bool = False


Ask: TypeAlias = Callable[[Input], str | Secret | None]
"""Ask a person for an `Input`. Return the answer, or None if there is none."""


class Inputs:
    """The inputs of one file, each asked for at most once.

    Attributes:
        problem: the first mistake in the list of inputs, or None.
    """

    def __init__(self, described: object, ask: Ask | None) -> None:
        self.problem = _problem(described)
        self._described = _by_id(described)
        self._ask = ask
        self._answers: dict[str, str | ConfigError] = {}

    def variable(self, name: str) -> str:
        """Return the answer to an input. The caller adds the place to a ConfigError."""
        if name not in self._answers:
            self._answers[name] = self._asked(name)
        answer = self._answers[name]
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    def _asked(self, name: str) -> str | ConfigError:
        described = self._described.get(name)
        if described is None:
            known = ", ".join(map(repr, islice(self._described, _NAMED_INPUTS)))
            remedy = f"its inputs are: {known}" if known else "add it to 'inputs', or write ${NAME} for a variable"
            return ConfigError(self.problem or f"input {name!r} not found in this file; {remedy}")
        if isinstance(described, ConfigError):
            return described
        if self._ask is None and described.default is None:
            return ConfigError(f"input {name!r} has no value; read the file with load_config(…, ask=…) to ask for it")
        try:
            answer: object = self._ask(described) if self._ask is not None else None
        except Exception as error:
            problem = f"the ask function raised {type(error).__name__} (see the cause of this error) for input {name!r}"
            return caused_by(ConfigError(problem), error)
        return _checked(described, answer)


def _checked(described: Input, answer: object) -> str | ConfigError:
    text = answer.reveal() if isinstance(answer, Secret) else described.default if answer is None else answer
    if text is None:
        return ConfigError(f"input {described.id!r} was not answered; answer it, or give the input a default")
    if not isinstance(text, str):
        return ConfigError(f"the ask function returned {found(text)} for input {described.id!r}; return a str")
    if described.options and text not in described.options:
        return ConfigError(f"the answer to input {described.id!r} is not one of its options")
    return text


def _problem(described: object) -> str | None:
    example = '{"id": "name", "type": "promptString"}'
    if described is not None and not isinstance(described, (list, tuple)):
        return f"inputs: found {found(described)}; write a list: [{example}]"
    wrong = (at for at, each in enumerate(described or ()) if not (isinstance(each, Mapping) and each.get("id")))
    return next((f"{child('inputs', at)}: this has no 'id'; write an object: {example}" for at in wrong), None)


def _by_id(described: object) -> dict[str, Input | ConfigError]:
    inputs: dict[str, Input | ConfigError] = {}
    for index, each in enumerate(described if isinstance(described, (list, tuple)) else ()):
        name = each.get("id") if isinstance(each, Mapping) else None
        if isinstance(name, str) and _ID.fullmatch(name):
            twice = ConfigError(f"input {name!r} is defined twice; rename one of them")
            inputs[name] = twice if name in inputs else _input(name, each, child("inputs", index))
    return inputs


def _input(name: str, described: Mapping[str, Any], path: str) -> Input | ConfigError:
    kind = described.get("type", "promptString")
    if kind not in ("promptString", "pickString"):
        return ConfigError(f"{path}.type: found {found(kind)}; only 'promptString' and 'pickString' are supported")
    default, description = described.get("default"), described.get("description", "")
    options = described.get("options", ())
    options = options if isinstance(options, (list, tuple)) else [options]
    values: list[Any] = [each.get("value") if isinstance(each, Mapping) else each for each in options]
    for what, value in (("default", "" if default is None else default), ("description", description)):
        if not isinstance(value, str):
            return ConfigError(f"{path}.{what}: found {found(value)}; write a string")
    if not all(isinstance(value, str) for value in values) or (kind == "pickString" and not values):
        return ConfigError(f"{path}.options: write a list of strings to choose from")
    return Input(
        id=name,
        description=description,
        default=default,
        options=tuple(values) if kind == "pickString" else (),
        password=described.get("password") is True,
    )
