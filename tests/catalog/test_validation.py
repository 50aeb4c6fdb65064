"""Arguments are checked before anything is sent; results against what was promised."""

from __future__ import annotations

import datetime
import enum
import logging
import math
import re
import socket
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from itertools import chain, repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import mcp.types
import pydantic_core
import pytest
from hypothesis import assume, given, strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, model_serializer

from mcp_actors import InvalidArguments, InvalidResult, ServerError
from mcp_actors.catalog import ToolChecks, Validation, _schemas, _validation

from ..importing import importing
from ..messages import Said
from ..processor_time import takes_less_than

STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def tool(schema: Mapping[str, Any], *, name: str = "find", output: Mapping[str, Any] | None = None) -> mcp.types.Tool:
    return mcp.types.Tool(name=name, input_schema=dict(schema), output_schema=None if output is None else dict(output))


def checks(schema: Mapping[str, Any], mode: Validation = "schema") -> ToolChecks:
    return ToolChecks("docs", [tool(schema)], mode)


def having(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def refusal(schema: Mapping[str, Any], arguments: Any, mode: Validation = "schema") -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        checks(schema, mode).check_arguments("find", arguments)
    error = caught.value
    assert (error.server, error.tool) == ("docs", "find")
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    return error


def problem_of(error: Exception) -> str:
    """Return what an error says of the arguments, without who says it and what to do."""
    words = str(error).removeprefix("server 'docs': tool 'find': ")
    return words.removesuffix("; correct that and call again; nothing was sent")


# --- required arguments ---------------------------------------------------------------------------------------------

REQUIRED = {"type": "object", "properties": {"query": STRING, "limit": INTEGER}, "required": ["query", "limit"]}


@pytest.mark.parametrize("mode", ["required", "schema"])
def test_a_missing_argument_is_named_with_server_and_tool_and_what_to_do(mode: Validation, said: Said) -> None:
    error = refusal(REQUIRED, {"limit": 3}, mode)
    said("a required argument is missing", str(error))
    assert error.path == ("query",)
    assert isinstance(error, ServerError)


@pytest.mark.parametrize("nothing", [None, {}])
def test_all_missing_arguments_are_named(nothing: Any) -> None:
    error = refusal(REQUIRED, nothing, "required")
    assert problem_of(error) == "arguments.query is missing, like 'limit' (the tool requires 'query', 'limit')"


def test_an_argument_of_null_is_there() -> None:
    assert checks(REQUIRED, "required").check_arguments("find", {"query": None, "limit": None}) is not None


def test_by_default_nothing_but_presence_is_checked() -> None:
    arguments = {"query": 1, "limit": "many", "more": []}
    assert ToolChecks("docs", [tool(REQUIRED)]).check_arguments("find", arguments) == arguments


@pytest.mark.parametrize("required", ["query", {"query": True}, None, 3, [], [1, None, ["query"]]])
def test_a_list_of_required_names_that_cannot_be_read_requires_nothing(required: Any) -> None:
    assert checks({"type": "object", "required": required}, "required").check_arguments("find", {}) == {}


def test_mode_off_checks_nothing() -> None:
    """The validator is imported when the first schema is checked."""
    assert importing()["the validator with checks"] == {"off": False, "schema": True}


# --- what can be sent at all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["required", "schema"])
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["a"], "arguments is an array; expected an object"),
        ("query=a", "arguments is a string; expected an object"),
        ({("query"), ("limit")}, "arguments is a Python set; expected an object"),
        ({1: "a"}, "arguments has the key 1; expected strings as keys"),
    ],
)
def test_arguments_are_an_object(mode: Validation, arguments: Any, problem: str) -> None:
    error = refusal({"type": "object"}, arguments, mode)
    assert problem_of(error) == problem
    assert error.path == ()


class Raising(BaseModel):
    @model_serializer
    def refuse(self) -> Any:
        raise RuntimeError("cannot")


def deep(levels: int) -> Any:
    inner: Any = 1
    for _ in range(levels):
        inner = [inner]
    return inner


