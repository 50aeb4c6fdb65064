"""Convert ``key=value`` words to the arguments of a tool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .._problems import Misuse, unknown


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
