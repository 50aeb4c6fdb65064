"""``mcp-actors call``, ``tools`` and ``graph``: connect once, and print the answer.

Uses the configuration and the connected group of a command (``_configuration``, ``_connect``), and writes through its
`Output`; a bar of progress is drawn on the console of that. `parse_arguments` makes the arguments of a call from
``--args`` and from words like ``key=value``, by the schema of the tool. Credentials are masked here in the error about
a failed result and in descriptions of tools, not in other results, nor in the JSON of a result. The functions of the
commands return exit codes, or raise an error. ``_app`` imports this file when one of the three runs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp import MCPError
from mcp.types import CallToolResult, EmbeddedResource, TextContent, TextResourceContents
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from .._text import plain_text
from ..catalog import CatalogTool
from ..config import ProgressCallback
from ..kernel import TreeNode
from ._configuration import load
from ._connect import answered, masker_of, open_once, open_one
from ._output import Misuse, Output, unknown

# --- Convert ``key=value`` words to the arguments of a tool -----------------------------------------------------------


def parse_arguments(words: Iterable[str], as_json: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call.

    The type of a value is the one that the schema has for its key: text, a number, true or false, or JSON. A key whose
    type is an array may be repeated. If the schema has no type for a key, a value that is valid JSON is converted, and
    any other is text.

    Args:
        words: words of the form ``key=value``.
        as_json: a JSON object with arguments, to which the words are added.
        schema: the input schema of the tool.

    Raises:
        Misuse: a word has no ``=``, its key is not an argument of the tool, or its value has the wrong type.
    """
    arguments = _object(as_json) if as_json is not None else {}
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise Misuse(f"{word!r} is not an argument; write key=value, or --args '{{…}}'")
        others = schema.get("additionalProperties")
        if key not in known and not others and (known or others is False):
            raise unknown(f"the tool has no argument {key!r}", key, known, "arguments")
        _add(arguments, key, text, known.get(key))
    return arguments


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Misuse(f"--args is not valid JSON ({error}); write --args '{{\"key\": …}}'") from None
    except RecursionError:
        raise Misuse("--args is nested too deeply; use fewer levels") from None
    if not isinstance(found, dict):
        raise Misuse("--args is not a JSON object; write --args '{\"key\": …}'")
    return found


def _add(arguments: dict[str, Any], key: str, text: str, schema: object) -> None:
    kinds = _kinds(schema)
    if "array" in kinds and not text.lstrip().startswith("["):
        items = schema.get("items") if isinstance(schema, Mapping) else None
        others = arguments.get(key, [])
        if not isinstance(others, list):
            raise Misuse(
                f"argument {key!r}: cannot add {text!r}, because --args does not set it to an array; change that"
            )
        arguments[key] = [*others, _value(key, text, _kinds(items))]
    else:
        arguments[key] = _value(key, text, kinds)


def _kinds(schema: object) -> frozenset[str]:
    """Return the types that a schema allows, as far as ``type``, ``anyOf`` and ``oneOf`` say."""
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


_OF_JSON: dict[type, frozenset[str]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}


def _value(key: str, text: str, kinds: frozenset[str]) -> Any:
    """Convert a text to one of these types; it stays text only if no other type fits."""
    if kinds == {"string"}:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, float) and value.is_integer() and "integer" in kinds and "number" not in kinds:
        value = int(value)
    if not kinds or _OF_JSON[type(value)] & kinds:
        return value
    if "string" in kinds:
        return text
    raise Misuse(f"argument {key!r}: {text!r} is not of type {' or '.join(sorted(kinds))}")


