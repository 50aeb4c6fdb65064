"""Immutable tools, results as plain values, and JSON as canonical text.

A tool is shared by a whole group, so the tool's dicts and lists refuse changes. Servers return values as text or
structured content, and write equal JSON differently; `result_value` and `canonical_text` hide this.

Owns: nothing.
Writes: an attribute of failed results that names the called tool.
Calls: nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol, TypeVar

import attrs
import pydantic_core
from mcp.types import CallToolResult

from .._errors import ToolFailed

if TYPE_CHECKING:
    from mcp.types import ContentBlock, ResourceLink


# --- Immutable dicts and lists for JSON -------------------------------------------------------------------------------

# Subclasses of dict and list, so `json.dumps`, schema validators and the SDKs of model providers accept them. A copy
# (``copy.copy``, ``copy.deepcopy``, ``.copy()``) is an ordinary dict or list.


C = TypeVar("C", bound=type)

TaskSupport = Literal["forbidden", "optional", "required"]

_CHANGING_METHODS: Final = (
    *("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"),
    *("__iadd__", "__imul__", "append", "extend", "insert", "remove", "reverse", "sort"),
)


_LEAVES: Final = frozenset({str, bool, int, float, type(None)})
"""Most values have these types. `freeze` returns such values without the slow test for a `Mapping`."""


def freeze(value: Any) -> Any:
    """Return a copy of a JSON-like value with every dict and list frozen. A frozen value is returned itself."""
    kind = type(value)
    if kind in _LEAVES or kind is FrozenDict or kind is FrozenList:
        return value
    if kind is dict or isinstance(value, (dict, Mapping)):  # the second test takes as long as all the rest
        # Not from a slower generator: a start freezes the schemas of thousands of tools.
        return FrozenDict({key: each if type(each) in _LEAVES else freeze(each) for key, each in value.items()})
    if isinstance(value, (list, tuple)):
        return FrozenList([freeze(each) for each in value])
    return value


def thaw(value: Any) -> Any:
    """Return a copy with ordinary dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(each) for key, each in value.items()}
    if isinstance(value, list):
        return [thaw(each) for each in value]
    return value


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError("this belongs to the tool catalogue and is shared; change a copy of it: copy.deepcopy(...)")


def _thawed(self: Any, memo: object = None) -> Any:
    return thaw(self)


def _reduced(self: Any, protocol: object) -> Any:
    # Unpickle as frozen: a pickle transports a value, and is not a copy to modify.
    return freeze, (thaw(self),)


def _frozen(cls: C) -> C:
    """Replace the methods that change or copy a value."""
    for name in _CHANGING_METHODS:
        if hasattr(cls, name):
            setattr(cls, name, _refuse)
    for name in ("__copy__", "__deepcopy__", "copy"):
        setattr(cls, name, _thawed)
    cls.__reduce_ex__ = _reduced  # type: ignore[method-assign, assignment]  # it takes the value, as `self`
    return cls


@_frozen
class FrozenDict(dict[str, Any]):
    """A dict that raises `TypeError` on every change."""

    __slots__ = ()


@_frozen
class FrozenList(list[Any]):
    """A list that raises `TypeError` on every change."""

    __slots__ = ()


# --- Tools ------------------------------------------------------------------------------------------------------------


class ListedTool(Protocol):
    """A tool as listed by a server: the attributes of ``mcp.types.Tool`` kept by the catalogue."""

    @property
    def name(self) -> str:
        """The server's own name of the tool."""

    @property
    def title(self) -> str | None:
        """A name for people."""

    @property
    def description(self) -> str | None:
        """A description for the model."""

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments."""

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of structured results."""

    @property
    def annotations(self) -> Any:
        """The server's hints: a pydantic model, a mapping or None."""

    @property
    def meta(self) -> Mapping[str, Any] | None:
        """The ``_meta`` of the listing."""


def _frozen_schema(value: Mapping[str, Any]) -> Mapping[str, Any]:
    frozen: Mapping[str, Any] = freeze(value)
    return frozen


