"""Resolve values at each connect: expand strings, reveal secrets, call functions.

Nothing is kept, so the next connect sees a changed variable or a new token.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ..._errors import ConfigError
from ..._foreign import answer_of
from .._validators import a_type
from ._expand import expand
from ._secret import ConfigValue, Secret


async def resolve(value: ConfigValue, environ: Mapping[str, str], *, where: str) -> str:
    """Return the current text of a value. Nothing is cached between calls.

    A str is expanded (see `expand`). A `Secret` is used literally. A function is called, and awaited if it is async;
    its result is used literally.

    **Cancellation**: this waits only inside an async function of the user; otherwise it is not a checkpoint. Nothing
    needs to be cleaned up.

    Args:
        value: the value as it was configured.
        environ: the environment variables, usually ``os.environ``.
        where: the place in the configuration, for the message.

    Raises:
        ConfigError: a variable is not set, a reference is malformed or the result is too long; the function raised (its
            exception is the ``__cause__``, and the message names only its type, because its text may contain a
            credential); or it did not return a str.
    """
    if isinstance(value, str):
        return expand(value, environ, where=where)
    if isinstance(value, Secret):
        return value.reveal()
    try:
        result = value()
        text: object = await answer_of(result)
    except Exception as exc:
        message = f"{where}: the function for this value raised {type(exc).__name__} (see the cause of this error)"
        raise ConfigError(message, path=where) from exc
    if not isinstance(text, str):
        message = f"{where}: the function for this value returned {a_type(text)}; return a str"
        raise ConfigError(message, path=where)
    return text


async def resolve_env(env: Mapping[str, ConfigValue], environ: Mapping[str, str], *, where: str) -> dict[str, str]:
    """Resolve every value of ``env``; the name of the variable is appended to `where`.

    Raises:
        ConfigError: as for `resolve`, or a value contains a NUL character or cannot be encoded for the operating
            system.
    """
    return await _resolve_all(env, environ, where, env_problem)


async def resolve_headers(
    headers: Mapping[str, ConfigValue], environ: Mapping[str, str], *, where: str
) -> dict[str, str]:
    """Resolve every value of ``headers``; the name of the header is appended to `where`.

    Raises:
        ConfigError: as for `resolve`, or a value cannot be sent in a header. Such a value is rejected here because the
            error of the HTTP library would reveal it.
    """
    return await _resolve_all(headers, environ, where, header_problem)


async def resolve_token(value: ConfigValue, environ: Mapping[str, str], *, where: str) -> str:
    """Resolve a bearer token.

    Raises:
        ConfigError: as for `resolve`, or the text cannot be sent as a token.
    """
    token = await resolve(value, environ, where=where)
    if problem := token_problem(token):
        raise ConfigError(f"{where}: {problem}", path=where)
    return token


async def _resolve_all(
    values: Mapping[str, ConfigValue], environ: Mapping[str, str], where: str, problem_of: Callable[[str], str | None]
) -> dict[str, str]:
    resolved: dict[str, str] = {}
    for name, value in values.items():
        place = f"{where}.{name}"
        resolved[name] = await resolve(value, environ, where=place)
        if problem := problem_of(resolved[name]):
            raise ConfigError(f"{place}: {problem}", path=place)
    return resolved


def env_problem(text: str) -> str | None:
    """Return why `text` cannot be an environment value, without showing it; None if it can."""
    problem = system_problem(text)
    return None if problem is None else f"the value {problem}"


def system_problem(text: str) -> str | None:
    """Return why `text` cannot be passed to the operating system, without showing it; None if it can."""
    if "\0" in text:
        return "contains a NUL character; remove it"
    try:
        os.fsencode(text)  # accepts any text that came from the system, even undecodable bytes
    except UnicodeEncodeError:
        return "contains a character that the system's encoding cannot represent; remove it, or run with a UTF-8 locale"
    return None


def header_problem(text: str) -> str | None:
    """Return why `text` cannot be sent as a header, without showing it; None if it can."""
    if "\n" in text or "\r" in text:
        return "the value contains a line break; strip it (the content of a file usually ends with one)"
    if text != text.strip():
        return "the value begins or ends with whitespace; strip it, and check whether a variable in it is empty"
    if not text.isascii() or not text.replace("\t", " ").isprintable():
        return "the value contains a character that is not printable ASCII; encode it"
    return None


def token_problem(text: str) -> str | None:
    """Return why `text` cannot be sent as a bearer token, without showing it; None if it can."""
    if not text:
        return "the token is empty; check the variable or function that it comes from"
    if text.lower().startswith(("bearer ", "basic ")):
        return "the value begins with an auth scheme; give the bare token, or put the whole value into headers"
    return header_problem(text)
