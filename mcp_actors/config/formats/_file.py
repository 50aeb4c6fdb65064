"""Read a configuration or ``.env`` file into data, within size limits.

A file may be huge, a pipe, or hostile to a parser. No error may show a value. A parser's error, which holds the whole
content, is replaced.

Owns: the open file.
Writes: nothing.
Calls: config.
"""

from __future__ import annotations

import codecs
import difflib
import json
import os
import re
import stat
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeAlias

from ..._errors import ConfigError
from ..._json import walk
from ..._misuse import names_containing
from .._validators import a_type, shown

# --- Describe places and values in errors -----------------------------------------------------------------------------


_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_$-]{1,64}")
_JSON_MEMBER: Final = re.compile(r'"(\w+)": ')
_SHOWN_OF_KEY: Final = 40  # characters of a key in a message


def child(path: str, key: object) -> str:
    """Return the place of `key` in the object at `path`: ``"mcpServers.docs"``, ``'mcpServers["my docs"]'``."""
    if isinstance(key, int):
        return f"{path}[{shown(key)}]"
    if isinstance(key, str) and _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{shown_key(key)}]"


def shown_key(key: object) -> str:
    """Return the start of a key in ASCII, or the type of a key that is not a str."""
    if not isinstance(key, str):
        return f"<{a_type(key)}>"
    # The text after "=" or ":" may be a credential, written where only its name belongs.
    name = re.split(r"[=:]\s*", key, maxsplit=1)[0]
    text = json.dumps(name[:_SHOWN_OF_KEY])
    return text if name[:_SHOWN_OF_KEY] == key else f"{text[:-1]}…{text[-1]}"


def found(value: object) -> str:
    """Describe a value without showing it: ``"a str of 12 characters"``, ``"an int"``."""
    if isinstance(value, str):
        return f"a str of {len(value)} character{'s' if len(value) > 1 else ''}" if value else "an empty str"
    return "an object" if isinstance(value, JsonObject) else a_type(value)


def nearest(word: object, choices: Iterable[str]) -> str | None:
    if not isinstance(word, str):
        return None
    by_lower = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(word.lower()[:64], by_lower, n=1, cutoff=0.75)
    stem = word.lower().rstrip("s")
    near += sorted(names_containing(word.lower(), by_lower), key=lambda choice: not choice.startswith(stem))
    return by_lower[near[0]] if near else None


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """Return ``" (did you mean 'url'?)"`` if `word` is a near miss or a part of several choices, else ``""``."""
    near = nearest(word, choices := [*choices])
    if near is None:
        return ""
    alike = sorted(names_containing(str(word).lower(), choices))
    return f" (did you mean {' or '.join(map(repr, alike if near in alike else [near]))}?)"


def in_notation(source: str, problem: str) -> str:
    """Return a problem with its examples in the notation of the file, which is TOML or JSON."""
    return _JSON_MEMBER.sub(r"\1 = ", problem) if source.endswith(".toml") else problem


def bad(source: str, path: str, problem: str) -> ConfigError:
    problem = in_notation(source, problem)
    return ConfigError(problem, owner=f"{source}: {path}" if path else source, source=source, path=path or None)


def repeated(source: str, path: str, keys: tuple[str, ...]) -> ConfigError:
    return bad(source, path, f"{', '.join(map(shown_key, keys))} appears more than once; remove all but one")


def as_object(source: str, path: str, value: object, expected: str) -> Mapping[Any, Any]:
    """Return an object; refuse anything else, and repeated keys."""
    if not isinstance(value, Mapping):
        raise bad(source, path, f"found {found(value)}; write {expected}")
    if twice := repeated_keys(value):
        raise repeated(source, path, twice)
    return value


# --- Limit sizes ------------------------------------------------------------------------------------------------------

# Some programs keep megabytes of other data in their file, so sections have limits of their own, far beyond anything
# that people write. A larger section is refused before any processing.


MAX_SERVERS: Final = 1000
"""Servers in one section. The largest shared lists have a few hundred."""

MAX_SIZE: Final = 1024 * 1024
"""Size of a section: the characters of its strings, plus `_WEIGHT` for every value and key."""

_WEIGHT: Final = 16
"""Characters that take as long to process as one value or key."""