async def call_tool(
    server: str, tool: str, words: Sequence[str], as_json: str | None, config: str | None, output: Output
) -> int:
    """Call a tool, print its result, and return the exit code."""
    async with open_one(server, config, output) as group:
        [(server, ref)] = group.items()  # by its name here
        mask = masker_of(ref)
        found = _find([each for each in group.tools if each.server == server], server, tool)
        arguments = parse_arguments(words, as_json, found.input_schema)
        async with _progress_bar(output) as report:
            try:
                result = await ref.call_tool(found.name, arguments, progress=report)
            except MCPError as error:
                raise answered(server, error) from None
    output.json(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    if result.is_error:
        output.error(f"tool {tool!r} failed: {mask(_text_of(result)) or 'the server gave no reason'}")
        return 1
    output.text(_text_of(result))
    return 0


def _find(tools: list[CatalogTool], server: str, name: str) -> CatalogTool:
    for tool in tools:
        if name in (tool.name, tool.public_name):
            return tool
    names = [tool.name for tool in tools]
    raise unknown(f"server {server!r} has no tool {name!r}", name, names, "tools")


@asynccontextmanager
async def _progress_bar(output: Output) -> AsyncIterator[ProgressCallback]:
    """Show a bar on stderr from the first progress on, if stderr is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    # By default rich refreshes it from a thread of its own.
    bar = Progress(*columns, console=output.messages, auto_refresh=False, transient=True)
    task = bar.add_task("", total=None)

    async def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        if output.messages.is_terminal:
            bar.start()
            text = escape(plain_text(message or "", limit=60))  # else rich would take it as markup
            bar.update(task, completed=progress, total=total, description=text, refresh=True)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()


def _text_of(result: CallToolResult) -> str:
    """Return a result as text: its texts, or its structured content; other parts by their type and size."""
    parts = [_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, indent=2, ensure_ascii=False)
    return "\n".join(parts)


def _part(part: Any) -> str:
    if isinstance(part, TextContent):
        return part.text
    if isinstance(part, EmbeddedResource) and isinstance(part.resource, TextResourceContents):
        return part.resource.text
    data = getattr(part, "data", "")
    size = f", {len(data) * 3 // 4} bytes" if data else ""
    where = getattr(part, "uri", None) or getattr(part, "mime_type", None) or ""
    return f"[{part.type} {where}{size}; see it with --json]"


# --- ``mcp-actors tools``: list the tools of the servers --------------------------------------------------------------


async def list_tools(names: Sequence[str], config: str | None, output: Output) -> int:
    """Print the tools of the servers, and return the exit code."""
    loaded = load(config, names, output)
    async with open_once(loaded, output) as group:
        listed: list[dict[str, Any]] = []
        for tool in group.tools:
            mask = masker_of(group[tool.server])
            description = mask.data(tool.description)
            arguments = ", ".join(_arguments(tool.input_schema))
            output.item(tool.server, tool.name, f"({arguments})", description)
            listed.append(
                {
                    "server": tool.server,
                    "name": tool.name,
                    "public_name": tool.public_name,
                    "description": description,
                    "input_schema": tool.input_schema,
                }
            )
        output.json(listed)
        errors = [*loaded.errors, *group.errors.values()]
    return output.errors(errors)


def _arguments(schema: Any) -> list[str]:
    """Return the names of a tool's arguments, optional ones in brackets."""
    required = schema.get("required", ())
    names = schema.get("properties") or {}
    return [name if name in required else f"[{name}]" for name in names]


# --- ``mcp-actors graph``: draw the tree of actors behind the servers -------------------------------------------------


async def draw_graph(names: Sequence[str], config: str | None, output: Output) -> int:
    """Print the tree of actors behind the servers, and return the exit code."""
    loaded = load(config, names, output)
    async with open_once(loaded, output) as group:
        tree = group.tree()
        errors = [*loaded.errors, *group.errors.values()]
    for line in str(tree).splitlines():
        output.line(line)
    output.json(_as_data(tree))
    return output.errors(errors)


def _as_data(node: TreeNode) -> dict[str, Any]:
    return {
        "id": node.id,
        "path": node.path,
        "kind": node.kind,
        "state": node.state,
        "incarnation": node.incarnation,
        "queued": node.queued,
        "in_flight": node.in_flight,
        "oldest_wait": node.oldest_wait,
        "restarts": node.restarts,
        "last_error": node.last_error,
        "children": [_as_data(child) for child in node.children],
    }
