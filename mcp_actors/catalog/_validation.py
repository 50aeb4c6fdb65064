"""Validate tool arguments and tool results; convert schemas for model providers.

By default, only the first result of each tool on a connection is checked. An unknown argument of a tool is logged once.
Compiling a schema is slow, so only schemas of called tools are compiled. `strict_schema` rewrites a schema for model
providers, or returns a copy if there is no strict form.

Owns: schemas of called tools; names of tools whose next result is checked; names of logged arguments.
Writes: the log.
Calls: _schemas, _tools.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import attrs
import pydantic_core
from mcp.types import CallToolResult

from .._errors import InvalidArguments, InvalidResult
from .._foreign import Log
from .._misuse import OPTIONS, nearest, refuse_option, refuse_positional
from .._text import plain_text
from ._schemas import (
    JSON_TYPES,
    Path,
    Schema,
    Violation,
    dotted,
    kind_of,
    listed,
    may_name,
    members_named_by,
    required_of,
)
from ._tools import ListedTool, thaw

logger = Log("mcp_actors.catalog")

Validation = Literal["required", "schema", "off"]
"""The extent of validation: required arguments only, everything in the schemas, or nothing."""


def check_call(
    tool: str,
    positional: Sequence[object],
    arguments: Mapping[str, object],
    schema_of: Callable[[str], Mapping[str, Any] | None],
) -> None:
    """Check the arguments of ``call``, which has no options of its own. `schema_of` returns None for an unlisted tool.

    Raises:
        TypeError: an argument has no name, or is an option of ``call_tool`` that the schema does not name.
    """
    refuse_positional(tool, positional)
    if OPTIONS.isdisjoint(arguments) or (schema := schema_of(tool)) is None:
        return
    for name in arguments:
        if name in OPTIONS and not may_name(schema, name):
            raise refuse_option(tool, name)


class ToolChecks:
    """Checks of the arguments and results of one server's tools.

    An instance belongs to one listing; `updated` returns the next. An unlisted tool is not checked; the server decides.

    Modes:

    - ``"required"``: the arguments can be written as a JSON object, and required arguments are present. The first
      result of each tool on a connection is compared with the output schema, and a difference is logged;
    - ``"schema"``: in addition, arguments match the input schema, and structured content the output schema. A check
      takes at most a tenth of a second;
    - ``"off"``: nothing.

    Args:
        server: the configured name of the server.
        tools: the listed tools. Of several with the same name, the first counts.
        mode: see above.
        mask: masks credentials in the text of the server. Default: none.
    """

    def __init__(
        self,
        server: str,
        tools: Iterable[ListedTool] = (),
        mode: Validation = "required",
        mask: Callable[[str], str] = str,
    ) -> None:
        self._server = server
        self._mask = mask
        self._mode: Validation = mode
        self._tools: dict[str, ListedTool] = {}
        self._checks: dict[str, _ToolCheck] = {}  # of called tools only: few tools of a long list are called
        for tool in tools if mode != "off" else ():
            self._tools.setdefault(tool.name, tool)
        self._unknown: set[tuple[str, str]] = set()  # logged arguments, by tool
        self._samples: set[str] = set()  # tools whose next result is a sample
        self.sample()

    def __repr__(self) -> str:
        return f"<ToolChecks of server {self._server!r}, {self._mode}>"

    def sample(self) -> None:
        """Note that a connection begins: in mode ``"required"``, the next result of each tool is compared."""
        if self._mode == "required":
            self._samples = {name for name, tool in self._tools.items() if tool.output_schema is not None}

    def updated(self, tools: Iterable[ListedTool]) -> ToolChecks:
        """Return the checks for another listing, with the compiled schemas of unchanged tools."""
        new = ToolChecks(self._server, tools, self._mode, self._mask)
        new._unknown = self._unknown
        for name, check in self._checks.items():
            if check.used and name in new._tools and _text_of(check.tool) == _text_of(new._tools[name]):
                new._checks[name] = check
                if name not in self._samples:
                    new._samples.discard(name)
        return new

    def _check(self, name: str) -> _ToolCheck | None:
        check = self._checks.get(name)
        if check is None and name in self._tools:
            check = self._checks[name] = _ToolCheck(self._who(name), self._tools[name], self._mask)
        return check

    def check_arguments(self, tool: str, arguments: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Check the arguments of a call.

        Returns:
            The arguments to send, copied as JSON values: later changes by the caller have no effect. None stays None.
            (With ``"off"`` only the outermost object is copied.)

        Raises:
            InvalidArguments: the arguments are not valid for the tool.
        """
        return self.check_json(tool, arguments)[0]

    def check_json(self, tool: str, arguments: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, bytes | None]:
        """Check the arguments of a call; return the result of `check_arguments`, and its JSON text.

        There is no text for None, nor in mode ``"off"``, where arguments need not be JSON.
        """
        if self._mode == "off":
            return None if arguments is None else dict(arguments), None
        sendable, text = ({}, None) if arguments is None else self._sendable(tool, arguments)
        check = self._check(tool)
        if check is not None:
            for name in check.required:
                if name not in sendable:
                    raise self._missing(tool, sendable, check.required)
            if self._mode == "schema" and (found := check.input.violation(sendable)) is not None:
                raise self._refused(tool, *found)
            if check.named is not None and not sendable.keys() <= check.named:
                self._note_unknown(tool, sendable, check.named)
        return None if arguments is None else sendable, text

    def _note_unknown(self, tool: str, given: Iterable[str], named: frozenset[str]) -> None:
        """Log up to 20 arguments unknown to the input schema: servers silently drop a misspelled argument."""
        for name in given:
            if name in named or (tool, name) in self._unknown or len(self._unknown) == 20:
                continue
            self._unknown.add((tool, name))
            near, known = nearest(name, named), [self._mask(each) for each in sorted(named)]
            listing = f"did you mean {self._mask(near[0])!r:.80}?" if near else f"it names {listed(known) or 'none'}"
            problem = f"its input schema does not name the argument {name!r:.80}, which the server may ignore"
            logger.warning("%s: %s", self._who(tool), plain_text(f"{problem}; {listing}"))

    def check_result(self, tool: str, result: CallToolResult) -> None:
        """Check the result of a tool, or log how a sample differs. A result with ``is_error`` may contain anything.

        Raises:
            InvalidResult: the structured content does not match the output schema, in mode ``"schema"``.
        """
        if result.is_error or not (self._mode == "schema" or tool in self._samples):
            return
        self._samples.discard(tool)
        check = self._check(tool)
        if check is None or check.output is None:
            return
        content = result.structured_content
        if content is None and "structured_content" not in result.model_fields_set:
            found: tuple[Violation, int] | None = Violation((), "is missing"), 1
        else:
            found = check.output.violation(content)
        if found is None:
            return
        phrase = self._phrase("structured_content", *found)
        problem = f"its result does not match its output schema: {phrase}"
        if self._mode == "schema":
            raise self._broken(tool, result, problem, found[0])
        remedy = "it is returned nevertheless; fix the server, or set validate='schema' to refuse such results"
        logger.warning("%s: %s; %s", self._who(tool), problem, remedy)

    def check_request(self, tool: str, meta: Mapping[str, Any] | None) -> None:
        """Check the name of the tool and the ``_meta`` of a call, in every mode.

        Raises:
            InvalidArguments: either cannot be written as JSON.
        """
        given: object = tool
        if not isinstance(given, str) or not (given.isascii() or _can_be_written(given)):
            unsendable = " that cannot be sent" if isinstance(given, str) else ""
            found = Violation((), f"is {kind_of(given)}{unsendable}", "the name of a tool")
            raise self._refused(ascii(given), found, root="name")
        if meta is not None:
            self._sendable(tool, meta, root="meta")

    def _sendable(self, tool: str, values: Any, *, root: str = "arguments") -> tuple[dict[str, Any], bytes]:
        """Return the arguments, or the part of the request named by `root`, as JSON values and as text."""
        if type(values) is not dict and not isinstance(values, Mapping):
            raise self._refused(tool, Violation((), f"is {kind_of(values)}", "an object"), root=root)
        for name in values:
            if not isinstance(name, str):
                raise self._refused(tool, Violation((), f"has the key {name!r:.40}", "strings as keys"), root=root)
        try:
            return _as_json(values if type(values) is dict else dict(values))
        except Exception:  # foreign objects may raise anything when serialized
            raise self._refused(tool, _unwritable(dict(values)), root=root) from None

    # --- the errors ---------------------------------------------------------------------------------------------

    def _missing(self, tool: str, given: Mapping[str, Any], required: tuple[str, ...]) -> InvalidArguments:
        missing = [name for name in required if name not in given]
        more = f", like {listed(missing[1:])}" if missing[1:] else ""
        found = f"is missing{more} (the tool requires {listed(required)})"
        return self._refused(tool, Violation((missing[0],), found))

    def _refused(
        self, tool: str, violation: Violation, problems: int = 1, *, root: str = "arguments"
    ) -> InvalidArguments:
        phrase = self._phrase(root, violation, problems)
        text = f"{self._who(tool)}: {phrase}; correct that and call again; nothing was sent"
        return InvalidArguments(text, server=self._server, tool=tool, path=violation.path)

    def _broken(self, tool: str, result: CallToolResult, problem: str, violation: Violation) -> InvalidResult:
        remedy = "the tool has run, and this error carries its result; use that, or set validate='required'"
        text = f"{self._who(tool)}: {problem}; {remedy}"
        return InvalidResult(text, server=self._server, tool=tool, path=violation.path, result=result)

    def _phrase(self, root: str, violation: Violation, problems: int) -> str:
        expected = f"; expected {violation.expected}" if violation.expected is not None else ""
        more = "" if problems == 1 else f" (and {problems - 1} more)"
        path = tuple(self._mask(each) if isinstance(each, str) else each for each in violation.path)
        return f"{dotted(root, path)} {violation.found}{expected}{more}"

    def _who(self, tool: str) -> str:
        return f"server {self._server!r}: tool {self._mask(tool)!r:.80}"