def check_size(source: str, path: str, section: object) -> None:
    """Refuse a section that has too many servers, is too large, or contains itself."""
    if isinstance(section, Mapping) and len(section) > MAX_SERVERS:
        raise bad(source, path, f"there are more than {MAX_SERVERS} entries here; check that this is the right file")
    left = MAX_SIZE
    for each in _everything_in(section):
        left -= _WEIGHT + (len(each) if isinstance(each, str) else 0)
        if left < 0:
            problem = f"there is more than {MAX_SIZE // 1024**2} MiB here"
            raise bad(source, path, f"{problem}; check that this is the right file")


def check_numbers(source: str, path: str, entry: object) -> None:
    """Refuse integers too large for a float, or for Python to print."""
    for each in _everything_in(entry):
        if isinstance(each, int) and each.bit_length() > sys.float_info.max_exp:
            raise bad(source, path, "a number has too many digits; write a smaller one")


def _everything_in(value: object) -> Iterator[object]:
    """Yield a value and everything inside, including keys; without end if it contains itself."""
    for each, _ in walk(value):
        yield each
        if isinstance(each, Mapping):
            yield from each


# --- Read a file ------------------------------------------------------------------------------------------------------


MAX_FILE_BYTES: Final = 16 * 1024 * 1024

Content: TypeAlias = tuple[bytes, os.stat_result]
"""The content of a file, and its status when it was read."""

_ENCODINGS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order mark → encoding. UTF-32 comes first because its mark begins with that of UTF-16. The default is UTF-8."""


def file_name(path: object, argument: str, remedy: str = "give a path") -> str:
    """Return a path as a str, with ``~`` expanded. `argument` names the caller and its argument in errors."""
    given = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(given, str):
        problem = f"is {a_type(given)}; {remedy}"
    elif "://" in given:
        problem = 'is a URL, not the path of a file; for one server write ServerConfig("name", Http("https://…"))'
    elif not given or "\0" in given:
        problem = f"{'contains a NUL character' if given else 'is empty'}; give a path"
    else:
        return os.path.expanduser(given)
    raise ConfigError(f"{argument} {problem}", source=argument.partition(":")[0])


_COMMAND_LINE: Final = re.compile(r"[\w-]{1,64}(?: .*)?", re.ASCII)
"""A command without a folder or an ending, perhaps with arguments."""


def read_bytes(name: str) -> Content:
    """Read a regular file of at most `MAX_FILE_BYTES`, without waiting for a writer."""
    try:
        # O_NONBLOCK: opening a named pipe would otherwise block this thread until a process opens it for writing, and
        # no timeout ends the wait. The type is checked on the open descriptor: between a check of the path and the
        # open, the file could be replaced.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise bad(name, "", _unreadable(error, name)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a pipe, a device or a socket"
            remedy = "give the path of a file" + (", or a DirectorySource" if stat.S_ISDIR(status.st_mode) else "")
            raise bad(name, "", f"this is {kind}, not a file; {remedy}")
        data = b"".join(_pieces(descriptor))
    except OSError as error:
        raise bad(name, "", _unreadable(error, name)) from None
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise bad(name, "", f"the file is larger than {MAX_FILE_BYTES // 1024**2} MiB; check that it is the right one")
    return data, status


def _pieces(descriptor: int) -> Iterator[bytes]:
    """Yield the content of a file, up to one byte beyond the limit."""
    left = MAX_FILE_BYTES + 1
    while left > 0 and (piece := os.read(descriptor, min(left, 1024 * 1024))):
        left -= len(piece)
        yield piece


def _unreadable(error: OSError | ValueError, name: str) -> str:
    if isinstance(error, FileNotFoundError):
        file, marked, server = name.rpartition("#")
        if marked and os.path.isfile(file):
            remedy = f"so give the file as {file}, and the server {server!r} apart"
            return f"file not found; only serve and attach take FILE#SERVER, {remedy}"
        if _COMMAND_LINE.fullmatch(given := name.removeprefix(os.path.join(os.getcwd(), ""))):
            problem = "file not found, and a str is the path of a configuration file"
            return f"{problem}; for a program write ServerConfig('name', Stdio({given.split()[0]!r}, […]))"
        return "file not found; correct the path, or create the file"
    why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    return f"the file cannot be read ({why}); check the path and its permissions"


def decode(name: str, data: bytes) -> str:
    encoding = next((encoding for mark, encoding in _ENCODINGS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        place = error.start  # raise outside: as the context, this error would keep the whole content of the file
    raise bad(name, "", f"the file is not valid UTF-8 (at byte {place}); save it as UTF-8")


def permission_warnings(name: str, status: os.stat_result) -> list[str]:
    """Warn of a file that other users can write: they could make this program run any command."""
    if status.st_mode & stat.S_IWOTH:
        return [f"{name}: other users can write to this file and so choose what is run; run: chmod o-w {name}"]
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (os.getegid(), 0):
        return [f"{name}: its group can write to this file and so choose what is run; run: chmod g-w {name}"]
    return []


# --- Parse JSON and TOML ----------------------------------------------------------------------------------------------


_COMMENT: Final = re.compile(r'(?P<keep>"(?:[^"\\\n]|\\.)*+"?)|//[^\n]*+|/\*(?:.*?\*/|.*+)', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r'(?P<keep>"(?:[^"\\\n]|\\.)*+"?)|,(?=[ \t\r\n]*+[}\]])', re.DOTALL)
_NOT_NEWLINE: Final = re.compile(r"[^\n]")

MAX_COMMENTED: Final = 2 * 1024 * 1024
"""Maximum of characters of JSON with comments, removed in about a second."""

MAX_TOML: Final = 1024 * 1024
"""Maximum of characters of TOML, parsed in about a second, by Python code."""

_KEY_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_LONG_KEY: Final = re.compile(rf"(?<![\w.-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{64}}")
"""A dotted key of more than 64 parts, for which `tomllib` needs quadratic time and memory."""

_TOML_BEGINS: Final = re.compile(r"\s*(\[+[A-Za-z_][\w.\"-]*\]|[\w.-]+\s*=)")
_TOML_PLACE: Final = re.compile(r"\(at (line \d+, column \d+|end of document)\)$")


class JsonObject(dict[str, Any]):
    """A JSON object that knows its repeated keys."""

    repeated: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> JsonObject:
        made = cls(pairs)
        if len(made) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            made.repeated = tuple(key for key, count in counts.items() if count > 1)
        return made


def repeated_keys(mapping: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return keys that appeared more than once; the mapping has the last value of each."""
    return mapping.repeated if isinstance(mapping, JsonObject) else ()


