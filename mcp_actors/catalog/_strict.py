"""Convert JSON schemas into the strict form of model providers.

In a strict schema every object lists all its members and requires them, so a provider can constrain the model's output.
An optional member may be null instead. On the way back, a null that only means "not set" is removed, because the server
does not expect it.

Other details of a schema are kept, or dropped where providers refuse them; then a model may write arguments that the
server refuses, as it may without a schema. A schema whose meaning would change is not converted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from .._foreign import Log
from .._text import plain_text
from ._schemas import Path, dotted
from ._tools import thaw

logger = Log("mcp_actors.catalog")

_NULL: Final = {"type": "null"}

_KEPT: Final = frozenset(
    [
        *("title", "description", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("multipleOf", "minItems", "maxItems"),
    ]
)
"""Keywords that providers accept."""

_FORMATS: Final = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])
"""Values of ``format`` that they accept."""

_INCONVERTIBLE: Final = (
    *("patternProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "dependentRequired"),
    *("dependentSchemas", "dependencies", "prefixItems", "additionalItems", "contains", "not", "if", "then", "else"),
    *("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"),
)
"""Keywords without a strict form: they restrict values in other ways, or define other names for schemas."""

_NOT_WITH_ALTERNATIVES: Final = ("type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf")
"""Keywords that restrict all alternatives at once, which has no strict form."""

_ANNOTATIONS: Final = frozenset(
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "discriminator"]
)
"""Keywords that restrict nothing."""

_DEFINITIONS: Final = ("$defs", "definitions")

_TYPES: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}


class _NotStrict(Exception):
    """A part of a schema that has no strict form; the text says which and why."""


@attrs.frozen(kw_only=True, eq=False)
class StrictSchema:
    """A schema in the strict form, or unchanged if it has none.

    Attributes:
        schema: the schema, an ordinary dict that you may modify.
        is_strict: whether the schema is in the strict form; providers expect this value as ``strict``.
        problem: why the schema could not be converted, or None.
    """

    schema: dict[str, Any]
    is_strict: bool
    problem: str | None = None
    _original: Mapping[str, Any]

    def restore(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a model's arguments in the form of the original schema: without nulls that stand for missing members.

        A null that the original schema allows is kept. `arguments` is not changed.
        """
        if not self.is_strict:
            return dict(arguments)
        restored: dict[str, Any] = _restored(arguments, [self._original], self._original)
        return restored


def strict_schema(schema: Mapping[str, Any], *, owner: str = "a tool") -> StrictSchema:
    """Convert the input schema of a tool into the strict form; return it unchanged if it has none.

    In the strict form

    - objects have ``"additionalProperties": false``, and all their members are required;
    - members that were optional may be null (see `StrictSchema.restore`), and their defaults are in their descriptions;
    - ``oneOf`` becomes ``anyOf``, a single ``allOf`` is merged, and definitions move to ``$defs``;
    - keywords that providers refuse and that only restrict a value (``maxLength`` …) or describe it are removed.

    A schema cannot be converted if it has an object with unknown members, an array without ``items``, a value without a
    type, or a keyword without a strict form (``patternProperties``, ``not``, ``if`` …). The reason is logged.

    Args:
        schema: the schema. It is not changed, and the result shares nothing with it.
        owner: the owner of the schema for the log. Default ``"a tool"``.
    """
    try:
        return StrictSchema(schema=_Conversion(schema).root(), is_strict=True, original=schema)
    except _NotStrict as exc:
        problem = plain_text(str(exc), limit=300)
    except RecursionError:
        problem = "it is nested too deeply"
    logger.info(
        "the input schema of %s cannot be converted to the strict form, so it is used unchanged: %s", owner, problem
    )
    return StrictSchema(schema=_copied(schema), is_strict=False, problem=problem, original=schema)


