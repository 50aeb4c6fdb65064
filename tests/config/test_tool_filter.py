"""Tools are filtered by names and patterns for everyone, and by a predicate per agent."""

from __future__ import annotations

import fnmatch
import functools
import logging
from typing import Any

import attrs
import mcp.types
import pytest
import trio
from hypothesis import given, strategies as st

from mcp_actors import CatalogTool, ConfigError, ToolFilter
from mcp_actors.config import ToolContext, permitted

from ..messages import Said

NAMES = ("search", "read_file", "read_all", "write_file", "delete_all")


def shown(tool_filter: ToolFilter) -> set[str]:
    return {name for name in NAMES if tool_filter.shows(name)}


def tool(server: str, name: str) -> CatalogTool:
    listed = mcp.types.Tool(name=name, input_schema={"type": "object", "properties": {}})
    return CatalogTool.from_listing(server, listed, f"mcp__{server}__{name}")


def test_without_arguments_everything_is_shown() -> None:
    assert shown(ToolFilter()) == set(NAMES)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"allow": ["search", "new"]}, {"search"}),
        ({"allow": []}, set()),
        ({"deny": ["delete_all"]}, {"search", "read_file", "read_all", "write_file"}),
        ({"deny": []}, set(NAMES)),
        ({"patterns": ["read_*"]}, {"read_file", "read_all"}),
        ({"patterns": ["?e*_all"]}, {"read_all", "delete_all"}),
        ({"patterns": ["[rw]*_file"]}, {"read_file", "write_file"}),
        ({"patterns": ["!*_all"]}, {"search", "read_file", "write_file"}),
        ({"patterns": ["read_*", "!*_all"]}, {"read_file"}),
        ({"allow": ["search"], "patterns": ["read_*"]}, {"search", "read_file", "read_all"}),
        ({"allow": ["search"], "patterns": ["!*_all"]}, {"search"}),
        ({"allow": [], "patterns": ["read_*"]}, {"read_file", "read_all"}),
        ({"patterns": ["read_*"], "deny": ["read_all"]}, {"read_file"}),
    ],
)
def test_names_and_patterns_select_the_tools(arguments: dict[str, Any], names: set[str]) -> None:
    assert shown(ToolFilter(**arguments)) == names


def test_upper_and_lower_case_differ() -> None:
    assert not ToolFilter(allow=["Search"]).shows("search")
    assert not ToolFilter(patterns=["READ_*"]).shows("read_file")


def test_a_name_of_several_lines_is_matched_as_a_whole() -> None:
    """An odd character at the end of a name must not show a hidden tool, nor hide a shown one."""
    assert not ToolFilter(patterns=["read_file"]).shows("read_file\n")
    assert not ToolFilter(patterns=["!delete*"]).shows("delete\nall")


few = st.text(alphabet="ab*?[!]", max_size=4)


@given(st.lists(few, min_size=1, max_size=4), st.text(alphabet="ab*?[!]", max_size=5))
def test_patterns_mean_what_fnmatch_says_and_hiding_wins(patterns: list[str], name: str) -> None:
    try:
        tool_filter = ToolFilter(patterns=patterns)
    except ConfigError:
        return
    positive = [each for each in patterns if not each.startswith("!")]
    wanted = not positive or any(fnmatch.fnmatchcase(name, each) for each in positive)
    hidden = any(fnmatch.fnmatchcase(name, each[1:]) for each in patterns if each.startswith("!"))
    assert tool_filter.shows(name) is (wanted and not hidden)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"allow": "search"}, "allow='search' is not valid; give a collection of names, like allow=('search', 're"),
        ({"deny": None}, "deny=None is not valid; give a collection of names, like deny=('search', 'read')"),
        ({"deny": 3}, "deny=3 is not valid; give a collection of names"),
        ({"patterns": [["a"]]}, "patterns=<list> is not valid; give a collection of names"),
        ({"allow": [3]}, "allow=(…, 3, …) is not valid; give names of tools"),
        ({"patterns": [""]}, "patterns=(…, '', …) is not valid; give names of tools"),
        (
            {"deny": ["delete_*"]},
            "deny='delete_*' is not valid; this is a pattern; move it to patterns, with a leading '!'",
        ),
        ({"patterns": []}, "patterns=() is not valid; it names no tools; leave it out to show all, or set allow=()"),
        ({"patterns": ["!"]}, "patterns='!' is not valid; add a pattern after the '!', like '!delete_*'"),
        (
            {"predicate": True},
            "predicate=True is not valid; give a function (tool, context), async or not, that returns",
        ),
        (
            {"predicate": lambda tool: True},
            "predicate=<<lambda>, which cannot be called with (tool, context)> is not valid; give a function (tool, co",
        ),
        ({"predicate": ToolContext}, "predicate=<the class ToolContext> is not valid; give a function (tool, "),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ToolFilter(**arguments)
    assert str(caught.value).startswith(f"ToolFilter: {message}")
    assert (caught.value.source, caught.value.path) == ("ToolFilter", next(iter(arguments)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"allow": ["a", "b"], "deny": ["c", "b"]}, "'b' is both in allow and in deny; remove it from one of them"),
        (
            {"allow": ["all"], "patterns": ["xall", "!b*", "!a*"]},
            "'all' is in allow, and the pattern '!a*' hides it; remove",
        ),
        ({"patterns": ["a*", "!a*"]}, "patterns has both 'a*' and '!a*'; remove one of them"),
    ],
)
def test_contradictory_values_are_refused_and_both_are_named(arguments: dict[str, Any], message: str) -> None:
    """S4-26: an option against another."""
    with pytest.raises(ConfigError) as caught:
        ToolFilter(**arguments)
    assert str(caught.value).startswith(f"ToolFilter: {message}")