def parse(source: str, text: str) -> Mapping[str, Any]:
    """Return the object in a file. The suffix decides the format, else the first characters."""
    suffix = source.rpartition(".")[2].lower()
    if suffix in ("yaml", "yml"):
        raise bad(source, "", "YAML is not supported here; use JSON (.json) or TOML (.toml), or a DirectorySource")
    begins = "json" if text.lstrip().startswith("{") else "toml" if _TOML_BEGINS.match(text) else suffix
    if begins != suffix in ("json", "toml"):
        raise bad(source, "", f"this file is {begins.upper()}, not {suffix.upper()}; let its name end in .{begins}")
    if suffix == "toml" or (suffix != "json" and (begins == "toml" or text.lstrip().startswith("#"))):
        document = _parse_toml(source, text)
    else:
        document = _parse_json(source, text)
    if isinstance(document, Mapping):
        return document
    raise bad(source, "", "the file has no object at its top level; write {…} with the servers under 'mcpServers'")


# --- JSON -----------------------------------------------------------------------------------------------------------


def _parse_json(source: str, text: str) -> Any:
    if not text.strip():
        raise bad(source, "", 'the file is empty; write {"mcpServers": {}} or remove it')
    try:
        return _loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _loads(without_comments(text) if len(text) <= MAX_COMMENTED else text)
    except json.JSONDecodeError as error:
        problem = f"the file is not valid JSON: {json_problem(error)}"
    except RecursionError:
        problem = "the file is nested too deeply to be read"
    except ValueError as error:
        reason = f"{error} is not a number in JSON" if isinstance(error, _NoNumber) else "a number has too many digits"
        problem = f"the file is not valid JSON: {reason}"
    raise bad(source, "", problem)


_PROBABLY: Final = {
    "Expecting ',' delimiter": "; a comma before it is probably missing",
    "Expecting property name enclosed in double quotes": "; a comma is too many, or the key needs double quotes",
    "Expecting value": "; a value is missing, a comma is too many, or text needs double quotes",
    "Invalid value": "; text needs double quotes, and true and false have small letters",
    "Unclosed array": "; a comma or the closing bracket is missing, or text needs double quotes",
    "Expected newline or end of document after a statement": "; text needs double quotes, or a line of its own",
    "Cannot overwrite a value": "; the key before it is there twice; remove one of them",
    "Extra data": "; a closing bracket before it is probably too many",
    "Invalid \\escape": "; write two backslashes for one",
    "Invalid control character at": "; the quotes in this line are probably not closed",
}
"""A problem found by the parser of JSON or TOML → the mistake behind it."""


