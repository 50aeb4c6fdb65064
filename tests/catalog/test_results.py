"""The result of a tool call as plain values."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import mcp.types
import pytest
from hypothesis import example, given, strategies as st
from mcp.server import MCPServer
from mcp.server.mcpserver import Image
from pydantic import BaseModel

from mcp_actors import InProcess, McpActorsError, ServerConfig, ServerError, ToolFailed, open_servers, result_value
from mcp_actors.catalog import text_of

from ..messages import Said

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)
ARRAYS = st.lists(JSON, max_size=4)


def text(words: str) -> mcp.types.TextContent:
    return mcp.types.TextContent(text=words)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes) -> mcp.types.ImageContent:
    return mcp.types.ImageContent(data=encoded(data), mime_type="image/png")


def audio(data: bytes) -> mcp.types.AudioContent:
    return mcp.types.AudioContent(data=encoded(data), mime_type="audio/wav")


def embedded_bytes(data: bytes) -> mcp.types.EmbeddedResource:
    return mcp.types.EmbeddedResource(resource=mcp.types.BlobResourceContents(uri="file:///a", blob=encoded(data)))


def embedded_text(words: str) -> mcp.types.EmbeddedResource:
    return mcp.types.EmbeddedResource(resource=mcp.types.TextResourceContents(uri="file:///a", text=words))


LINK = mcp.types.ResourceLink(name="report", uri="file:///report.txt", mime_type="text/plain")
PARTS = st.one_of(
    st.text().map(text),
    JSON.map(json.dumps).map(text),
    JSON.map(json.dumps).map(embedded_text),
    *(st.binary(max_size=20).map(kind) for kind in (image, audio, embedded_bytes)),
    st.just(LINK),
)


def value_of(*parts: Any, **fields: Any) -> Any:
    return result_value(mcp.types.CallToolResult(content=list(parts), **fields))


# --- structured content ---------------------------------------------------------------------------------------------


@given(content=OBJECTS | ARRAYS, parts=st.lists(PARTS, max_size=2))
@example(content={}, parts=[text("no")])
@example(content=[], parts=[text("no")])
@example(content={"result": 1, "more": 2}, parts=[])
def test_structured_content_is_preferred_whatever_the_parts_are(content: Any, parts: list[Any]) -> None:
    """S4-13."""
    if isinstance(content, dict) and list(content) == ["result"]:
        content = {**content, "more": 1}
    assert value_of(*parts, structured_content=content) == content


@given(inner=JSON, parts=st.lists(PARTS, max_size=2))
@example(inner=None, parts=[])
@example(inner={"result": 1}, parts=[])
def test_a_wrapped_result_is_unwrapped_once(inner: Any, parts: list[Any]) -> None:
    """S4-13."""
    assert value_of(*parts, structured_content={"result": inner}) == inner


@pytest.mark.parametrize("content", [0, False, "", 3.5])
def test_a_structured_value_of_the_2026_era_need_not_be_an_object(content: Any) -> None:
    """S4-13."""
    assert value_of(text("no"), structured_content=content) == content


def test_structured_content_of_null_says_nothing_and_the_parts_count() -> None:
    assert value_of(text("sunny"), structured_content=None) == "sunny"


# --- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [text, embedded_text])
@given(content=OBJECTS | ARRAYS, indent=st.sampled_from([None, 2]), around=st.sampled_from(["", " ", "\n\t"]))
def test_text_that_is_json_is_parsed(part: Any, content: Any, indent: int | None, around: str) -> None:
    """S4-14."""
    assert value_of(part(around + json.dumps(content, indent=indent) + around)) == content


@given(words=st.text() | st.text('{}[]",:01 ').map("[{}".__add__) | SCALARS.map(json.dumps))
@example(words="007")
@example(words="null")
@example(words="[see below]")
@example(words='{"a": 1} and more')
@example(words='{"a": NaN}')
@example(words="[" * 100_000)
@example(words="[\ud800]")
def test_text_is_parsed_as_a_whole_or_stays_as_it_is(words: str) -> None:
    value = value_of(text(words))
    if isinstance(value, str):
        assert value == words
    else:
        assert value == json.loads(words)
        assert isinstance(value, (dict, list))


@pytest.mark.parametrize("words", ["007", "1e5", "true", "null", '"quoted"', "[1] is a footnote", "{not json}", ""])
def test_text_that_only_resembles_json_stays_text(words: str) -> None:
    assert value_of(text(words)) == words


@pytest.mark.parametrize("kind", [image, audio, embedded_bytes])
@given(data=st.binary())
def test_what_is_binary_is_decoded(kind: Any, data: bytes) -> None:
    """S4-14."""
    value = value_of(kind(data))
    assert type(value) is bytes
    assert value == data


def test_base64_may_be_broken_into_lines() -> None:
    data = bytes(range(256))
    part = mcp.types.ImageContent(data=base64.encodebytes(data).decode(), mime_type="image/png")
    assert value_of(part) == data


@pytest.mark.parametrize("data", ["-_8=", "-_8", "data:image/png;base64,+/8=", "data:image/png;base64,\n-_8"])
def test_base64_may_be_of_urls_and_in_a_url(data: str) -> None:
    """D-15."""
    assert value_of(mcp.types.ImageContent(data=data, mime_type="image/png")) == b"\xfb\xff"


@pytest.mark.parametrize("data", ["abcde", "abcd!", "data:image/png,abcd", "straße"])
def test_what_is_not_base64_is_refused_and_said_where_it_is(data: str) -> None:
    part = mcp.types.ImageContent(data=data, mime_type="image/png")
    with pytest.raises(ToolFailed, match=r"^part 2 of the tool's result \(image\) is not base64 \(.+\), so") as caught:
        value_of(text("here it is"), part)
    assert caught.value.result.content[1] is part


def test_a_link_is_what_the_server_sent() -> None:
    assert value_of(LINK) == {
        "type": "resource_link",
        "name": "report",
        "uri": "file:///report.txt",
        "mimeType": "text/plain",
    }
    assert json.loads(text_of(LINK) or "") == value_of(LINK)


@given(part=PARTS)
def test_one_part_is_its_value_and_several_are_a_list_in_order(part: Any) -> None:
    """S4-15."""
    alone = value_of(part)
    assert value_of(part, text("b")) == [alone, "b"]
    assert value_of(text("a"), part, part) == ["a", alone, alone]


def test_one_part_that_is_a_json_array_is_that_array() -> None:
    assert value_of(text("[1, 2]")) == [1, 2]
    assert value_of(text("[1, 2]"), text("[3]")) == [[1, 2], [3]]


def test_a_result_without_parts_has_no_value() -> None:
    assert value_of() is None


@given(parts=st.lists(PARTS, max_size=3), structured=st.none() | OBJECTS)
def test_the_result_is_not_changed(parts: list[Any], structured: Any) -> None:
    result = mcp.types.CallToolResult(content=parts, structured_content=structured)
    before = copy.deepcopy(result)
    assert result_value(result) == result_value(before)
    assert result == before


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_result_that_says_it_is_an_error_is_never_taken_for_a_value(said: Said) -> None:
    result = mcp.types.CallToolResult(
        content=[text("Unknown city 'Pariss'."), image(b""), text("Did you mean 'Paris'?")],
        structured_content={"result": 20},
        is_error=True,
    )
    with pytest.raises(ToolFailed) as caught:
        result_value(result)
    said("a tool failed", str(caught.value))
    assert caught.value.result is result


async def test_a_call_that_was_not_awaited_is_not_a_result() -> None:
    async def call() -> None: ...

    pending: Any = call()
    with pytest.raises(TypeError, match=r"takes the result of call_tool\(\), not coroutine; await call_tool\(\)"):
        result_value(pending)
    await pending


def test_a_tool_that_failed_is_not_a_server_that_failed() -> None:
    assert issubclass(ToolFailed, McpActorsError)
    assert not issubclass(ToolFailed, ServerError)


def test_a_tool_that_fails_without_words_is_said_to() -> None:
    with pytest.raises(ToolFailed, match=r"^the tool failed without a text; see the error's result$"):
        value_of(image(b"x"), is_error=True)


def test_the_message_of_a_tool_that_fails_with_many_words_is_short(said: Said) -> None:
    with pytest.raises(ToolFailed) as caught:
        value_of(text("x" * 10_000), is_error=True)
    said("a tool failed with a long text", str(caught.value), text="x" * 500)


# --- what real tools return -----------------------------------------------------------------------------------------


class Point(BaseModel):
    x: int
    y: int


SERVER = MCPServer("values")
RETURNED: dict[str, Any] = {}


def returning(name: str, value: Any, annotation: Any, expected: Any) -> None:
    def tool() -> Any:
        return value

    if annotation is not None:
        tool.__annotations__["return"] = annotation
    else:
        del tool.__annotations__["return"]
    SERVER.tool(name=name)(tool)
    RETURNED[name] = expected


returning("int", 3, int, 3)
returning("none", None, None.__class__, None)
returning("str", '{"a": 1}', str, '{"a": 1}')
returning("list", [1, 2], list[int], [1, 2])
returning("model", Point(x=1, y=2), Point, {"x": 1, "y": 2})
returning("dict", {"a": [None]}, dict[str, Any], {"a": [None]})
returning("plain dict", {"a": [1.5]}, None, {"a": [1.5]})
returning("plain text", "sunny", None, "sunny")
returning("image", Image(data=b"\x89PNG", format="png"), None, b"\x89PNG")
returning("mixture", ["a", {"b": 1}, Image(data=b"c", format="png")], None, ["a", {"b": 1}, b"c"])
returning("nothing", [], None, None)


@pytest.mark.parametrize("protocol", ["2026-07-28", "legacy"])
async def test_what_python_functions_return_arrives_as_it_was(protocol: Any) -> None:
    """S4-13, S4-14, S4-15: with the servers that people write."""
    config = ServerConfig("values", InProcess(SERVER), protocol=protocol)
    async with open_servers(config) as servers:
        values = {name: result_value(await servers["values"].call_tool(name)) for name in RETURNED}
    assert values == RETURNED