def test_filters_are_equal_if_they_name_the_same_in_whatever_order() -> None:
    one = ToolFilter(allow=["a", "b", "a"], deny=["c", "d"], patterns=["e*", "f*"])
    assert one == ToolFilter(allow={"b", "a"}, deny={"d", "c"}, patterns=["f*", "e*"])
    assert hash(one) == hash(ToolFilter(allow=["b", "a"], deny=["d", "c"], patterns=["f*", "e*"]))
    assert one != ToolFilter(deny=["c", "d"], patterns=["e*", "f*"])
    assert repr(one) == "ToolFilter(allow=('a', 'b'), deny=('c', 'd'), patterns=('e*', 'f*'))"


def test_it_is_frozen() -> None:
    names = ["a"]
    tool_filter = ToolFilter(allow=names)
    names.append("b")
    assert tool_filter.allow == ("a",)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        tool_filter.allow = ()  # type: ignore[misc]  # that it refuses is what is tested


class TestPredicate:
    async def test_the_predicate_decides_by_agent_and_run(self) -> None:
        """S1-22: per agent and run; who asks changes nothing for the others."""

        def predicate(tool: CatalogTool, context: ToolContext) -> bool:
            return tool.name.startswith("read") or (context.agent == "editor" and context.run == "confirmed")

        tools = (tool("a", "read"), tool("a", "write"), tool("b", "write"))
        filters = {"a": ToolFilter(predicate=predicate), "b": ToolFilter()}
        reader, editor = ToolContext("reader"), ToolContext("editor", "confirmed")
        assert await permitted(tools, filters, reader) == (tools[0], tools[2])
        assert await permitted(tools, filters, editor) == tools
        assert await permitted(tools, filters, ToolContext("editor")) == (tools[0], tools[2])
        assert await permitted(tools, {}, reader) == tools

    async def test_the_predicate_needs_a_context(self, said: Said) -> None:
        """S1-24: without a context there is an error that says what to give; without a predicate none is needed."""
        tools = (tool("a", "x"), tool("b", "x"))
        assert await permitted(tools, {"b": ToolFilter(deny=["x"])}) == tools
        with pytest.raises(ConfigError) as caught:
            await permitted(tools, {"b": ToolFilter(predicate=lambda tool, context: True)})
        said("predicate without a context", str(caught.value))
        assert (caught.value.source, caught.value.path) == ("ToolFilter", "servers.b.tools.predicate")

    async def test_the_predicate_cannot_change_the_catalogue(self, caplog: pytest.LogCaptureFixture) -> None:
        """S1-22: what it is given refuses every change, so the catalogue stays what it was."""

        def greedy(tool: Any, context: ToolContext) -> bool:
            tool.input_schema["properties"]["mine"] = {}
            return True

        def greedier(tool: Any, context: ToolContext) -> bool:
            tool.description = "mine"
            return True

        [one] = tools = (tool("a", "x"),)
        assert await permitted(tools, {"a": ToolFilter(predicate=greedy)}, ToolContext("me")) == ()
        assert await permitted(tools, {"a": ToolFilter(predicate=greedier)}, ToolContext("me")) == ()
        assert one == tool("a", "x")

    async def test_one_that_raises_hides_that_tool_and_is_logged(
        self, caplog: pytest.LogCaptureFixture, said: Said
    ) -> None:
        """S1-24: the others are shown, and one line names what is hidden, with a traceback."""

        def predicate(tool: CatalogTool, context: ToolContext) -> bool:
            if tool.name.startswith("bad"):
                raise LookupError(f"no rule for {tool.name}")
            return True

        tools = [tool("a", "good"), *(tool("a", f"bad{number}") for number in range(10)), tool("b", "bad")]
        filters = {"a": ToolFilter(predicate=predicate)}
        with caplog.at_level(logging.WARNING, "mcp_actors.config"):
            assert [each.public_name for each in await permitted(tools, filters, ToolContext("me"))] == [
                "mcp__a__good",
                "mcp__b__bad",
            ]
        [record] = caplog.records
        said("predicate raised", record.getMessage())
        assert "LookupError: no rule for bad0" in caplog.text

    async def test_an_exit_is_not_taken_for_an_answer(self) -> None:
        def predicate(tool: CatalogTool, context: ToolContext) -> bool:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await permitted([tool("a", "x")], {"a": ToolFilter(predicate=predicate)}, ToolContext("me"))

    async def test_an_async_function_is_awaited_for_one_tool_after_the_other(self) -> None:
        asked: list[str] = []

        async def predicate(tool: CatalogTool, context: ToolContext, allowed: str = "x") -> bool:
            asked.append(tool.name)
            await trio.lowlevel.checkpoint()
            asked.append(tool.name)
            return tool.name == allowed

        class Rules:
            async def __call__(self, tool: CatalogTool, context: ToolContext) -> bool:
                return await predicate(tool, context)

        tools = (tool("a", "x"), tool("a", "y"))
        given: Any
        for given in (predicate, functools.partial(predicate, allowed="x"), Rules(), lambda *both: predicate(*both)):
            assert await permitted(tools, {"a": ToolFilter(predicate=given)}, ToolContext("me")) == tools[:1]
            assert asked == ["x", "x", "y", "y"]
            asked.clear()

    async def test_an_async_one_that_raises_hides_that_tool_and_a_cancelled_one_ends_the_list(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def predicate(tool: CatalogTool, context: ToolContext) -> bool:
            await trio.lowlevel.checkpoint()
            raise LookupError("no rule")

        filters = {"a": ToolFilter(predicate=predicate)}
        assert await permitted([tool("a", "x")], filters, ToolContext("me")) == ()
        assert "LookupError: no rule" in caplog.text
        with trio.CancelScope() as scope:
            scope.cancel("what is tested")
            await permitted([tool("a", "x")], filters, ToolContext("me"))
        assert scope.cancelled_caught

    async def test_an_attribute_that_a_context_lacks_is_logged_with_what_a_predicate_gets(
        self, caplog: pytest.LogCaptureFixture, said: Said
    ) -> None:
        """A filter of another library, whose parameters have no telling names."""
        filters = {"a": ToolFilter(predicate=lambda a, b: b.name == "x")}  # type: ignore[attr-defined]  # what is tested
        assert await permitted([tool("a", "x")], filters, ToolContext("me")) == ()
        [record] = caplog.records
        said("predicate with other attributes", record.getMessage())

    @pytest.mark.parametrize(
        "given",
        [
            lambda context, tool: True,
            lambda ctx, tool_def: True,
            lambda _, tool: True,
            lambda run_context, t: True,
            lambda tool_context, tool: True,
        ],
    )
    def test_the_order_of_other_libraries_is_refused_with_ours(self, given: Any) -> None:
        """openai-agents and Pydantic AI call a filter with (context, tool)."""
        with pytest.raises(
            ConfigError, match=r"swap its parameters to \(tool, context\); the context has agent and run"
        ):
            ToolFilter(predicate=given)

    @pytest.mark.parametrize(
        "given",
        [
            lambda tool, context: True,
            lambda tool, _: True,
            lambda each, tool_context: True,
            lambda a, b: True,
            lambda *both: True,
            lambda mcp_tool, ctx, tool=None: True,
            max,
        ],
    )
    def test_an_order_that_may_be_ours_is_accepted(self, given: Any) -> None:
        assert ToolFilter(predicate=given).predicate is given

    def test_an_async_filter_of_another_library_is_refused_and_named(self, said: Said) -> None:
        async def by_role(context: Any, tool: Any) -> bool:
            return True

        with pytest.raises(ConfigError) as caught:
            ToolFilter(predicate=by_role)
        said("predicate with the context first", str(caught.value).replace(by_role.__qualname__, "by_role"))

    async def test_an_object_that_can_be_called_is_a_predicate_too(self) -> None:
        class Rules:
            def __call__(self, tool: CatalogTool, context: ToolContext) -> bool:
                return bool(tool.name == context.agent)

        tools = (tool("a", "x"), tool("a", "y"))
        assert await permitted(tools, {"a": ToolFilter(predicate=Rules())}, ToolContext("y")) == tools[1:]