def json_problem(error: json.JSONDecodeError) -> str:
    problem = error.msg.partition(": ")[0]
    ended = error.pos >= len(error.doc.rstrip())
    hint = "; the end is missing: close each '{' and '['" if ended else _PROBABLY.get(problem, "")
    if not ended and error.doc[error.pos] in "“”„«»\u2018\u2019":
        hint = f'; {error.doc[error.pos]} is a typographic quote; write the one of a keyboard: "'
    return f"{problem} (line {error.lineno}, column {error.colno}){hint}"


def without_comments(text: str) -> str:
    """Replace comments and trailing commas with spaces. Other characters keep their places."""
    return _blanked(_TRAILING_COMMA, _blanked(_COMMENT, text))


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda found: found["keep"] or _NOT_NEWLINE.sub(" ", found[0]), text)


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=JsonObject.of, parse_constant=_no_constant)


class _NoNumber(ValueError):
    """NaN or Infinity, numbers for Python but not for JSON."""


def _no_constant(word: str) -> NoReturn:
    raise _NoNumber(word)


# --- TOML -----------------------------------------------------------------------------------------------------------


def _parse_toml(source: str, text: str) -> Any:
    if len(text) > MAX_TOML or _LONG_KEY.search(text):
        problem = "is larger than 1 MiB" if len(text) > MAX_TOML else "has a key of more than 64 parts"
        raise bad(source, "", f"the file {problem}; check that it is the right one")
    try:
        return tomllib.loads(text)
    except RecursionError:
        problem = "the file is nested too deeply to be read"
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        where = f" ({place[1]})" if place else ""
        said = f"{_TOML_PLACE.sub('', str(error)).strip():.120}"  # it may repeat a long key
        if said.endswith(" twice"):  # Cannot declare ('mcp_servers', 'time') twice
            keys = ".".join(re.findall("'([^']*)'", said))
            said, where = f"[{keys}] is there twice", f"{where}; rename or remove one"
        problem = f"the file is not valid TOML: {said}{where}{_PROBABLY.get(said, '')}"
    except ValueError:
        problem = "the file is not valid TOML: a number or a date is invalid"
    raise bad(source, "", problem)


# --- Read ``.env`` files ----------------------------------------------------------------------------------------------

# These files have no specification, and libraries differ in what they expand, escape and skip. So only ``NAME=value``
# is promised; any other line is an error, instead of a variable that is silently missing.


MAX_ENV_BYTES: Final = 256 * 1024

_LINE: Final = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=(?P<value>.*)")
_SINGLE: Final = re.compile(r"'(?P<text>[^']*)'[ \t]*(?:#.*)?")
_DOUBLE: Final = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"[ \t]*(?:#.*)?')
_ENV_COMMENT: Final = re.compile(r"(?:^|(?<![ \t])[ \t]+)#.*")
"""A comment, from the first blank in front: trying each of many blanks would take quadratic time."""

_END: Final = re.compile(r"\r\n|\r|\n")
"""The end of a line. `str.splitlines` knows further ends, and would cut a value in two."""

_BACKSLASHED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(path: str | os.PathLike[str]) -> dict[str, str]:
    r"""Return the variables in a file.

    A line is empty, a comment (``# …``), or ``NAME=value`` with or without ``export``. In single quotes every character
    means itself; in double quotes ``\n``, ``\r``, ``\t``, ``\"`` and ``\\`` are escapes; without quotes a value ends at
    `` #`` or at the end of the line. An error has the number of the line and no value.
    """
    name = file_name(path, "load_config: env_file")
    data, _ = read_bytes(name)
    if len(data) > MAX_ENV_BYTES:
        raise bad(name, "", f"the file is larger than {MAX_ENV_BYTES // 1024} KiB; check that it is the right one")
    text = decode(name, data)
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
        problem = "variables are not expanded here; write the value itself, or '…' for the characters '${'"
        raise bad(source, name, problem)
    if quoted is None:
        return value
    text = quoted["text"]
    return text if value[0] == "'" else _BACKSLASHED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)
