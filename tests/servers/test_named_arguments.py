"""Arguments that a tool does not have: options of a call are refused, others are logged."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import pytest
from mcp.server import MCPServer

import mcp_actors.sync
from mcp_actors import InProcess, ServerConfig, bridge, open_servers
from mcp_actors.catalog import ToolChecks
from mcp_actors.catalog._schemas import may_name, members_named_by
from tests.messages import Said

SHOP: Final = MCPServer("shop", log_level="WARNING")


@SHOP.tool()
def find(query: str, limit: int | None = None) -> str:
    """Find something."""
    return f"{query} {limit}"


@SHOP.tool()
def wait(timeout: int) -> int:
    """Wait for so long."""
    return timeout


CONFIG: Final = ServerConfig("shop", InProcess(SHOP))
OPTIONS: Final[dict[str, Any]] = {"timeout": 5, "progress": print, "meta": {}, "idempotent": True}
REFUSED: Final = r"^call\(\): '{}' is an option of a call, and tool '.*find' has no such argument; .*{}"
REMEDIES: Final = {"timeout": r"trio\.fail_after\(seconds\)", "progress": r"write call_tool\(.*, progress=…\)$"}


def refusal_of(name: str) -> str:
    return REFUSED.format(name, REMEDIES.get(name, rf"write call_tool\(.*, {name}=…\)$"))


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_is_not_an_argument_of_the_tool_is_refused(name: str) -> None:
    """D-03: by every `call`, and nothing is sent; a tool that has such an argument gets it."""
    given = {"query": "x", name: OPTIONS[name]}

    async def on_trio() -> None:
        async with open_servers(CONFIG) as servers:
            for ref, tool in ((servers["shop"], "find"), (servers, "mcp__shop__find")):
                with pytest.raises(TypeError, match=refusal_of(name)):
                    await ref.call(tool, **given)
            assert await servers["shop"].call("wait", timeout=3) == 3

    async def on_asyncio() -> None:
        async with bridge.open_servers(CONFIG) as servers:
            for ref, tool in ((servers["shop"], "find"), (servers, "mcp__shop__find")):
                with pytest.raises(TypeError, match=refusal_of(name)):
                    await ref.call(tool, **given)
            assert await servers.call("mcp__shop__wait", timeout=3) == 3

    import trio

    trio.run(on_trio)
    asyncio.run(on_asyncio())
    with mcp_actors.sync.open_servers(CONFIG) as servers:
        for ref, tool in ((servers["shop"], "find"), (servers, "mcp__shop__find")):
            with pytest.raises(TypeError, match=refusal_of(name)):
                ref.call(tool, **given)
        assert servers["shop"].call("wait", timeout=3) == 3


async def test_an_argument_that_the_tool_does_not_name_is_logged_once(
    caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    """D-03: with the nearest name."""
    async with open_servers(CONFIG) as servers:
        for _ in range(2):
            assert await servers["shop"].call("find", query="x", limits=3) == "x None"
            await servers["shop"].call_tool("find", {"query": "x", "limits": 3})
            await servers["shop"].list_tools()
        await servers["shop"].call("find", query="x", limit=3)
        for number in range(30):
            await servers["shop"].call_tool("find", {"query": "x", f"\x1b{number}": 3})
    first, *more = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    said("an argument that the tool does not name", first)
    assert len(more) == 19
    assert "\x1b" not in caplog.text


SCHEMAS: Final[list[tuple[dict[str, Any], bool, bool]]] = [
    ({"properties": {"a": {}}}, True, False),
    ({"properties": {"a": {}}, "additionalProperties": False}, True, False),
    ({"properties": {"a": {"anyOf": [{}, {}]}}}, True, False),
    ({"properties": {"a": {}}, "additionalProperties": True}, False, False),
    ({"properties": {"a": {}}, "patternProperties": {"^x": {}}}, False, True),
    ({"properties": {"a": {}}, "anyOf": [{"properties": {"timeout": {}}}]}, False, True),
    ({"properties": {"a": {}}, "$ref": "#/$defs/x", "$defs": {"x": {"properties": {"timeout": {}}}}}, False, True),
    ({"properties": {"a": {}}, "oneOf": [{"required": ["a"]}]}, False, False),
    ({"properties": [], "type": "object"}, False, False),
    ({}, False, False),
    ({"properties": {"timeout": {}}}, True, True),
]


@pytest.mark.parametrize(("schema", "closed", "has_timeout"), SCHEMAS)
def test_which_arguments_a_schema_names(schema: dict[str, Any], closed: bool, has_timeout: bool) -> None:
    """D-03: one that names some of them elsewhere is not judged by its top level."""
    assert (members_named_by(schema) is not None) == closed
    assert may_name(schema, "timeout") == has_timeout


def a_tool() -> Any:
    return type("Tool", (), {"name": "a", "input_schema": {"properties": {}}, "output_schema": None})()


def test_an_argument_is_not_logged_again_after_another_listing(caplog: pytest.LogCaptureFixture) -> None:
    """D-03."""
    checks = ToolChecks("s", [a_tool()])
    for _ in range(2):
        checks.check_arguments("a", {"x": 1})
        checks = checks.updated([a_tool()])
    [only] = caplog.records
    assert "does not name the argument 'x', which the server may ignore; it names none" in only.getMessage()


def test_nothing_is_logged_without_validation(caplog: pytest.LogCaptureFixture) -> None:
    ToolChecks("s", [a_tool()], "off").check_arguments("a", {"x": 1})
    assert not caplog.records