def _frozen_or_none(value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if value is None else _frozen_schema(value)


def wire_annotations(annotations: Any) -> Mapping[str, Any] | None:
    """Return annotations that are set, by their names on the wire (``readOnlyHint``)."""
    if annotations is None or isinstance(annotations, Mapping):
        return annotations
    dumped: dict[str, Any] = annotations.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def _task_support(tool: ListedTool) -> TaskSupport:
    """Return a tool's support for tasks; only some versions of the protocol have tasks."""
    if isinstance(tool, CatalogTool):
        return tool.task_support
    return getattr(getattr(tool, "execution", None), "task_support", None) or "forbidden"


@attrs.frozen(kw_only=True, repr=False)
class CatalogTool:
    """A tool of a server, with the public name by which the group calls it.

    Deeply immutable: schemas, annotations and meta are dicts and lists that refuse every change, but suit `json.dumps`
    and the SDKs of model providers; ``copy.deepcopy`` makes an ordinary, mutable copy.

    Attributes:
        server: the configured name of the server.
        name: the server's own name of the tool.
        public_name: the unique name in the group: 1 to 64 of the characters ``A-Z a-z 0-9 _ -``.
        title: a name for people, or None.
        description: a description for the model, or None.
        input_schema: the JSON schema of the arguments.
        output_schema: the JSON schema of structured results, or None.
        annotations: the server's hints by their wire names (``readOnlyHint`` …), or None. Hints are not verified.
        meta: the ``_meta`` of the listing, or None.
        task_support: whether the tool can run as a task (MCP 2025-11-25): ``"forbidden"``, ``"optional"`` or
            ``"required"``. A tool that requires tasks cannot be called through this package.
        available: False while the server is not serving, for example while it reconnects.
        deferred: True while the tool is only remembered from an earlier run. A call waits for the connection, and fails
            if the server no longer lists the tool.
    """

    server: str
    name: str
    public_name: str
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] = attrs.field(converter=_frozen_schema, hash=False)
    output_schema: Mapping[str, Any] | None = attrs.field(default=None, converter=_frozen_or_none, hash=False)
    annotations: Mapping[str, Any] | None = attrs.field(default=None, converter=_frozen_or_none, hash=False)
    meta: Mapping[str, Any] | None = attrs.field(default=None, converter=_frozen_or_none, hash=False)
    task_support: TaskSupport = "forbidden"
    available: bool = True
    deferred: bool = False

    @classmethod
    def from_listing(
        cls, server: str, tool: ListedTool, public_name: str, *, available: bool = True, deferred: bool = False
    ) -> CatalogTool:
        """Return the catalogue's copy of a listed tool, which shares nothing with `tool`.

        `tool` is an ``mcp.types.Tool``, a `CatalogTool`, or anything with the same attributes. The other arguments are
        attributes of the result (for `public_name`, see `assign_names`).
        """
        return cls(
            server=server,
            name=tool.name,
            public_name=public_name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            annotations=wire_annotations(tool.annotations),
            meta=tool.meta,
            task_support=_task_support(tool),
            available=available,
            deferred=deferred,
        )

    def __repr__(self) -> str:
        away = ", deferred" if self.deferred else "" if self.available else ", unavailable"
        return f"<CatalogTool {self.public_name!r}: {self.name!r} of server {self.server!r}{away}>"


# --- Results ----------------------------------------------------------------------------------------------------------

# A `CallToolResult` may have its data twice: as structured content for programs, and as content parts for models.
# Servers differ in which they fill, and wrap a value that is not an object as ``{"result": …}``.


_CALL_MARK: Final = "mcp_actors_call"
"""The attribute of a failed result that names the call. Not a field, so no part of the JSON or the equality."""


def note_call(result: CallToolResult, server: str, tool: str, suggestion: str | None) -> None:
    """Note the call in a failed result, for the message of `result_value`."""
    hint = "" if suggestion is None else f"; {suggestion}"
    vars(result)[_CALL_MARK] = (f"tool {tool!r:.80} of server {server!r}", hint)


_SAID: Final = 500
"""Characters of a failed tool's text in the message of the error."""


def result_value(result: CallToolResult) -> Any:
    """Return the result of a tool as plain values: JSON-like data, and `bytes` for binary content.

    Structured content is preferred. A structured ``{"result": x}`` becomes ``x``, as servers wrap values that are not
    objects. (An object with the single member ``result`` looks the same.)

    Without structured content, each part of the content becomes a value:

    - text becomes a `str`, or the object or array if all of it is JSON; ``"007"`` and ``"true"`` stay text;
    - images and audio become `bytes`; their media type is in the part at the same index in ``result.content``;
    - an embedded resource becomes its text or its bytes, in the same way;
    - a link to a resource becomes a `dict` as on the wire (``uri``, ``name`` …). Nothing is fetched.

    A single part becomes its value, several parts become a list, and a result without parts becomes None.

    Args:
        result: the return value of `call_tool`.

    Returns:
        The value. It may share parts with `result`, so modify only a copy.

    Raises:
        ToolFailed: the tool failed (``is_error``), or a binary part is not base64.
    """
    if not hasattr(result, "is_error"):
        given = type(result).__name__
        raise TypeError(f"result_value() takes the result of call_tool(), not {given}; await call_tool()")
    if result.is_error:
        who, hint = vars(result).get(_CALL_MARK, ("the tool", ""))
        raise ToolFailed(f"{who} failed{_said(result)}{hint}", result=result)
    if result.structured_content is not None:
        return unwrapped(result.structured_content)
    values = [_part_value(result, place) for place in range(len(result.content))]
    return values[0] if len(values) == 1 else values or None


def unwrapped(structured: Any) -> Any:
    """Return structured content without the ``{"result": …}`` around a value that is not an object."""
    is_wrapped = isinstance(structured, dict) and structured.keys() == {"result"}
    return structured["result"] if is_wrapped else structured


def _part_value(result: CallToolResult, place: int) -> Any:
    part = result.content[place]
    if part.type == "text":
        return _text_value(part.text)
    if part.type == "resource":
        held = part.resource
        return _text_value(held.text) if hasattr(held, "text") else _decoded(result, place, held.blob)
    if part.type == "resource_link":
        return _link(part)
    return _decoded(result, place, part.data)