class _ToolCheck:
    __slots__ = ("input", "named", "output", "required", "tool")

    def __init__(self, owner: str, tool: ListedTool, mask: Callable[[str], str]) -> None:
        self.tool = tool
        self.required = required_of(tool.input_schema)
        self.named = members_named_by(tool.input_schema)
        self.input = Schema(tool.input_schema, f"{owner}: its input schema", mask)
        output = tool.output_schema
        self.output = None if output is None else Schema(output, f"{owner}: its output schema", mask)

    @property
    def used(self) -> bool:
        return self.input.used or (self.output is not None and self.output.used)


def _text_of(tool: ListedTool) -> str:
    """Return the schemas of a tool as JSON, where ``1`` is not ``true``."""
    return json.dumps([tool.input_schema, tool.output_schema], sort_keys=True, default=repr)


def _as_json(value: Any) -> tuple[Any, bytes]:
    """Return a value as the SDK will write it, and the text; raise anything if impossible."""
    # Write and read back, because each step refuses what the other accepts. Writing refuses unpaired surrogates and
    # foreign objects; reading refuses integers of thousands of digits and 200 levels of nesting, as the SDK's servers
    # do. NaN is written as a constant for reading to refuse: the SDK would silently send null. The two brackets are the
    # levels of a request around its arguments.
    text = pydantic_core.to_json(value, exclude_none=True, inf_nan_mode="constants")
    return pydantic_core.from_json(b"[[%b]]" % text, allow_inf_nan=False)[0][0], text