def _copied(schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = thaw(dict(schema))
        return copied
    except RecursionError:
        return dict(schema)


class _Conversion:
    """One conversion. All methods return new objects, and raise `_NotStrict`."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._path: list[str | int] = []

    def root(self) -> dict[str, Any]:
        schema = {key: value for key, value in self._schema.items() if key not in (*_DEFINITIONS, "$id")}
        for key in ("$ref", "anyOf", "oneOf", "allOf", "enum", "const"):
            if key in schema:
                raise self._problem(f"has {key} at its top level")
        if schema.get("type", "object") != "object":
            raise self._problem("does not describe an object")
        if not schema.get("properties") and "additionalProperties" not in schema:
            schema["additionalProperties"] = False  # a tool without arguments
        converted = self.converted({"type": "object", **schema})
        definitions = self._definitions()
        return {**converted, "$defs": definitions} if definitions else converted

    def _definitions(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in _DEFINITIONS:
            for name, schema in self._mapping(self._schema.get(key, {}), key).items():
                if name in found:
                    raise self._problem(f"has two definitions {name!r}")
                found[name] = self._at((key, name), self.converted, schema)
        return found

    def converted(self, schema: Any) -> dict[str, Any]:
        """Return the strict form of any schema except the root."""
        schema = self._merged(self._mapping(schema))
        for key in (*_INCONVERTIBLE, *_DEFINITIONS):
            if key in schema:
                raise self._problem(f"has {key}")
        if "$ref" in schema:
            return self._reference(schema)
        kept = _kept(schema)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return kept | {"anyOf": self._alternatives(schema, key)}
        types = self._types(schema)
        return kept | {"type": types[0] if len(types) == 1 else types} | self._contents(schema, types)

    # --- the parts --------------------------------------------------------------------------------------------------

    def _contents(self, schema: Mapping[str, Any], types: list[str]) -> dict[str, Any]:
        if "const" in schema:
            return {"enum": [thaw(schema["const"])]}
        if "enum" in schema:
            return {"enum": thaw(list(schema["enum"]))}
        contents = self._members(schema) if "object" in types else {}
        if "array" in types:
            if "items" not in schema:
                raise self._problem("is an array without items")
            contents["items"] = self._at(("items",), self.converted, schema["items"])
        return contents

    def _members(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        properties = self._mapping(schema.get("properties", {}), "properties")
        # Without `properties` and `additionalProperties`, an object may have any members.
        if schema.get("additionalProperties", not properties) is not False:
            raise self._problem("may have unknown members")
        required = schema.get("required", ())
        if not isinstance(required, (list, tuple)):
            raise self._problem("has required, which is not an array")
        if unknown := [name for name in required if name not in properties]:
            raise self._problem(f"requires {unknown[0]!r:.40}, which it does not define")
        return {
            "properties": {
                name: self._at((name,), self._member, member, name in required) for name, member in properties.items()
            },
            "required": list(properties),
            "additionalProperties": False,
        }

    def _member(self, schema: Any, required: bool) -> dict[str, Any]:
        converted = self.converted(schema)
        if schema.get("default") is not None:
            default = f"Default: {json.dumps(schema['default'], ensure_ascii=False, default=repr)}."
            converted["description"] = f"{converted.get('description', '')} {default}".strip()
        return converted if required else _or_null(converted)

    def _reference(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        if more := [key for key in schema if key != "$ref" and key not in _ANNOTATIONS]:
            raise self._problem(f"has {more[0]} next to a $ref")
        reference = {"$ref": self._target(schema["$ref"])}
        # In the strict form, a reference must not have siblings.
        return {**kept, "anyOf": [reference]} if (kept := _kept(schema)) else reference

    def _target(self, reference: Any) -> str:
        if reference == "#":
            return "#"
        for key in _DEFINITIONS:
            name = str(reference).removeprefix(f"#/{key}/")
            if name != reference and _unescaped(name) in self._schema.get(key, ()):
                return f"#/$defs/{name}"
        raise self._problem(f"refers to {reference!r:.80}, which it does not define")

    def _alternatives(self, schema: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
        if others := [each for each in schema if each in _NOT_WITH_ALTERNATIVES and each != key]:
            raise self._problem(f"has {others[0]} next to {key}")
        alternatives = schema[key]
        if not isinstance(alternatives, (list, tuple)) or not alternatives:
            raise self._problem(f"has {key} without alternatives")
        return [self._at((key, place), self.converted, each) for place, each in enumerate(alternatives)]

    def _types(self, schema: Mapping[str, Any]) -> list[str]:
        given = schema.get("type")
        if given is None:
            if "properties" in schema:
                given = "object"
            elif "items" in schema:
                given = "array"
            else:
                values = [schema["const"]] if "const" in schema else schema.get("enum", ())
                given = list(dict.fromkeys(_type_of(value) for value in values))
        types = [given] if isinstance(given, str) else given
        if not isinstance(types, (list, tuple)) or not types or not all(each in _TYPES.values() for each in types):
            raise self._problem("does not declare a type")
        return list(types)

    def _merged(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a schema with its single ``allOf`` merged into it."""
        parts = schema.get("allOf")
        if parts is None:
            return schema
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        if not isinstance(parts, (list, tuple)) or len(parts) != 1:
            raise self._problem("has allOf with several parts")
        part = self._mapping(parts[0], "allOf")
        if clash := [key for key in part if key in rest and key not in _ANNOTATIONS]:
            raise self._problem(f"has {clash[0]} both next to allOf and in it")
        return self._merged({**part, **rest})

    # --- help -------------------------------------------------------------------------------------------------------

    def _at(self, steps: Path, convert: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
        self._path += steps
        converted = convert(*args)
        del self._path[-len(steps) :]
        return converted

    def _mapping(self, value: Any, what: str = "") -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        if isinstance(value, bool):
            raise self._problem("accepts anything" if value else "accepts nothing")
        raise self._problem(f"has {what}, which is not an object" if what else "is not an object")

    def _problem(self, text: str) -> _NotStrict:
        return _NotStrict(f"{dotted('arguments', tuple(self._path))} {text}")


def _kept(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that providers accept."""
    kept = {key: thaw(value) for key, value in schema.items() if key in _KEPT}
    if schema.get("format") in _FORMATS:
        kept["format"] = schema["format"]
    return kept


def _type_of(value: Any) -> str | None:
    return next((name for kind, name in _TYPES.items() if isinstance(value, kind)), None)


def _unescaped(pointer: str) -> str:
    return pointer.replace("~1", "/").replace("~0", "~")


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a strict schema that allows null too."""
    if "anyOf" in schema:
        return schema if _NULL in schema["anyOf"] else {**schema, "anyOf": [*schema["anyOf"], dict(_NULL)]}
    if "$ref" in schema:
        return {"anyOf": [schema, dict(_NULL)]}
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    nullable = {**schema, "type": types if "null" in types else [*types, "null"]}
    if "enum" in schema and None not in schema["enum"]:
        nullable["enum"] = [*schema["enum"], None]
    return nullable


# --- back -----------------------------------------------------------------------------------------------------------


def _restored(value: Any, schemas: list[Any], root: Mapping[str, Any]) -> Any:
    """Return a value without the nulls that none of the original schemas allows.

    Args:
        value: the value from the model.
        schemas: the schemas that may apply to it: one, or several alternatives.
        root: the schema in which references are resolved.
    """
    possible = list(_flat(schemas, root))
    if isinstance(value, Mapping):
        # In the strict form all members are present, so their names identify the alternative.
        meant = [each for each in possible if each.get("properties", {}).keys() == value.keys()]
        restored = {}
        for name, member in value.items():
            about = [each["properties"][name] for each in meant]
            optional = bool(meant) and not any(name in each.get("required", ()) for each in meant)
            if member is not None or not optional or any(map(_allows_null, _flat(about, root))):
                restored[name] = _restored(member, about, root)
        return restored
    if isinstance(value, (list, tuple)):
        items = [each["items"] for each in possible if "items" in each]
        return [_restored(each, items, root) for each in value]
    return value


def _flat(schemas: Iterable[Any], root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield schemas, their alternatives and the targets of their references, all of which have been converted."""
    pending, seen = list(schemas), set[int]()
    while pending:
        schema = pending.pop(0)
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        yield schema
        for key in ("anyOf", "oneOf", "allOf"):
            pending += schema.get(key, ())
        if "$ref" in schema:
            pending.append(_target(schema["$ref"], root))


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for step in reference.split("/")[1:]:
        found = found[_unescaped(step)]
    return found


def _allows_null(schema: Mapping[str, Any]) -> bool:
    types = schema.get("type", ())
    return (
        types == "null"
        or (not isinstance(types, str) and "null" in types)
        or None in schema.get("enum", ())
        or ("const" in schema and schema["const"] is None)
    )
