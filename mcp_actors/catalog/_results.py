"""Convert the result of a tool call into plain values.

A `CallToolResult` may contain its data twice: as structured content for programs, and as content parts for models.
Servers differ in which of the two they fill, and wrap a value that is not an object as ``{"result": …}``.
`result_value` handles these differences.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import pydantic_core

from .._errors import ToolFailed

if TYPE_CHECKING:
    from mcp.types import CallToolResult

_SAID: Final = 500
"""Characters of a failed tool's text in the message of the error; the error's result has all of them."""


def result_value(result: CallToolResult) -> Any:
    """Return the result of a tool as plain values: JSON-like data, and `bytes` for binary content.

    Structured content is preferred. A structured ``{"result": x}`` becomes ``x``, because servers wrap values that are
    not objects in this way. (A tool that returns an object with the single member ``result`` looks the same.)

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
    if result.is_error:
        raise ToolFailed(f"the tool failed{_said(result)}", result=result)
    structured = result.structured_content
    if structured is not None:
        wrapped = isinstance(structured, dict) and structured.keys() == {"result"}
        return structured["result"] if wrapped else structured
    values = [_part_value(result, place) for place in range(len(result.content))]
    return values[0] if len(values) == 1 else values or None


def _part_value(result: CallToolResult, place: int) -> Any:
    part = result.content[place]
    if part.type == "text":
        return _text_value(part.text)
    if part.type == "resource":
        held = part.resource
        return _text_value(held.text) if hasattr(held, "text") else _decoded(result, place, held.blob)
    if part.type == "resource_link":
        return part.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _decoded(result, place, part.data)


def _text_value(text: str) -> Any:
    """Return the JSON object or array in a text, or the text itself."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError):  # TypeError for an unpaired surrogate, which JSON cannot contain
        return text


def _decoded(result: CallToolResult, place: int, data: str) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)  # some encoders break lines
    except ValueError as exc:
        raise ToolFailed(
            f"part {place + 1} of the tool's result ({result.content[place].type}) is not base64 ({exc}), so its bytes "
            "are not known; read the part from the error's result, and report this to the server's author",
            result=result,
        ) from None


def _said(result: CallToolResult) -> str:
    """Return the text of a failed tool for a message, shortened."""
    words = "\n".join(part.text for part in result.content if part.type == "text").strip()
    if not words:
        return " without a text; see the error's result"
    if len(words) <= _SAID:
        return f": {words!r}"
    return f": {words[:_SAID]!r}… ({len(words)} characters; see the error's result for all of them)"