def _unwritable(value: Any) -> Violation:
    path: list[str | int] = []
    around: set[int] = set()
    while id(value) not in around:
        around.add(id(value))
        step = next(((name, part) for name, part in _parts(value) if not _can_be_written(part)), None)
        if step is None or len(path) == 30:  # a longer path would not help
            has_parts = isinstance(value, (dict, list, tuple))
            why = " (nested too deeply, or with keys that are not strings)" if has_parts else ""
            return Violation(tuple(path), f"is {kind_of(value)}, which cannot be written as JSON{why}")
        path.append(step[0])
        value = step[1]
    return Violation(tuple(path), "contains itself, so it cannot be written as JSON")


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def _can_be_written(value: Any) -> bool:
    try:
        _as_json(value)
    except Exception:
        return False
    return True


# --- The strict form of model providers -------------------------------------------------------------------------------

# In a strict schema every object lists and requires all its members, so a provider can constrain the model's output. An
# optional member may be null. On the way back, a null that means "not set" is removed: the server does not expect it.
# Details that providers refuse are dropped: a model may then write arguments that the server refuses.


_NULL: Final = {"type": "null"}

_KEPT_KEYWORDS: Final = frozenset(
    [
        *("title", "description", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("multipleOf", "minItems", "maxItems"),
    ]
)
"""Keywords that providers accept."""

_FORMATS: Final = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])
"""Values of ``format`` that providers accept."""

