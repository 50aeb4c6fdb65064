"""Read ``.env`` files.

There is no specification of them, and libraries differ in what they expand, escape and skip. So the promise is small:
lines ``NAME=value``, and every other line is an error instead of a variable that is silently missing.
"""

from __future__ import annotations

import os
import re
from typing import Final

from ._places import bad
from .file import decode, file_name, read_bytes

MAX_ENV_BYTES: Final = 256 * 1024

_LINE: Final = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=(?P<value>.*)")
_SINGLE: Final = re.compile(r"'(?P<text>[^']*)'[ \t]*(?:#.*)?")
_DOUBLE: Final = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"[ \t]*(?:#.*)?')
_ENV_COMMENT: Final = re.compile(r"(?:^|(?<![ \t])[ \t]+)#.*")
"""The blanks count from the first one only; trying each of many would take quadratic time."""

_END: Final = re.compile(r"\r\n|\r|\n")
"""The end of a line. `str.splitlines` has more of them, which would cut a value in two."""

_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(path: str | os.PathLike[str]) -> dict[str, str]:
    r"""Return the variables in a file.

    A line is empty, a comment (``# …``), or ``NAME=value`` with or without ``export``. A value may be in single quotes,
    where every character means itself, or in double quotes, where ``\n``, ``\r``, ``\t``, ``\"`` and ``\\`` are
    escapes. Without quotes it ends at `` #`` or at the end of the line.

    Raises:
        ConfigError: the file cannot be read, or a line is something else; the message has its number and no value.
    """
    name = file_name(path, "load_config: env_file")
    data, _ = read_bytes(name)
    if len(data) > MAX_ENV_BYTES:
        raise bad(name, "", f"the file is larger than {MAX_ENV_BYTES // 1024} KiB; check that it is the right one")
    text = decode(name, data)
    if not isinstance(text, str):
        raise text
    variables: dict[str, str] = {}
    for number, line in enumerate(_END.split(text), start=1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        source = f"{name}:{number}"
        found = _LINE.fullmatch(content)
        if "\0" in content:
            raise bad(source, "", "the line contains a NUL character, which no variable can have; remove it")
        if found is None:
            raise bad(source, "", "this is not NAME=value; correct the line, or begin it with '#'")
        if found["name"] in variables:
            raise bad(source, "", f"{found['name']} appears more than once; remove all but one")
        variables[found["name"]] = _value(source, found["name"], found["value"])
    return variables


def _value(source: str, name: str, value: str) -> str:
    if re.match(r"#[^ \t]", value):
        raise bad(source, name, "'#' begins a comment; write the value in quotes, or a space in front of the comment")
    value = value.lstrip(" \t")
    if value.startswith("'"):
        quoted = _SINGLE.fullmatch(value)
    elif value.startswith('"'):
        quoted = _DOUBLE.fullmatch(value)
    else:
        quoted = None
        value = _ENV_COMMENT.sub("", value)
    if value[:1] in ("'", '"') and quoted is None:
        raise bad(source, name, "the quotes are not closed, or text follows them; close them on the same line")
    if "${" in value and not value.startswith("'"):
        raise bad(
            source, name, "variables are not expanded here; write the value itself, or '…' for the characters '${'"
        )
    if quoted is None:
        return value
    text = quoted["text"]
    return text if value[0] == "'" else _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)