LOOP: dict[str, Any] = {}
LOOP["again"] = [LOOP]


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        (object(), (), "arguments.q is a Python object, which cannot be written as JSON"),
        (
            {"a": [1, {"b": object()}]},
            ("a", 1, "b"),
            "arguments.q.a[1].b is a Python object, which cannot be written as JSON",
        ),
        (b"\xff", (), "arguments.q is a Python bytes, which cannot be written as JSON"),
        (UserDict(), (), "arguments.q is a Python UserDict, which cannot be written as JSON"),
        (Raising(), (), "arguments.q is a Python Raising, which cannot be written as JSON"),
        (
            LOOP,
            ("again", 0),
            "arguments.q.again[0] contains itself, so it cannot be written as",
        ),
        (
            deep(400),
            (0,) * 29,
            "which cannot be written as JSON (nested too deeply, or with keys that are not strings)",
        ),
    ],
)
def test_a_value_that_cannot_be_written_as_json_is_named(value: Any, path: tuple[Any, ...], problem: str) -> None:
    error = refusal({"type": "object"}, {"fine": [1], "q": value}, "required")
    assert problem in problem_of(error)
    assert error.path == ("q", *path)


def test_the_deepest_arguments_that_pass_can_be_read_in_a_request() -> None:
    deepest: dict[str, Any] | None = None
    for levels in range(150, 250):
        arguments = {"q": deep(levels)}
        with suppress(InvalidArguments):
            deepest = checks({}).check_arguments("find", arguments)
    assert deepest is not None
    text = pydantic_core.to_json({"params": {"arguments": deepest}})
    assert pydantic_core.from_json(text)["params"]["arguments"] == deepest


class Color(enum.Enum):
    RED = "red"


class Model(BaseModel):
    a: int | None = None
    b: list[Decimal] = []


PYTHON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.dates()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.sampled_from([Color.RED, Path("/tmp"), Model(), Model(a=1, b=[Decimal("0.1")]), datetime.timedelta(1.5)]),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("mode", ["required", "schema"])
@given(arguments=st.dictionaries(st.text(), PYTHON_VALUES, max_size=3))
def test_arguments_are_checked_and_sent_as_the_sdk_would_write_them(
    mode: Validation, arguments: dict[str, Any]
) -> None:
    params = mcp.types.CallToolRequestParams(name="find", arguments=arguments)
    written = params.model_dump(by_alias=True, mode="json", exclude_none=True)["arguments"]
    sent, text = checks({"type": "object"}, mode).check_json("find", arguments)
    assert sent == written
    assert text == pydantic_core.to_json(written)
    again = mcp.types.CallToolRequestParams(name="find", arguments=sent)
    assert again.model_dump(by_alias=True, mode="json", exclude_none=True)["arguments"] == written


def test_a_schema_is_applied_to_the_arguments_as_sent() -> None:
    schema = having(day={"type": "string", "pattern": "^2020-"}, pair={"type": "array"}, ratio={"type": "number"})
    sent = checks(schema).check_arguments("find", {"day": datetime.date(2020, 1, 2), "pair": (1, 2)})
    assert sent == {"day": "2020-01-02", "pair": [1, 2]}
    assert (
        problem_of(refusal(schema, {"ratio": math.nan}))
        == "arguments.ratio is the number nan, which cannot be written as JSON"
    )


@pytest.mark.parametrize("mode", ["required", "schema"])
def test_arguments_that_change_after_the_check_are_sent_unchanged(mode: Validation) -> None:
    arguments: dict[str, Any] = {"rows": [{"id": 1}]}
    sent = checks(having(), mode).check_arguments("find", arguments)
    arguments["rows"][0]["id"] = object()
    arguments["more"] = 1
    assert sent == {"rows": [{"id": 1}]}


def test_any_mapping_will_do() -> None:
    assert checks(having(), "required").check_arguments("find", MappingProxyType({"a": 1})) == {"a": 1}


def test_none_as_arguments_stays_none() -> None:
    assert checks(having()).check_arguments("find", None) is None
    assert checks(having()).check_json("find", None) == (None, None)
    assert checks(having()).check_arguments("find", {}) == {}


def test_off_means_off() -> None:
    strange: Any = {1: object()}
    off = ToolChecks("docs", [tool(REQUIRED, output={"type": "object", "required": ["n"]})], "off")
    assert off.check_arguments("find", strange) == strange
    assert off.check_arguments("find", None) is None
    assert off.check_json("find", strange) == (strange, None)
    off.check_result("find", mcp.types.CallToolResult(content=[], structured_content={}))


# --- the whole schema -----------------------------------------------------------------------------------------------