_INCONVERTIBLE: Final = (
    *("patternProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "dependentRequired"),
    *("dependentSchemas", "dependencies", "prefixItems", "additionalItems", "contains", "not", "if", "then", "else"),
    *("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"),
)
"""Keywords without a strict form."""

_NOT_WITH_ALTERNATIVES: Final = ("type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf")
"""Keywords that restrict all alternatives at once, which has no strict form."""

_ANNOTATIONS: Final = frozenset(
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "discriminator"]
)
"""Keywords that restrict nothing."""

_DEFINITIONS: Final = ("$defs", "definitions")


class _NotStrict(Exception):
    """A part of a schema has no strict form; the text names the part and the reason."""


@attrs.frozen(kw_only=True, eq=False)
class StrictSchema:
    """A schema in the strict form, or unchanged if there is none.

    Attributes:
        schema: the schema, an ordinary dict that you may modify.
        is_strict: whether the schema is in the strict form; the value of ``strict`` for providers.
        problem: why the schema could not be converted, or None.
    """

    schema: dict[str, Any]
    is_strict: bool
    problem: str | None = None
    _original: Mapping[str, Any]

    def restore(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a model's arguments in the form of the original schema: without nulls for missing members.

        A null allowed by the original schema is kept. `arguments` is not changed.
        """
        if not self.is_strict:
            return dict(arguments)
        restored: dict[str, Any] = _restored(arguments, [self._original], self._original)
        return restored


def strict_schema(schema: Mapping[str, Any], *, owner: str = "a tool") -> StrictSchema:
    """Convert the input schema of a tool into the strict form; return a copy if there is none.

    In the strict form

    - objects have ``"additionalProperties": false``, and all members are required;
    - optional members may be null (see `StrictSchema.restore`), with their defaults in the descriptions;
    - ``oneOf`` becomes ``anyOf``, a single ``allOf`` is merged, and definitions move to ``$defs``;
    - keywords that providers refuse are removed if they only restrict a value (``maxLength`` …) or describe it.

    There is no strict form for an object with unknown members, an array without ``items``, a value without a type, and
    some keywords (``patternProperties``, ``not``, ``if`` …). The reason is logged.

    Args:
        schema: the schema, with which the result shares nothing.
        owner: the owner of the schema for the log. Default ``"a tool"``.
    """
    try:
        return StrictSchema(schema=_Conversion(schema).root(), is_strict=True, original=schema)
    except _NotStrict as exc:
        problem = plain_text(str(exc), limit=300)
    except RecursionError:
        problem = "it is nested too deeply"
    text = "the input schema of %s cannot be converted to the strict form, so it is used unchanged: %s"
    logger.info(text, owner, problem)
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
        # An object with neither keyword may have any members.
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
        if not isinstance(types, (list, tuple)) or not types or not all(each in JSON_TYPES.values() for each in types):
            raise self._problem("does not declare a type")
        return list(types)

    def _merged(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a schema with its single ``allOf`` merged."""
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
    kept = {key: thaw(value) for key, value in schema.items() if key in _KEPT_KEYWORDS}
    if schema.get("format") in _FORMATS:
        kept["format"] = schema["format"]
    return kept


def _type_of(value: Any) -> str | None:
    return next((name for kind, name in JSON_TYPES.items() if isinstance(value, kind)), None)


def _unescaped(pointer: str) -> str:
    return pointer.replace("~1", "/").replace("~0", "~")


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
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
    """Return a value without the nulls that only the strict form allows. References are resolved in `root`."""
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
    """Yield original schemas, their alternatives and the targets of their references, each once."""
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
