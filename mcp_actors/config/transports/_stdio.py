"""Servers that are child processes (`Stdio`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ..._misuse import explained
from .. import _validators as check
from ..values import (
    NO_VALUES,
    ConfigValue,
    NamedValues,
    check_mapping,
    check_value,
    env_problem,
    mask_args,
    system_problem,
)
from ._sandbox import Sandbox, check_sandbox, to_sandbox

_DEFAULT_MAX_LINE: Final = 64 * 1024 * 1024  # bytes; more than any honest message, and it still fits into memory


def _path(field: str, value: object) -> str:
    """Return a path as a str; refuse anything that the operating system does not accept as a path."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise check.refused("Stdio", field, f"{field} is {check.a_type(value)}; give a str or a path of str")
    path: str = os.fspath(value)
    if not path.strip():
        raise check.refused("Stdio", field, f"{field} is empty; give a name or a path")
    if problem := system_problem(path):
        raise check.refused("Stdio", field, f"{field} {problem}")
    return path


def _to_command(value: str | os.PathLike[str]) -> str:
    return _path("command", value)


def _to_cwd(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else _path("cwd", value)


def _texts(field: str, value: object) -> tuple[str, ...]:
    """Return a sequence of str as a tuple; refuse a single str, which Python would split into letters."""
    if isinstance(value, str):
        problem = f"{field} is a single str, not a sequence; did you mean {field}={mask_args(value.split())}?"
        raise check.refused("Stdio", field, problem)
    if not isinstance(value, Iterable) or isinstance(value, (bytes, bytearray, Mapping)):
        raise check.refused("Stdio", field, f"{field} is {check.a_type(value)}; give a tuple or list of str")
    texts = tuple(value)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            problem = f"{field}[{index}] is {check.a_type(text)}; give a str"
            raise check.refused("Stdio", field, problem)
        if unusable := system_problem(text):
            raise check.refused("Stdio", field, f"{field}[{index}] {unusable}")
    return texts


def _to_args(value: Iterable[str]) -> tuple[str, ...]:
    return _texts("args", value)


def _check_variable(field: str, name: object) -> None:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        # "NAME=value" in one string is a likely mistake, and the value must not be shown.
        shown = check.shown(name.partition("=")[0] + "=…" if isinstance(name, str) and "=" in name else name)
        remedy = "give a non-empty name without '=' (a value belongs in env)"
        raise check.refused(
            "Stdio", field, f"{field} contains {shown}, which is not a valid name of a variable; {remedy}"
        )


def _to_env_from(value: Iterable[str]) -> tuple[str, ...]:
    names = _texts("env_from", value)
    for name in names:
        _check_variable("env_from", name)
    return names


def _to_env(value: Mapping[str, ConfigValue]) -> Mapping[str, ConfigValue]:
    check_mapping("Stdio", "env", value)
    for name, each in value.items():
        _check_variable("env", name)
        text = check_value("Stdio", "env", name, each)
        if problem := env_problem(text or ""):
            raise check.refused("Stdio", f"env.{name}", f"env[{name!r}]: {problem}")
    return NamedValues(value)


def _check_env_from(instance: Stdio, attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    """Refuse a variable that is both set and passed on, because one of the two must be a mistake."""
    for name in value:
        if name in instance.env:
            problem = f"{name!r} is both in env_from (pass on) and in env (set); remove it from one of them"
            raise check.refused("Stdio", "env_from", problem)


@explained
@attrs.frozen
class Stdio:
    """A server that runs as a child process and communicates through its stdin and stdout.

    The child gets a few variables of this process (HOME, LOGNAME, PATH, SHELL, TERM, USER), those named in `env_from`,
    and `env`; nothing else. The command is looked up when the process is started, not before.

    ``repr`` shows no value of `env` and masks arguments that look like credentials; pass credentials in `env`.

    Args:
        command: the program: a name to look up on PATH, or a path.
        args: its arguments, one per element. They are passed as they are: no shell, no ``${VAR}``.
        env: variables to set. In a str value, ``${VAR}`` is expanded at each connect.
        env_from: names of variables of this process to pass on. A variable that is not set is left out.
        cwd: the directory to start in. None starts in the directory of this process.
        max_line_bytes: the longest message to accept, in bytes. Default 64 MiB.
        sandbox: what the process may reach. Default None: everything that its user may.

    Raises:
        ConfigError: a value is not valid. The message contains no value of `env`.
    """

    command: str = attrs.field(converter=_to_command)
    args: tuple[str, ...] = attrs.field(default=(), converter=_to_args, repr=lambda args: repr(mask_args(args)))
    env: Mapping[str, ConfigValue] = attrs.field(default=NO_VALUES, converter=_to_env, kw_only=True)
    env_from: tuple[str, ...] = attrs.field(default=(), converter=_to_env_from, validator=_check_env_from, kw_only=True)
    cwd: str | None = attrs.field(default=None, converter=_to_cwd, kw_only=True)
    max_line_bytes: int = attrs.field(
        default=_DEFAULT_MAX_LINE, validator=check.count(1, "give a number of bytes, 1 or more"), kw_only=True
    )
    sandbox: Sandbox | None = attrs.field(default=None, converter=to_sandbox, validator=check_sandbox, kw_only=True)
