"""The commands ``call``, ``tools`` and ``graph``, which connect once.

Large schemas are shortened, except in JSON. Credentials are masked in descriptions, schemas and printed errors, but not
in results.

Owns: the progress bar.
Writes: requests to servers; the command's output.
Calls: catalog, config, servers, transports, _configuration, _connect, _output.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from mcp.types import CallToolResult, EmbeddedResource, TextContent, TextResourceContents
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from .._errors import RequestTimedOut
from .._text import plain_text
from ..catalog import CatalogTool
from ..config import LoadedConfig, ProgressCallback
from ..servers import ServerGroup, ServerRef
from ..transports import Masker
from ._configuration import COMMAND, load, load_tool
from ._connect import answer_or_failure, hidden_of, masker_of, open_loaded, open_once
from ._output import Binary, Failure, Misuse, Output, unknown

# --- Convert ``key=value`` words, or JSON, to the arguments of a tool -------------------------------------------------


def given_as_json(words: Sequence[str]) -> dict[str, Any] | None:
    """Return JSON arguments: an object, ``@FILE``, or ``@-`` for standard input; None for words like ``key=value``."""
    if not any(word.startswith(("{", "@")) for word in words):
        return None
    if len(words) > 1 and words[0].startswith("{") and not words[0].endswith("}"):
        raise Misuse(
            f"the shell has split the JSON object into {len(words)} words; put it in single quotes: '{{\"key\": …}}'"
        )
    if len(words) > 1:
        raise Misuse(
            "arguments are either words like key=value, or one JSON object ('{…}', @FILE or -); write all of them "
            "in one of these forms"
        )
    [word] = words
    if word.startswith("{"):
        return _object(word, "the JSON object")
    if word == "@-":
        return _object(sys.stdin.read(), "the standard input")
    try:
        return _object(Path(word[1:]).read_text(encoding="utf-8"), word)
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Failure(f"cannot read the arguments from {word[1:]!r}: {problem}; correct the path after '@'") from None


def parse_arguments(words: Iterable[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Convert words like ``key=value`` to the arguments of a call.

    The schema has the type of each value; an array's key may be repeated. A value without a type in the schema is
    converted if it is valid JSON, and is text otherwise.
    """
    arguments: dict[str, Any] = {}
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            remedy = "write key=value without spaces, or one JSON object"
            raise Misuse(f"{word!r} is not an argument; {remedy}; the keys are: {', '.join(known) or 'none'}")
        others = schema.get("additionalProperties")
        if key not in known and not others and (known or others is False):
            raise unknown(f"the tool has no argument {key!r}", key, known, "arguments")
        found = _resolved(known.get(key), schema)
        if key in arguments and "array" not in _kinds(found):
            remedy = "write it once, or all arguments as one JSON object"
            raise Misuse(f"argument {key!r} is given more than once; {remedy}")
        _add(arguments, key, text, found)
    return arguments


def _object(text: str, source: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        problem = f"is not valid JSON ({error})" if text.strip() else "is empty"
        raise Misuse(f"{source} {problem}; write '{{\"key\": …}}', in single quotes if it is typed") from None
    except RecursionError:
        raise Misuse(f"{source} is nested too deeply; use fewer levels") from None
    if not isinstance(found, dict):
        raise Misuse(f'{source} is not a JSON object; write {{"key": …}}')
    return found


def _add(arguments: dict[str, Any], key: str, text: str, schema: object) -> None:
    kinds = _kinds(schema)
    if "array" in kinds and not text.lstrip().startswith("["):
        items = schema.get("items") if isinstance(schema, Mapping) else None
        others = arguments.get(key, [])
        arguments[key] = [*others, _value(key, text, _kinds(items))]
    else:
        arguments[key] = _value(key, text, kinds)


def _kinds(schema: object) -> frozenset[str]:
    if not isinstance(schema, Mapping):
        return frozenset()
    kinds: set[str] = set()
    named = schema.get("type")
    kinds.update(each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str))
    for alternative in (*_list(schema, "anyOf"), *_list(schema, "oneOf")):
        kinds |= _kinds(alternative)
    return frozenset(kinds)


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


_JSON_TYPES_OF: dict[type, frozenset[str]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}


