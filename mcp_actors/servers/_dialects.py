"""Read results that do not conform to the protocol.

A tool has acted before its invalid result is read, so `read_result` keeps all that can be read. Requests for input must
be valid, and so must each name, URI and cursor in a list: later requests depend on them.

Owns: kinds of deviations already logged.
Writes: repairs of results; the log.
Calls: _eras.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin

from attrs import define, field
from mcp.types import CallToolResult, methods
from pydantic import BaseModel
from pydantic_core import ValidationError, to_json

from .._foreign import Log
from .._json import UnreadableItem, walk
from .._text import plain_text
from ._eras import bounded, parse_result, without_later_fields

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from ..transports import Json


logger = Log("mcp_actors.servers")

TOOL_RESULT: Final = frozenset({"content", "structuredContent", "isError", "_meta", "resultType"})
"""The known members of a tool's result. In a result without any content, other members are shown as text."""

SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""JSON Schema keywords whose value is an object of schemas."""

DEFAULTS: Final = {"ttlMs": 0, "cacheScope": "private"}
"""Values for members that a result lacks."""


def read_result(
    method: str, version: str, result: Json, report: Callable[[ValidationError], object], *, certain: bool = True
) -> Any:
    """Validate a result; if invalid, keep what can be read, and report the error.

    Args:
        method: the protocol's method.
        version: the protocol version of the session.
        result: the ``result`` of the answer, changed to what was read.
        report: called with the error, if the result is invalid but was read.
        certain: whether the server is known to speak this version. If not, required members must be present, and so
            confirm the version.

    Raises:
        pydantic_core.ValidationError: nothing can be read, or the result is a request for input.
    """
    try:
        return parse_result(method, version, result)
    except ValidationError as exc:
        problem = exc
    try:
        if result.get("resultType") == "input_required":
            raise problem
        repaired = _LenientReader().result(method, version, dict(result), DEFAULTS if certain else {})
        without_later_fields(method, version, repaired)
        if method == "tools/call":  # checked part by part; structured content may be any JSON
            value = bounded(CallToolResult).validate_python(repaired, by_name=False)
        else:
            value = parse_result(method, version, repaired)
    except (ValidationError, _Exhausted):
        raise problem from None
    result.clear()
    result.update(repaired)
    report(problem)
    return value


class _Exhausted(Exception):
    """The result has too many values for the second pass."""


class _LenientReader:
    """The second pass over one result, by the types of the protocol."""

    _left = 4096  # values: some 50 ms at most

    def result(self, method: str, version: str, result: Json, defaults: Json) -> Json:
        kind = methods.SERVER_RESULTS[method, version]
        if method == "tools/call":
            content, is_error, structured = map(result.get, ("content", "isError", "structuredContent"))
            if type(is_error) not in (bool, NoneType):
                result["isError"] = is_error = True
            part = content if type(content) in (dict, str) else None
            others = {name: each for name, each in result.items() if name not in TOOL_RESULT}
            ours = result.get("resultType", "complete") == "complete"  # not an extension's
            if others and ours and content is None and structured is None:
                part = {"type": "text", "text": f"[this result has no content]\n{to_json(others).decode()}"}
            if type(content) is not list and (part or is_error or structured is not None):
                result["content"] = [part] if part else []
        model = (get_args(kind) or (kind,))[0]
        given = {name: each for name, each in result.items() if each is not None}
        return {name: each for name, each in defaults.items() if name in _fields(model)} | self._members(model, given)

    def _value(self, kind: Any, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _Exhausted
        models, item, member = _shape(kind)
        if value == [] and item is None and (models or member is not None):
            value = {}
        if type(value) is list and item is not None:
            parts = [self._part(item, each, f"part {n} of this result") for n, each in enumerate(value, 1)]
            return [each for each in parts if not isinstance(each, UnreadableItem)] or parts  # no empty list
        if type(value) is dict and models:
            return value if (model := _model_of(models, value)) is None else self._members(model, value)
        if type(value) is dict and member is not None:
            return {name: self._value(member, each) for name, each in value.items()}
        return value

    def _members(self, model: type[BaseModel], value: Json) -> Json:
        """Return an object without optional nulls, and without invalid hints."""
        fields, repaired = _fields(model), dict[str, Any]()
        for name, each in value.items():
            known = fields.get(name)
            if known is None:
                repaired[name] = each
            elif each is not None or known.is_required():
                each = self._part(known.annotation, each, "this part")
                if name == "annotations" and type(each) is dict:
                    each = {hint: given for hint, given in each.items() if _is_valid(known.annotation, {hint: given})}
                # Drop invalid hints: nothing needs them.
                if name not in ("annotations", "_meta", "outputSchema") or _is_valid(known.annotation, each):
                    repaired[name] = each
        if "type" not in repaired and "type" in fields:  # only one model was possible
            repaired["type"] = _types(model)[0]
        if "inputSchema" in fields and repaired.get("inputSchema") is None:  # no parameters
            repaired["inputSchema"] = {"type": "object"}
        return repaired

    def _part(self, kind: Any, value: Any, name: str) -> Any:
        """Read a value. An invalid part of the content becomes a text with the problem."""
        repaired = self._value(kind, value)
        models, *_ = _shape(kind)
        if not any(model.__name__ == "TextContent" for model in models) or _is_valid(kind, repaired):
            return repaired
        given, text = (value.get("type"), value.get("text")) if type(value) is dict else (None, value)
        text = to_json(text).decode() if type(text) is list else text  # a prompt message has one part
        if isinstance(value, UnreadableItem):
            what = f"cannot be read: {value.problem}"
        elif any(given in _types(model) for model in models):
            what = f"is not a valid part of the type {given!r}"
        else:
            what = f"is of the unknown type {given!r:.40}" if type(given) is str else "has no type"
        said = plain_text(f"[{name} {what}]")
        return {"type": "text", "text": f"{said}\n{text}" if type(text) is str else said}


@cache
def _shape(kind: Any) -> tuple[tuple[type[BaseModel], ...], Any, Any]:
    """Return the models of a type, the type of the items of its list, and of the values of its object, or None."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    inner = {get_origin(each): get_args(each)[-1] for each in kinds if get_args(each)}
    models = tuple(each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel))
    return models, inner.get(list), inner.get(dict)