def _link(part: ResourceLink) -> dict[str, Any]:
    return part.model_dump(mode="json", by_alias=True, exclude_none=True)


def _text_value(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError):  # TypeError for an unpaired surrogate
        return text


def _decoded(result: CallToolResult, place: int, data: str) -> bytes:
    try:
        return decoded(data)
    except ValueError as exc:
        problem = f"part {place + 1} of the tool's result ({result.content[place].type}) is not base64 ({exc})"
        remedy = "read the part from the error's result, and report this to the server's author"
        raise ToolFailed(f"{problem}, so its bytes are not known; {remedy}", result=result) from None


_FROM_URLS: Final = str.maketrans("-_", "+/")


def decoded(data: str) -> bytes:
    """Return the bytes of a binary part; raise ValueError if it is not base64."""
    return base64.b64decode(plain_base64(data), validate=True)


def plain_base64(data: str) -> str:
    """Return standard base64, padded, without line breaks and the head of a data URL."""
    if data.startswith("data:"):
        data = data.partition(";base64,")[2] or data
    data = "".join(data.split()).translate(_FROM_URLS)
    return data + "=" * (-len(data) % 4)


def text_of(part: ContentBlock) -> str | None:
    """Return a part of a result as a text for a reader; None if binary."""
    match part.type:
        case "text":
            return part.text
        case "resource":
            return getattr(part.resource, "text", None)
        case "resource_link":
            return pydantic_core.to_json(_link(part)).decode()
        case _:
            return None


def data_text(result: CallToolResult) -> str | None:
    """Return structured content as JSON for a reader; None without such content, or if the texts say the same."""
    structured, texts = result.structured_content, [part.text for part in result.content if part.type == "text"]
    if structured is None:
        return None
    for value in (structured, unwrapped(structured)):
        values = value if isinstance(value, list) and len(texts) > 1 else [value]
        if len(values) == len(texts) and all(map(_says, texts, values)):
            return None
    return pydantic_core.to_json(structured).decode()


def _says(text: str, value: Any) -> bool:
    try:
        return bool(text == value or pydantic_core.from_json(text) == value)
    except (ValueError, TypeError):
        return False


def _said(result: CallToolResult) -> str:
    words = "\n".join(filter(None, [*map(text_of, result.content), data_text(result)])).strip()
    if not words:
        return " without a text; see the error's result"
    if len(words) <= _SAID:
        return f": {words!r}"
    return f": {words[:_SAID]!r}… ({len(words)} characters; see the error's result for all of them)"


# --- Canonical JSON ---------------------------------------------------------------------------------------------------

# Used for pins, identities of servers and ``uniqueItems``. Members of objects are sorted. Strings are not normalized
# (as by NFC): a model may read two encodings of a letter differently. ``1``, ``1.0`` and ``1e0`` have the same text (as
# in RFC 8785, but integers of any size stay exact); a boolean never equals a number.


_write: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode

_DIGITS: Final = 16
"""Longer integers are written in base 16: Python is slow to write them in base 10."""

_PERHAPS_A_NUMBER_TO_REWRITE: Final = re.compile(rf"[0-9][.eE]|[0-9]{{{_DIGITS + 1}}}|NaN|Infinity")


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_text(value).encode("utf-8", "surrogatepass")).hexdigest()


def canonical_text(value: Any) -> str:
    """Return the canonical text of a JSON value, which is JSON except for very large integers.

    Parts that are not JSON are written as their `repr`. Nesting has no limit, but a value must not contain itself.
    """
    # The encoder of the standard library is fast, but recurses and does not normalize numbers.
    try:
        text = _write(value)
    except (RecursionError, TypeError, ValueError):
        return _walked(value)
    return _walked(value) if _PERHAPS_A_NUMBER_TO_REWRITE.search(text) else text


_Piece = tuple[bool, Any]
"""True and a finished text, or False and a value to write."""


def _walked(value: Any) -> str:
    """Write a value without recursion."""
    written: list[str] = []
    pending: list[_Piece] = [(False, value)]
    while pending:
        is_text, each = pending.pop()
        if is_text:
            written.append(each)
        elif isinstance(each, Mapping):
            # Sorted by the text of the key: keys of different types cannot be compared.
            members = sorted(each.items(), key=lambda member: str(member[0]))
            pieces = [[(True, _scalar(key)), (True, ":"), (False, member)] for key, member in members]
            pending += _reversed("{", pieces, "}")
        elif isinstance(each, (list, tuple)):
            pending += _reversed("[", [[(False, item)] for item in each], "]")
        else:
            written.append(_scalar(each))
    return "".join(written)


def _reversed(opening: str, parts: Iterable[list[_Piece]], closing: str) -> list[_Piece]:
    """Return the pieces of an object or array in reverse order, for a stack."""
    pieces: list[_Piece] = [(True, opening)]
    for place, part in enumerate(parts):
        pieces += [(True, ","), *part] if place else part
    pieces.append((True, closing))
    return pieces[::-1]


def _scalar(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**_DIGITS else hex(value)
    if value is None or isinstance(value, (str, bool, float)):
        return _write(value)
    return repr(value)