def test_the_offending_argument_is_named_by_its_path(said: Said) -> None:
    schema = having(filter=having(rows={"type": "array", "items": having(id=INTEGER)}, limit=INTEGER))
    error = refusal(schema, {"filter": {"rows": [{"id": 1}, {"id": "2"}]}})
    said("an argument of the wrong type", str(error))
    assert error.path == ("filter", "rows", 1, "id")


def test_several_problems_are_counted() -> None:
    error = refusal(having(a=INTEGER, b=INTEGER, c=INTEGER), {"a": "x", "b": "y", "c": 1})
    assert re.fullmatch(r"arguments\.[ab] is a string; expected an integer \(and 1 more\)", problem_of(error))


def test_a_reference_inside_the_schema_is_followed() -> None:
    schema = {
        **having(at={"$ref": "#/$defs/point"}),
        "$defs": {"point": having(x={"$ref": "#/$defs/number"}), "number": INTEGER},
    }
    assert checks(schema).check_arguments("find", {"at": {"x": 1}}) == {"at": {"x": 1}}
    assert problem_of(refusal(schema, {"at": {"x": "1"}})) == "arguments.at.x is a string; expected an integer"


def test_the_dialect_is_2020_12_unless_the_schema_names_another() -> None:
    pair = {"type": "array", "items": [INTEGER, STRING]}  # of draft 7; in 2020-12 it is not a schema
    draft_7 = {**having(pair=pair), "$schema": "http://json-schema.org/draft-07/schema#"}
    assert problem_of(refusal(draft_7, {"pair": [1, 2]})) == "arguments.pair[1] is an integer; expected a string"
    prefixed = having(pair={"type": "array", "prefixItems": [INTEGER, STRING]})
    assert problem_of(refusal(prefixed, {"pair": [1, 2]})) == "arguments.pair[1] is an integer; expected a string"
    unheard_of = {**prefixed, "$schema": "https://example.com/dialect"}
    assert problem_of(refusal(unheard_of, {"pair": [1, 2]})) == "arguments.pair[1] is an integer; expected a string"