def _model_of(models: tuple[type[BaseModel], ...], value: Json) -> type[BaseModel] | None:
    """Return the only model of an object, or the model with its type or required members."""
    for model in models:
        missing = (name for name, each in _fields(model).items() if each.is_required() and name not in value)
        if len(models) == 1 or (value.get("type") in types if (types := _types(model)) else not any(missing)):
            return model
    return None


@cache
def _fields(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Return the fields of a model by JSON name."""
    return {each.alias or name: each for name, each in model.model_fields.items()}


@cache
def _types(model: type[BaseModel]) -> tuple[object, ...]:
    """Return the values of the ``type`` that objects of a model have, if any."""
    return get_args(_fields(model)["type"].annotation) if "type" in _fields(model) else ()


def _is_valid(kind: Any, value: Any) -> bool:
    return bounded(kind).isinstance_python(value, by_name=False)


def with_objects(schema: Any) -> Any:
    """Return a tool's schema without nulls, and with ``{}`` for an empty array in place of an object."""
    return _with_objects(schema) if any(part is None or part == [] for part, _ in walk(schema)) else schema


def _with_objects(schema: Any) -> Any:
    if type(schema) is list:
        return [_with_objects(each) for each in schema]
    if type(schema) is not dict:
        return schema
    repaired = dict[str, Any]()
    for name, each in schema.items():
        if name in SCHEMAS and type(each) is dict:
            each = {member: {} if part in ([], None) else _with_objects(part) for member, part in each.items()}
        elif each == [] and (name in SCHEMAS or name == "additionalProperties"):
            each = {}
        elif name not in ("const", "default", "enum", "examples"):
            each = _with_objects(each)
        if each is not None or name in ("const", "default"):
            repaired[name] = each
    return repaired


@define(eq=False)
class Oddities:
    """Logs deviations of a server: each kind once, and at the end the number of the rest."""

    server: str
    _seen: set[object] = field(factory=set, init=False)
    _more: int = field(default=0, init=False)

    def note(self, kind: object, what: str) -> None:
        """Log an oddity, unless its kind was logged, or 20 kinds for this connection."""
        if kind in self._seen or len(self._seen) == 20:
            self._more += 1
            return
        self._seen.add(kind)
        logger.warning("server %r: %s; fix the server", self.server, what)

    def close(self) -> None:
        if self._more:
            logger.warning("server %r: %d more messages were not as the protocol has them", self.server, self._more)
        self._more = 0
