"""From the result of a tool call to plain values.

A `CallToolResult` says things twice: as structured content, for programs, and as parts of content, for models. Servers
differ in which of the two they fill, and wrap what is not an object as ``{"result": …}``. `result_value` knows these
habits, so that programs do not have to.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import pydantic_core

from .._errors import ToolFailed

if TYPE_CHECKING:
    from mcp.types import CallToolResult

__all__ = ["result_value"]

_SAID: Final = 500
"""Characters of a failed tool's own words in the message of the error; the result in the error has all of them."""


def result_value(result: CallToolResult) -> Any:
    """Return what a tool returned, as plain values: JSON-like ones, and `bytes` for what is binary.

    Structured content is preferred, if there is any. A structured ``{"result": x}`` is ``x``: that is how servers wrap
    what is not an object. (A tool whose own answer is an object with the one member ``result`` looks the same.)

    Without structured content each part of the content is a value:

    - text is a `str`; if all of it is a JSON object or array, that. Text such as ``"007"`` or ``"true"`` stays text;
    - images and audio are `bytes`. Their media type is in the part itself, at the same place in ``result.content``;
    - an embedded resource is its text or its bytes, likewise;
    - a link to a resource is a `dict`, as on the wire (``uri``, ``name`` …). Nothing is fetched.

    One part is its value, several are a list of theirs in order, and none is None.

    Args:
        result: what `call_tool` returned.

    Returns:
        The value. It may share parts with `result`, so change a copy of it.

    Raises:
        ToolFailed: the tool says that it failed (``is_error``), or a binary part is not base64.
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
    """Return the JSON object or array that a text is, or the text."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError):  # the latter is said of half a surrogate pair, which JSON cannot have
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