def test_a_frozen_schema_of_the_catalogue_can_be_checked_against() -> None:
    from mcp_actors import CatalogTool

    listed = CatalogTool.from_listing("docs", tool(having(a=INTEGER)), "x")
    with pytest.raises(InvalidArguments):
        ToolChecks("docs", [listed], "schema").check_arguments(listed.name, {"a": "1"})


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {},
            STRING,
            INTEGER,
            {"type": ["number", "null"]},
            {"enum": ["a", 1, None]},
            {"const": True},
            {"minimum": 3},
            {"maxLength": 1},
            {"pattern": "^a"},
            {"minItems": 1, "uniqueItems": True},
            {"maxProperties": 1},
            {"required": ["a", "b"]},
            {"propertyNames": {"pattern": "^a"}},
            {"not": STRING},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda a, b: having(a=a, b=b), inner, inner),
        st.builds(lambda a: {**having(a=a), "additionalProperties": False}, inner),
        st.builds(lambda a: {"patternProperties": {"^a": a}, "additionalProperties": False}, inner),
        st.builds(lambda a: {**having(a=a), "unevaluatedProperties": False}, inner),
        st.builds(lambda a: {"additionalProperties": a}, inner),
        st.builds(lambda a: {"type": "array", "items": a}, inner),
        st.builds(lambda a: {"contains": a}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda a, b: {"oneOf": [a, b]}, inner, inner),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
        st.builds(lambda a: {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": a}}, inner),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 7, 2.5, "", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner, max_size=3),
    max_leaves=6,
)


@given(schema=SCHEMAS, value=VALUES)
def test_refused_is_exactly_what_the_schema_refuses(schema: Any, value: Any) -> None:
    # Both in one schema cannot be bounded, so that such a one is not used.
    assume(not all(f"'{keyword}'" in str(schema) for keyword in ("patternProperties", "unevaluatedProperties")))
    schema = {"type": "object", "properties": {"q": schema}}
    if Draft202012Validator(schema).is_valid({"q": value}):
        assert checks(schema).check_arguments("find", {"q": value}) == {"q": value}
        return
    error = refusal(schema, {"q": value})
    assert error.path[0] == "q"
    assert problem_of(error).startswith("arguments.q")


# --- unusable schemas ----------------------------------------------------------------------------------------------


def unusable(owner: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log's lines about a schema, without the reason; they say that it cannot be used."""
    lines = [record.getMessage() for record in caplog.records if record.name == "mcp_actors.catalog"]
    assert all(line.startswith(f"{owner} cannot be used, so nothing is checked against it (") for line in lines)
    return lines


BROKEN: list[Callable[[], Any]] = [
    lambda: {"type": "nonsense"},
    lambda: having(a={"type": 7}),
    lambda: having(a=INTEGER) | {"$schema": ["unhashable"]},
    lambda: {"properties": []},
    lambda: having(a={"$ref": "#/$defs/nowhere"}),
    lambda: having(a={"$ref": "other.json"}),
    lambda: {"$ref": "#"},
    lambda: having(a={"$schema": "http://json-schema.org/draft-07/schema#"}),
    lambda: {"patternProperties": {"^b": True}, "unevaluatedProperties": False},
    lambda: having(a=deep(3000)),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_schema_breaks_no_call_and_is_logged_once(
    broken: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    found = checks(broken())
    for _ in range(3):
        assert found.check_arguments("find", {"a": "x"}) == {"a": "x"}
    [line] = unusable("server 'docs': tool 'find': its input schema", caplog)
    assert len(line) < 400
    assert caplog.records[-1].levelno == logging.WARNING


def test_required_arguments_of_a_broken_schema_are_still_required() -> None:
    assert refusal({**having(a={"type": "nonsense"}), "required": ["a"]}, {}).path == ("a",)


UNKNOWN = r"^(?!\x1b[31m)"
"""A pattern that looks around, which ours do not; its text would act in a terminal."""


@pytest.mark.parametrize("heavy", [UNKNOWN, "(?:a{1,99}){1,99}", "a" * 5001, "("])
def test_a_pattern_that_cannot_be_used_does_not_spoil_the_rest(heavy: str, caplog: pytest.LogCaptureFixture) -> None:
    found = checks(having(a={"pattern": heavy}, b=INTEGER))
    for _ in range(3):
        found.check_arguments("find", {"a": "x"})
    with pytest.raises(InvalidArguments, match=r"arguments\.b is a string"):
        found.check_arguments("find", {"b": "x"})
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("server 'docs': tool 'find': its input schema has patterns that are not checked (")
    assert line.isprintable()
    assert len(line) < 400


def test_a_pattern_of_members_that_cannot_be_used_is_reported_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = checks({"patternProperties": {UNKNOWN: INTEGER}})
    found.check_arguments("find", {"a": "whose member is not checked"})
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("server 'docs': tool 'find': its input schema has patterns that are not checked (")


def test_patterns_are_those_of_unicode() -> None:
    found = checks(having(a={"pattern": r"^\p{Lu}\d"}))
    found.check_arguments("find", {"a": "Ä1…"})
    with pytest.raises(InvalidArguments, match=r"arguments\.a does not match; expected a string that matches \^"):
        found.check_arguments("find", {"a": "ä1"})


def test_members_by_pattern_are_known() -> None:
    schema = {"patternProperties": {"^x-": INTEGER, UNKNOWN: INTEGER}, "additionalProperties": False}
    found = checks(schema)
    found.check_arguments("find", {"x-a": 1})
    with pytest.raises(InvalidArguments, match=r"arguments\['x-a'\] is a string; expected an integer"):
        found.check_arguments("find", {"x-a": "1"})
    found.check_arguments("find", {"b": "may match what looks around"})
    with pytest.raises(InvalidArguments, match=r"arguments\.b is not known"):
        checks({"patternProperties": {"^x-": INTEGER}, "additionalProperties": False}).check_arguments("find", {"b": 1})
    with pytest.raises(InvalidArguments, match=r"arguments\.b is a string; expected an integer"):
        checks({"patternProperties": {"^x-": {}}, "additionalProperties": INTEGER}).check_arguments("find", {"b": "1"})


@pytest.mark.parametrize(("items", "good"), [([1, 1.0], False), ([1, True], True), ([{"a": [1]}, {"a": [1]}], False)])
def test_items_are_equal_as_in_json(items: list[Any], good: bool) -> None:
    found = checks(having(a={"uniqueItems": True}))
    if good:
        found.check_arguments("find", {"a": items})
    else:
        with pytest.raises(InvalidArguments, match=r"arguments\.a"):
            found.check_arguments("find", {"a": items})


# --- schemas that would take years ----------------------------------------------------------------------------------

EVIL: Final = "^(a+)+$"

DOUBLED: Final = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)} | {"d20": True}

DRAFT_4: Final = "http://json-schema.org/draft-04/schema#"

YEARS: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "a pattern": (having(a={"pattern": EVIL}), "a" * 27 + "!"),
    "a long text": (having(a={"pattern": "a*b"}), "a" * 1_000_000),
    "members by pattern": (having(a={"patternProperties": {EVIL: INTEGER}}), {"a" * 27 + "!": "x"}),
    "other members": (
        having(a={"patternProperties": {EVIL: INTEGER}, "additionalProperties": False}),
        {"a" * 27 + "!": "x"},
    ),
    "names": (having(a={"propertyNames": {"pattern": EVIL}}), {"a" * 27 + "!": "x"}),
    "doubling": (having(a={"$ref": "#/$defs/d0"}) | {"$defs": DOUBLED}, "x"),
    "items like others": (having(a={"uniqueItems": True}), [{"a": n} for n in range(20_000)]),
    "a long list": (having(a={"items": {"enum": [str(n) for n in range(20_000)]}}), ["x"] * 20_000),
    "a schema of many parts": (having(a={"properties": {str(n): {} for n in range(30_000)}}), {}),
    "a schema with items like others": (having(a={"enum": [{"a": n} for n in range(9_000)]}) | {"$schema": DRAFT_4}, 1),
    "what is told": (having(a={"items": {"type": "object", "maxProperties": -1}}), ["x" * 30_000] * 500),
}


@pytest.mark.parametrize("case", YEARS)
def test_no_schema_takes_more_than_its_time(case: str) -> None:
    """Nothing else runs meanwhile, so a check that exceeds its time is given up, and the call is sent."""
    schema, value = YEARS[case]
    found = checks(schema)
    for _ in range(2):
        with takes_less_than(2), suppress(InvalidArguments):
            found.check_arguments("find", {"a": value})


def test_a_schema_that_takes_too_long_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    found = checks(YEARS["doubling"][0])
    for _ in range(3):
        assert found.check_arguments("find", {"a": "x"}) == {"a": "x"}
    [line] = unusable("server 'docs': tool 'find': its input schema", caplog)
    assert "a check takes more than 0.1 s" in line
    with takes_less_than(0.05):
        found.check_arguments("find", {"a": "x"})


def test_a_pause_in_a_check_does_not_count_against_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the garbage collector of a large program makes one."""
    times = chain([0.0, 1.0], repeat(2.0))
    monkeypatch.setattr(_schemas, "thread_time", lambda: next(times))
    with pytest.raises(InvalidArguments, match="expected an integer"):
        checks(having(a=INTEGER)).check_arguments("find", {"a": "x"})


def test_a_value_that_is_too_large_to_be_checked_is_not(caplog: pytest.LogCaptureFixture) -> None:
    found = checks(having(a=INTEGER))
    found.check_arguments("find", {"a": "x" * 1_100_000})
    assert "a value of more than 1048576 bytes" in caplog.records[0].getMessage()
    with pytest.raises(InvalidArguments, match="expected an integer"):
        found.check_arguments("find", {"a": "x" * 1_000})


@pytest.fixture
def impatience() -> Iterator[None]:
    """Limit the time that a connection to an unreachable host may take."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.5)
    yield
    socket.setdefaulttimeout(before)


@pytest.mark.usefixtures("impatience")
def test_nothing_is_ever_fetched(caplog: pytest.LogCaptureFixture) -> None:
    """A ``$ref`` to a server that is there, and would hear of every attempt."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        schema = {**having(a={"$ref": url}), "$id": url + "?base"}
        assert checks(schema).check_arguments("find", {"a": 1}) == {"a": 1}
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert len(unusable("server 'docs': tool 'find': its input schema", caplog)) == 1


# --- which tool -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["required", "schema"])
def test_a_tool_that_was_not_listed_is_for_the_server_to_judge(mode: Validation) -> None:
    assert checks(REQUIRED, mode).check_arguments("hidden", {}) == {}
    checks(REQUIRED, mode).check_result("hidden", mcp.types.CallToolResult(content=[]))


def test_of_several_tools_of_one_name_the_first_counts() -> None:
    found = ToolChecks("docs", [tool(having()), tool(REQUIRED)])
    assert found.check_arguments("find", {}) == {}


def test_checks_are_updated_for_another_listing() -> None:
    before = checks(having(a={"const": 1}))
    before.check_arguments("find", {"a": 1})
    after = before.updated([tool(having(a={"const": True})), tool(REQUIRED, name="new")])
    after.check_arguments("find", {"a": True})
    with pytest.raises(InvalidArguments):
        after.check_arguments("find", {"a": 1})
    with pytest.raises(InvalidArguments):
        after.check_arguments("new", {})
    assert after.updated([]).check_arguments("new", {}) == {}


def test_a_compiled_schema_is_kept_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    found = checks({"type": "nonsense"})
    for _ in range(3):
        found = found.updated([tool({"type": "nonsense"})])
        found.check_arguments("find", {})
    assert len(unusable("server 'docs': tool 'find': its input schema", caplog)) == 1
    found.updated([tool({"type": "other nonsense"})]).check_arguments("find", {})
    assert len(unusable("server 'docs': tool 'find': its input schema", caplog)) == 2


# --- results --------------------------------------------------------------------------------------------------------

PROMISE = {**having(rows={"type": "array", "items": having(id=INTEGER)}), "required": ["rows"]}


def checked(mode: Validation = "schema", promise: Mapping[str, Any] | None = PROMISE, **fields: Any) -> None:
    found = ToolChecks("docs", [tool(having(), output=promise)], mode)
    found.check_result("find", mcp.types.CallToolResult(content=[], **fields))


def test_a_result_that_breaks_the_promise_of_its_schema_is_an_error_that_holds_it(said: Said) -> None:
    result = mcp.types.CallToolResult(content=[], structured_content={"rows": [{"id": "secret"}]})
    found = ToolChecks("docs", [tool(having(), output=PROMISE)], "schema")
    with pytest.raises(InvalidResult) as caught:
        found.check_result("find", result)
    error = caught.value
    said("a result that breaks its schema", str(error))
    assert (error.server, error.tool, error.path) == ("docs", "find", ("rows", 0, "id"))
    assert error.result is result
    assert isinstance(error, ServerError)


def test_structured_content_that_was_promised_must_be_there() -> None:
    with pytest.raises(InvalidResult, match="schema: structured_content is missing; the tool has run"):
        checked()


def test_null_is_content_for_a_schema_that_allows_it() -> None:
    checked(promise={"type": ["object", "null"]}, structured_content=None)
    with pytest.raises(InvalidResult, match="structured_content is null; expected an object"):
        checked(promise={"type": "object"}, structured_content=None)


def test_a_result_that_keeps_the_promise_is_fine() -> None:
    checked(structured_content={"rows": [{"id": 1}, {}]})


@pytest.mark.parametrize(
    "case",
    [
        {"is_error": True, "structured_content": {"rows": 1}},
        {"mode": "required", "structured_content": {"rows": 1}},
        {"mode": "off"},
        {"promise": None, "structured_content": {"rows": 1}},
    ],
)
def test_an_error_a_result_without_promise_or_unless_asked_for_is_not_checked(case: Any) -> None:
    checked(**case)


def test_a_broken_output_schema_breaks_no_call(caplog: pytest.LogCaptureFixture) -> None:
    checked(promise={"type": "nonsense"}, structured_content={})
    assert len(unusable("server 'docs': tool 'find': its output schema", caplog)) == 1


def test_a_check_is_made_when_its_tool_is_first_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long list of tools few are called."""
    made: list[str] = []
    make = _validation._ToolCheck.__init__

    def record(self: _validation._ToolCheck, server: str, tool: mcp.types.Tool, *args: Any) -> None:
        made.append(tool.name)
        make(self, server, tool, *args)

    monkeypatch.setattr(_validation._ToolCheck, "__init__", record)
    made_of = ToolChecks("s", [tool(REQUIRED, name=f"tool-{number}") for number in range(3)])
    assert made == []
    for _ in range(2):
        made_of.check_arguments("tool-1", {"query": "a", "limit": 1})
    assert made == ["tool-1"]


@pytest.mark.parametrize("mode", ["required", "schema", "off"])
def test_the_name_of_a_tool_that_cannot_be_written_is_refused(mode: Validation) -> None:
    """In every mode: it would end the request as an error of the connection."""
    with pytest.raises(InvalidArguments, match="cannot be sent"):
        checks({}, mode).check_request("\ud800", None)
    with pytest.raises(InvalidArguments, match="name is null; expected the name of a tool"):
        checks({}, mode).check_request(None, None)  # type: ignore[arg-type]  # users may pass anything
    checks({}, mode).check_request("suche_über_alles", None)