def _value(key: str, text: str, kinds: frozenset[str]) -> Any:
    """Convert a text to one of the types `kinds`; the result is a str only if no other type fits."""
    if kinds == {"string"}:
        return text
    try:
        # People type Python's words, as in a shown signature.
        value = json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ValueError) and text[:1] in ("[", "{") and kinds and "string" not in kinds:
            raise Misuse(f"argument {key!r}: {text!r} is not valid JSON ({error}); correct it there") from None
        value = text
    if isinstance(value, float) and value.is_integer() and "integer" in kinds and "number" not in kinds:
        value = int(value)
    if not kinds or _JSON_TYPES_OF[type(value)] & kinds:
        return value
    if "string" in kinds:
        return text
    raise Misuse(f"argument {key!r}: {text!r} is not of type {' or '.join(sorted(kinds))}")


async def call_tool(words: Sequence[str], config: str | None, output: Output, seconds: float | None) -> int:
    """Call a tool. `words` are the server, the tool and its arguments, as typed."""
    loaded, [*named] = load_tool(config, words, output)
    if (not named or "=" in named[0]) and words[0].startswith(COMMAND):
        typed = words[0].removeprefix(COMMAND)
        raise Misuse(f"no tool is named; write it before '--': mcp-actors call TOOL key=value -- {typed}")
    if not named or "=" in named[0]:
        raise Misuse(f"name a tool of {words[0]!r}: mcp-actors call {words[0]} TOOL; mcp-actors tools lists them")
    tool, *given = named
    try:
        arguments = given_as_json(given)
    except Failure as error:
        server = " or ".join(repr(each.name) for each in loaded.servers) or repr(words[0])
        raise type(error)(f"server {server}: tool {tool!r}: {error}") from None
    async with open_loaded(_within(loaded, seconds), output) as group:
        found, ref, mask = _find(group, tool)
        if arguments is None:
            try:
                arguments = parse_arguments(given, found.input_schema)
            except Misuse as error:
                see = f"; see mcp-actors tools {ref.name} {found.name}" if ref.config.source else ""
                raise Misuse(f"server {ref.name!r}: tool {found.name!r}: {error}{see}") from None
        async with _progress_of(output) as report:
            try:
                result = await answer_or_failure(ref, ref.call_tool(found.name, arguments, progress=report))
            except RequestTimedOut as error:
                if seconds is None:
                    error.add_note("to wait longer, add --timeout SECONDS")
                    raise
                said = str(error).replace("(request_timeout)", "(--timeout)")
                raise Failure(f"{said}; raise --timeout, or leave it out") from None
    output.json(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    if result.is_error:
        reason = "\n".join(map(str, _parts_of(result)))
        output.error(f"tool {tool!r} failed: {mask(reason) or 'the server gave no reason'}")
        return 1
    output.parts(_parts_of(result))
    return 0


def _within(loaded: LoadedConfig, seconds: float | None) -> LoadedConfig:
    if seconds is None:
        return loaded
    servers = [attrs.evolve(each, request_timeout=seconds, progress_timeout=None) for each in loaded.servers]
    return attrs.evolve(loaded, servers=tuple(servers))


def _find(group: ServerGroup, name: str) -> tuple[CatalogTool, ServerRef, Masker]:
    for tool in group.tools:
        if name in (tool.name, tool.public_name):
            return tool, (ref := group[tool.server]), masker_of(ref)
    servers = " or ".join(map(repr, group))
    raise unknown(f"server {servers} has no tool {name!r}", name, [tool.name for tool in group.tools], "tools")


@asynccontextmanager
async def _progress_of(output: Output) -> AsyncIterator[ProgressCallback]:
    """Show progress on stderr: a bar on a terminal, otherwise at most one line a second."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    bar = Progress(*columns, console=output.messages, auto_refresh=False, transient=True)
    task = bar.add_task("", total=None)
    due = trio.current_time()

    async def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        nonlocal due
        text = plain_text(message or "", limit=60)
        if output.messages.is_terminal:
            bar.start()
            # Unescaped, rich would take the text as markup.
            bar.update(task, completed=progress, total=total, description=escape(text), refresh=True)
        elif trio.current_time() >= due:
            due = trio.current_time() + 1
            output.progress(f"progress: {progress:g}{'' if total is None else f' of {total:g}'} {text}")

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()


def _parts_of(result: CallToolResult) -> list[str | Binary]:
    parts = [_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        return [json.dumps(result.structured_content, indent=2, ensure_ascii=False)]
    return parts


def _part(part: Any) -> str | Binary:
    if isinstance(part, TextContent):
        return part.text
    if isinstance(part, EmbeddedResource):
        held = part.resource
        return held.text if isinstance(held, TextResourceContents) else Binary(held.mime_type or "binary", held.blob)
    if data := getattr(part, "data", ""):
        return Binary(part.mime_type, data)
    return f"[{part.type} {getattr(part, 'uri', '')}; see it with --json]"


# --- ``mcp-actors tools``: list the tools of the servers --------------------------------------------------------------


async def list_tools(names: Sequence[str], config: str | None, output: Output) -> int:
    loaded, named = load_tool(config, names, output, lists=True)
    if named:
        return await _show_tool(loaded, named, output)
    async with open_once(loaded, output) as group:
        listed: list[dict[str, Any]] = []
        for tool in group.tools:
            mask = masker_of(group[tool.server])
            description, schema = map(mask.data, (tool.description, tool.input_schema))
            output.item(tool.server, tool.name, f"({', '.join(_arguments(schema))})", description)
            listed.append(
                {
                    "server": tool.server,
                    "name": tool.name,
                    "public_name": tool.public_name,
                    "description": description,
                    "inputSchema": schema,
                }
            )
        for ref in group.connected:
            hidden = hidden_of(ref, output)
            kind = f"tools that its filter shows ({hidden} hidden by it)" if hidden else "tools"
            output.without(kind, [ref.name], listed)
        output.json(listed)
        errors = [*loaded.errors, *group.errors.values()]
    return output.errors(errors)


def _arguments(schema: Any) -> list[str]:
    required = schema.get("required", ())
    names = schema.get("properties") or {}
    return [name if name in required else f"[{name}]" for name in names]


async def _show_tool(loaded: LoadedConfig, named: Sequence[str], output: Output) -> int:
    name, *others = named
    if others:
        raise Misuse(f"too many words after a tool: {' '.join(others)}; name one tool, or servers")
    async with open_loaded(loaded, output) as group:
        found, ref, mask = _find(group, name)
        if output.as_json:
            [tool] = [each for each in await answer_or_failure(ref, ref.list_tools()) if each.name == found.name]
            output.json(mask.data(tool.model_dump(mode="json", by_alias=True, exclude_none=True)))
            return 0
        schema = mask.data(found.input_schema)
    title, *lines = signature(found.name, schema)
    output.line((title, "bold"))
    for line in (*lines, *_indented(mask.data(found.description) or ""), *explained(schema)):
        output.line(line)
    return 0


def _indented(text: str) -> list[str]:
    return [f"    {line}".rstrip() for line in text.strip().splitlines()]


# --- Show a schema to people ------------------------------------------------------------------------------------------

# References may form a cycle, or double the size at each level, so levels, members and texts are cut.


_SCHEMA_LEVELS: Final = 4
_LISTED_LINES: Final = 12  # members of an object, values of an enum, alternatives
_SHOWN_DESCRIPTION: Final = 200  # characters of a type, a default or a limit

_PYTHON_TYPES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

_LIMITS: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"),
    *("format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
)
_PLAIN_NAME: Final = re.compile(r"[\w.-]{1,64}")


def signature(name: str, schema: Any) -> list[str]:
    """Return a tool as a signature with Python's types, in one line or in a line for each argument.

    Optional arguments without a default end in ``= …``.
    """
    words = []
    for key, member, required in _arguments_of(schema):
        default = f" = {_literal(member['default'])}" if "default" in member else " = …"
        words.append(f"{_key(key)}: {_cut(_type(member, schema, _SCHEMA_LEVELS))}{'' if required else default}")
    if isinstance(schema, Mapping) and (more := schema.get("additionalProperties")):
        words.append(f"**others: {_cut(_type(more, schema, _SCHEMA_LEVELS))}")
    line = f"{_key(name)}({', '.join(words)})"
    return [line] if len(line) <= 88 else [f"{_key(name)}(", *(f"    {word}," for word in words), ")"]


def explained(schema: Any) -> list[str]:
    """Return an empty line, and a line for each argument that has a description or limits."""
    rows = []
    for key, member, _ in _arguments_of(schema):
        said = member.get("description")
        parts = [_resolved(part, schema) for part in islice(_list(member, "anyOf"), _LISTED_LINES)]
        limits = {
            f"{limit} {_cut(str(part[limit]))}": None
            for limit in _LIMITS
            for part in (member, *parts)
            if isinstance(part, Mapping) and limit in part
        }
        words = [plain_text(said)] if isinstance(said, str) else []
        if words or limits:
            rows.append((_key(key), " ".join([*words, *([f"({', '.join(limits)})"] if limits else [])])))
    width = max((len(key) for key, _ in rows), default=0)
    return ["", *(f"    {key:{width}}  {words}" for key, words in rows)] if rows else []


def _arguments_of(schema: Any) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Yield name, schema and whether required for each argument, required ones first."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if isinstance(properties, Mapping):
        required = _list(schema, "required")
        for key in islice(sorted(properties, key=lambda key: key not in required), 200):
            member = _resolved(properties[key], schema)
            yield key, member if isinstance(member, Mapping) else {}, key in required


def _resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return a schema with the contents of ``$ref`` and ``allOf``. References to other documents are ignored."""
    for _ in range(_SCHEMA_LEVELS):
        if not isinstance(schema, Mapping) or not ("$ref" in schema or "allOf" in schema):
            break
        parts = [_referred(schema.get("$ref"), root), *islice(_list(schema, "allOf"), _LISTED_LINES)]
        rest = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        schema = {key: value for part in (*parts, rest) if isinstance(part, Mapping) for key, value in part.items()}
    return schema


def _referred(ref: Any, root: Any) -> Any:
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    for part in ref.split("/", 2 * _SCHEMA_LEVELS)[1:]:
        root = root.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(root, Mapping) else None
    return root


def _type(schema: Any, root: Mapping[str, Any], levels: int) -> str:
    """Return a type in Python's notation, with enum values and members of objects in JSON's."""
    schema = _resolved(schema, root)
    if not isinstance(schema, Mapping):
        return "never" if schema is False else "any"
    if not levels:
        return "…"
    values = [schema["const"]] if "const" in schema else _list(schema, "enum")
    if values:
        return _few("|", map(_literal, values))
    kind = schema.get("type")
    kinds = [{**schema, "type": each} for each in kind] if isinstance(kind, list) else []
    if alternatives := [*_list(schema, "anyOf"), *_list(schema, "oneOf")] or kinds:
        return _few(" | ", dict.fromkeys(_type(each, root, levels - 1) for each in alternatives[:_LISTED_LINES]))
    if kind == "array":
        return f"list[{_type(schema['items'], root, levels - 1)}]" if schema.get("items") else "list"
    return _object_type(schema, root, levels) if kind == "object" else _PYTHON_TYPES.get(str(kind), "any")


def _object_type(schema: Mapping[str, Any], root: Mapping[str, Any], levels: int) -> str:
    members, required, more = schema.get("properties"), _list(schema, "required"), schema.get("additionalProperties")
    if isinstance(members, Mapping) and members:
        shown = (
            f"{_key(key)}{'' if key in required else '?'}: {_type(member, root, levels - 1)}"
            for key, member in members.items()
        )
        return f"{{{_few(', ', shown)}}}"
    return f"dict[str, {_type(more, root, levels - 1)}]" if isinstance(more, Mapping) else "dict"


def _few(separator: str, texts: Iterable[str]) -> str:
    shown = [*islice(texts, _LISTED_LINES + 1)]
    return separator.join(shown if len(shown) <= _LISTED_LINES else [*shown[:_LISTED_LINES], "…"])


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    try:
        return _cut(json.dumps(value, ensure_ascii=False))
    except (ValueError, RecursionError):
        return "…"


def _key(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else _cut(json.dumps(name, ensure_ascii=False))


def _cut(text: str) -> str:
    return plain_text(text, limit=_SHOWN_DESCRIPTION)


# --- ``mcp-actors graph``: draw the tree of actors behind the servers -------------------------------------------------


async def draw_graph(names: Sequence[str], config: str | None, output: Output) -> int:
    loaded = load(config, names, output)
    async with open_once(loaded, output) as group:
        tree = group.tree()
        errors = [*loaded.errors, *group.errors.values()]
    for line in str(tree).splitlines():
        output.line(line)
    output.json(attrs.asdict(tree, filter=lambda field, _: field.name not in ("handling", "dropped")))
    return output.errors(errors)
