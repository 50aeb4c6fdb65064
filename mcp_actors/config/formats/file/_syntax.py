"""Parse JSON, JSON with comments and trailing commas, and TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from ...._errors import ConfigError
from .._places import bad

_COMMENT: Final = re.compile(r'(?P<keep>"(?:[^"\\\n]|\\.)*+"?)|//[^\n]*+|/\*(?:.*?\*/|.*+)', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r'(?P<keep>"(?:[^"\\\n]|\\.)*+"?)|,(?=[ \t\r\n]*+[}\]])', re.DOTALL)
_NOT_NEWLINE: Final = re.compile(r"[^\n]")
_SHOWN_OF_PROBLEM: Final = 120  # characters of the parser's message, which may repeat a key

MAX_COMMENTED: Final = 2 * 1024 * 1024
"""Characters of JSON in which comments are removed, in about a second; longer files are written by programs."""

MAX_TOML: Final = 1024 * 1024
"""Characters of TOML to read; the parser is written in Python and takes about a second for that."""

_KEY_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_LONG_KEY: Final = re.compile(rf"(?<![\w.-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{64}}")
"""A dotted key of more than 64 parts; `tomllib` needs time and memory quadratic in their number."""

_TOML_PLACE: Final = re.compile(r"\(at (line \d+, column \d+|end of document)\)$")


class JsonObject(dict[str, Any]):
    """A JSON object that knows which of its keys appeared more than once."""

    repeated: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> JsonObject:
        """Make one of the pairs that a parser has found."""
        made = cls(pairs)
        if len(made) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            made.repeated = tuple(key for key, count in counts.items() if count > 1)
        return made


def repeated_keys(mapping: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the keys that appeared more than once; the mapping has the last value of each."""
    return mapping.repeated if isinstance(mapping, JsonObject) else ()


def parse(source: str, text: str) -> Mapping[str, Any] | ConfigError:
    """Parse a file by its suffix, else by its first characters; return the object in it, or the error."""
    suffix = source.rpartition(".")[2].lower()
    if suffix in ("yaml", "yml"):
        return bad(
            source,
            "",
            "YAML is not supported here; use JSON (.json) or TOML (.toml), or a DirectorySource",
        )
    if suffix == "toml" or (suffix != "json" and re.match(r"\s*(\[+[\w.\"-]+\]|#|[\w.-]+\s*=)", text)):
        document = _parse_toml(source, text)
    else:
        document = _parse_json(source, text)
    if isinstance(document, (Mapping, ConfigError)):
        return document
    return bad(source, "", "the file has no object at its top level; write {…} with the servers under 'mcpServers'")


# --- JSON -----------------------------------------------------------------------------------------------------------


def _parse_json(source: str, text: str) -> Any:
    if not text.strip():
        return bad(source, "", 'the file is empty; write {"mcpServers": {}} or remove it')
    try:
        return _loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _loads(without_comments(text) if len(text) <= MAX_COMMENTED else text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return bad(source, "", f"the file is not valid JSON: {error.msg.partition(':')[0]} ({where})")
    except RecursionError:
        return bad(source, "", "the file is nested too deeply to be read")
    except ValueError as error:
        reason = f"{error} is not a number in JSON" if isinstance(error, _NoNumber) else "a number has too many digits"
        return bad(source, "", f"the file is not valid JSON: {reason}")


def without_comments(text: str) -> str:
    """Replace comments and trailing commas with spaces, so that every other character keeps its place."""
    return _blanked(_TRAILING_COMMA, _blanked(_COMMENT, text))


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda found: found["keep"] or _NOT_NEWLINE.sub(" ", found[0]), text)


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=JsonObject.of, parse_constant=_no_constant)


class _NoNumber(ValueError):
    """A word that Python reads as a number, but JSON does not allow: NaN, Infinity."""


def _no_constant(word: str) -> NoReturn:
    raise _NoNumber(word)


# --- TOML -----------------------------------------------------------------------------------------------------------


def _parse_toml(source: str, text: str) -> Any:
    if len(text) > MAX_TOML or _LONG_KEY.search(text):
        problem = "is larger than 1 MiB" if len(text) > MAX_TOML else "has a key of more than 64 parts"
        return bad(source, "", f"the file {problem}; check that it is the right one")
    try:
        return tomllib.loads(text)
    except RecursionError:
        return bad(source, "", "the file is nested too deeply to be read")
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
        place = _TOML_PLACE.search(problem)
        where = f" ({place[1]})" if place else ""
        return bad(
            source,
            "",
            f"the file is not valid TOML: {_TOML_PLACE.sub('', problem).strip():.{_SHOWN_OF_PROBLEM}}{where}",
        )
    except ValueError:
        return bad(source, "", "the file is not valid TOML: a number or a date is invalid")
