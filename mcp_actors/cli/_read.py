"""Connect once and print the answer: ``resources``, ``read``, ``prompts``, ``prompt``.

Credentials are masked in descriptions, but not in the content of a resource or a prompt.

Owns: nothing.
Writes: requests to servers; the command's output.
Calls: servers, _configuration, _connect, _output.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from mcp import MCPError
from mcp.types import METHOD_NOT_FOUND, Prompt, PromptArgument, TextContent, TextResourceContents

from .._errors import McpActorsError, NotSupported
from ..servers import ServerRef
from ._configuration import load
from ._connect import answer_or_failure, answered, masker_of, open_once, open_one
from ._output import Binary, Failure, Misuse, Output, unknown


async def list_resources(names: Sequence[str], config: str | None, output: Output) -> int:
    async def resources(ref: ServerRef) -> list[dict[str, Any]]:
        return [_entry(ref, each, "uri", str(each.uri)) for each in await ref.list_resources()]

    async def templates(ref: ServerRef) -> list[dict[str, Any]]:
        found = await ref.list_resource_templates()
        return [_entry(ref, each, "uriTemplate", each.uri_template) for each in found]

    return await _list(names, config, output, "resources", resources, templates)


async def list_prompts(names: Sequence[str], config: str | None, output: Output) -> int:
    async def listed(ref: ServerRef) -> list[dict[str, Any]]:
        entries = []
        for each in await ref.list_prompts():
            arguments = [argument.model_dump(mode="json", exclude_none=True) for argument in each.arguments or ()]
            entries.append(_entry(ref, each, "arguments", masker_of(ref).data(arguments)))
        return entries

    return await _list(names, config, output, "prompts", listed)


def _entry(ref: ServerRef, item: Any, key: str, value: object) -> dict[str, Any]:
    return {"server": ref.name, "name": item.name, key: value, "description": masker_of(ref).data(item.description)}


def _in_brackets(arguments: list[dict[str, Any]]) -> str:
    names = (each["name"] if each.get("required") else f"[{each['name']}]" for each in arguments)
    return f"({', '.join(names)})"


async def _list(
    names: Sequence[str],
    config: str | None,
    output: Output,
    kind: str,
    *lists: Callable[[ServerRef], Awaitable[list[dict[str, Any]]]],
) -> int:
    """Print what the servers list. A list that a server does not support counts as empty."""
    try:
        loaded = load(config, names, output)
    except Misuse as error:
        one = {"prompts": "prompt", "resources": "read"}[kind]
        hint = f"; to print one: mcp-actors {one} {shlex.join(names)}" if names[1:] else ""
        raise Misuse(f"{error}{hint}") from None
    async with open_once(loaded, output) as group:
        entries: list[dict[str, Any]] = []
        failed: set[str] = set()
        errors = [*loaded.errors, *group.errors.values()]
        for ref, listed in product(group.connected, lists):
            try:
                entries += await listed(ref)
                continue
            except NotSupported:
                continue
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    continue
                errors.append(answered(ref.name, error))
            except McpActorsError as error:
                errors.append(error)
            failed.add(ref.name)
        output.without(kind, [ref.name for ref in group.connected if ref.name not in failed], entries)
    for entry in entries:
        words = entry.get("uri") or entry.get("uriTemplate") or _in_brackets(entry["arguments"])
        output.item(entry["server"], entry["name"], f" {words}", entry["description"])
    output.json(entries)
    return output.errors(errors)


async def read_resource(server: str, uri: str, config: str | None, output: Output) -> int:
    async with open_one(server, config, output) as group:
        [ref] = group.values()
        result = await answer_or_failure(ref, ref.read_resource(uri), lists="resources")
    output.json(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    output.parts(
        [
            part.text if isinstance(part, TextResourceContents) else Binary(part.mime_type or "binary", part.blob)
            for part in result.contents
        ]
    )
    return 0


def _check_arguments(words: Sequence[str], known: Mapping[str, PromptArgument] | None) -> None:
    """Raise a `Misuse` for a malformed, unknown or missing argument; `known` is None if the prompt is not listed."""
    for key, equals, text in (given := [word.partition("=") for word in words]):
        if not equals or not key:
            keys = "" if known is None else f"; the keys are: {', '.join(known) or 'none'}"
            raise Misuse(f"{key + equals + text!r} is not an argument; write key=value{keys}")
        if known is not None and key not in known:
            raise unknown(f"the prompt has no argument {key!r}", key, known, "arguments")
    for name, argument in (known or {}).items():
        if argument.required and name not in (key for key, *_ in given):
            raise Misuse(f"argument {name!r} is missing; write {name}=…")


async def get_prompt(server: str, name: str, words: Sequence[str], config: str | None, output: Output) -> int:
    arguments = {key: text for key, _, text in (word.partition("=") for word in words)}
    async with open_one(server, config, output) as group:
        [ref] = group.values()
        listed: dict[str, Prompt] | None = None
        with suppress(MCPError, McpActorsError):  # get_prompt fails too, or works without a list
            listed = {each.name: each for each in await ref.list_prompts()}
        known = {each.name: each for each in listed[name].arguments or ()} if listed and name in listed else None
        try:
            _check_arguments(words, known)
        except Misuse as error:
            raise Misuse(f"server {ref.name!r}: prompt {name!r}: {error}") from None
        try:
            result = await answer_or_failure(ref, ref.get_prompt(name, arguments), lists="prompts")
        except Failure:  # for an unknown prompt, the error of some servers is vague
            if listed is None or name in listed:
                raise
            problem = f"server {ref.name!r} has no prompt {name!r}"
            raise Failure(str(unknown(problem, name, listed, "prompts"))) from None
    output.json(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    for message in result.messages:
        content = message.content
        text = content.text if isinstance(content, TextContent) else f"[{content.type}; see it with --json]"
        output.text(f"{message.role}: {text}")
    return 0
