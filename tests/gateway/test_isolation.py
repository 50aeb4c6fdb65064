"""Servers that each client has for itself: their life, their questions and their lists."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ServerConfig, Stdio, load_config
from mcp_actors.gateway._daemon import DIRECTORY

from ..servers.groups import server
from ..servers.library import Library
from ..servers.processes import eventually, state_of
from ..servers.scripted_server import command
from ..source import ROOT
from .hosts import LEGACY, MODERN, gateway, in_process, notes
from .test_serve import Command

ERAS = [LEGACY, MODERN]


class Name(BaseModel):
    name: str


def curious() -> MCPServer:
    """Make a legacy server that asks its client."""
    curious = MCPServer("curious")

    @curious.tool()
    async def greet(ctx: Context[Any, Any]) -> str:
        answer: Any = await ctx.elicit("who?", Name)
        return f"hello {answer.data.name}"

    @curious.tool()
    async def roots(ctx: Context[Any, Any]) -> str:
        return ", ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)

    @curious.tool()
    async def log(ctx: Context[Any, Any]) -> str:
        await ctx.session.send_log_message(level="warning", data="quiet")
        await ctx.session.send_log_message(level="error", data="loud")
        return "ok"

    return curious


@pytest.mark.parametrize("version", ERAS)
async def test_each_client_has_a_process_of_its_own_which_ends_with_it(version: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, server("shared"), per_session=[server("own")]) as door:
        first, second = await door.connect(version), await door.connect(version)
        pids = [int(await host.call("own_pid")) for host in (first, second)]
        assert pids[0] != pids[1]
        assert int(await first.call("own_pid")) == pids[0]
        assert await first.call("shared_pid") == await second.call("shared_pid")
        await first.stream.aclose()
        await eventually(lambda: state_of(pids[0]) == "gone")
        assert int(await second.call("own_pid")) == pids[1]


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_a_server_of_one_client_asks_that_client_and_no_other(tmp_path: Path) -> None:
    own = in_process("own", curious(), protocol="legacy")
    async with gateway(tmp_path, in_process("notes", notes()), per_session=[own]) as door:
        hosts = [await door.connect(LEGACY, elicitation={}, roots={}) for _ in range(2)]
        for number, host in enumerate(hosts):
            content = {"name": str(number)}
            host.questions["elicitation/create"] = lambda _, content=content: {
                "result": {"action": "accept", "content": content}
            }
            roots = [{"uri": f"file:///home/{number}"}]
            host.questions["roots/list"] = lambda _, roots=roots: {"result": {"roots": roots}}
        assert [await host.call("own_greet") for host in hosts] == ["hello 0", "hello 1"]
        assert [await host.call("own_roots") for host in hosts] == ["file:///home/0", "file:///home/1"]
        await hosts[0].call("own_log")
        said = [(await hosts[0].notice("notifications/message"))["data"] for _ in range(2)]
        assert said == ["quiet", "loud"]
        assert await hosts[0].result("logging/setLevel", {"level": "error"}) == {}
        await hosts[0].call("own_log")
        assert (await hosts[0].notice("notifications/message"))["data"] == "loud"
        assert await hosts[1].result("ping") == {}
        assert hosts[1].notices == []


LOGS_NAN = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        info = {"name": "own", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"logging": {}, "tools": {}}, "serverInfo": info}
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "log", "inputSchema": {"type": "object"}}]}
    else:
        result = {"content": []}
    if message.get("method") == "tools/call":
        data = {"rates": [float("nan"), float("inf")]}
        log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": data}}
        print(json.dumps(log), flush=True)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_log_messages_with_numbers_that_json_does_not_have_are_passed_on_with_null(tmp_path: Path) -> None:
    own = ServerConfig("own", Stdio(sys.executable, ("-c", LOGS_NAN)), protocol="legacy")
    async with gateway(tmp_path, per_session=[own]) as door:
        host = await door.connect(LEGACY)
        await host.result("tools/call", {"name": "own_log"})
        assert (await host.notice("notifications/message"))["data"] == {"rates": [None, None]}


@pytest.mark.parametrize("answer", [{"result": {"action": 7}}, {"error": {"code": "no"}}, {"result": 7}])
async def test_an_answer_of_a_client_that_is_not_valid_is_an_error_for_its_server(
    answer: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = in_process("own", curious(), protocol="legacy")
    async with gateway(tmp_path, per_session=[own]) as door:
        host = await door.connect(LEGACY, elicitation={})
        host.questions["elicitation/create"] = lambda _: answer
        error = await host.error("tools/call", {"name": "own_greet", "arguments": {}})
        assert error["message"] == "the client's answer is not valid"
        assert "Traceback" not in caplog.text


async def test_notifications_of_changed_roots_without_end_are_passed_on_as_few(tmp_path: Path) -> None:
    notified: list[None] = []

    async def note(*_: Any) -> None:
        notified.append(None)

    library = Library(on_roots_list_changed=note)
    async with gateway(tmp_path, per_session=[library.config(protocol="legacy")]) as door:
        host = await door.connect(LEGACY, roots={})
        await host.result("tools/list")
        await host.send(*[{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}] * 2000)
        await host.result("tools/list")
        await eventually(lambda: bool(notified))
        await wait_all_tasks_blocked(0.1)
        assert len(notified) < 200
        before = len(notified)
        await host.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await eventually(lambda: len(notified) > before)


async def test_a_client_that_cannot_answer_is_not_asked(tmp_path: Path) -> None:
    own = in_process("own", curious(), protocol="legacy")
    async with gateway(tmp_path, per_session=[own]) as door:
        host = await door.connect(LEGACY)
        error = await host.error("tools/call", {"name": "own_greet", "arguments": {}})
        needs = "server 'own': tools/call 'greet' needs elicitation, which this client does not support"
        assert error["message"].startswith(needs)
        assert host.asked == []


@pytest.mark.parametrize("version", ERAS)
async def test_the_lists_are_those_of_the_own_servers_and_then_the_shared_ones(version: str, tmp_path: Path) -> None:
    own = in_process("own", notes("mine"))
    async with gateway(tmp_path, in_process("shared", notes()), per_session=[own]) as door:
        host = await door.connect(version)
        names = [tool["name"] for tool in (await host.result("tools/list"))["tools"]]
        assert names == ["own_echo", "shared_echo"]
        prompts = [prompt["name"] for prompt in (await host.result("prompts/list"))["prompts"]]
        assert prompts == ["own_plan", "shared_plan"]
        got = await host.result("prompts/get", {"name": "shared_plan", "arguments": {"meal": "tea"}})
        assert got["messages"][0]["content"]["text"] == "Plan tea."
        assert len((await host.result("resources/list"))["resources"]) == 1
        read = await host.result("resources/read", {"uri": "note:///shopping"})
        assert read["contents"][0]["text"] == "milk"


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("path", ["tests", "/does/not/exist", "/etc/passwd", "/\0", "", 7, None])
async def test_a_client_that_names_no_directory_has_its_server_in_that_of_the_gateway(
    path: object, version: str, tmp_path: Path
) -> None:
    async with gateway(tmp_path, per_session=[server("own")]) as door:
        host = await door.connect(version, begin=False)
        await host.send({"jsonrpc": "2.0", "method": DIRECTORY, "params": {"path": path}})
        await host.begin()
        await host.send({"jsonrpc": "2.0", "method": DIRECTORY, "params": {"path": str(tmp_path)}})  # too late
        assert os.readlink(f"/proc/{await host.call('own_pid')}/cwd") == os.getcwd()


async def test_the_directory_of_a_client_is_not_that_of_another_client(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, per_session=[server("own"), in_process("notes", notes())]) as door:
        host, other = await door.connect(begin=False), await door.connect()
        await host.send({"jsonrpc": "2.0", "method": DIRECTORY, "params": {"path": str(tmp_path)}})
        await host.begin()
        folders = [os.readlink(f"/proc/{await each.call('own_pid')}/cwd") for each in (host, other)]
        assert folders == [str(tmp_path), os.getcwd()]
        assert await host.call("notes_echo", text="fine") == "fine"


def test_over_stdin_the_server_of_a_client_works_where_the_gateway_was_started(tmp_path: Path) -> None:
    program, args = command()
    own = {"command": program, "args": list(args), "mcp_actors": {"isolation": "per-session"}}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"own": own}}))
    project = tmp_path / "project"
    project.mkdir()
    serving = Command("--config", str(file), "--stdio", cwd=project, env={**os.environ, "PYTHONPATH": str(ROOT)})
    serving.begin()
    pid = serving.ask("tools/call", name="own_pid", arguments={})["result"]["content"][0]["text"]
    assert os.readlink(f"/proc/{pid}/cwd") == str(project)
    serving.end()


def test_a_file_says_which_servers_are_not_shared(tmp_path: Path) -> None:
    """Two servers of the same kind: of the shared one there is one process, of the other one for each client."""
    program, args = command()
    entry = {"command": program, "args": list(args)}
    file = tmp_path / "servers.json"
    own = {**entry, "mcp_actors": {"isolation": "per-session"}}
    file.write_text(json.dumps({"mcpServers": {"own": own, "shared": entry}}))
    assert [each.isolation for each in load_config(file).servers] == ["per-session", "shared"]
    serving = Command("--config", str(file), "--stdio")
    serving.begin()
    names = {tool["name"] for tool in serving.ask("tools/list")["result"]["tools"]}
    assert {"own_echo", "shared_echo"} <= names
    pid = int(serving.ask("tools/call", name="own_pid", arguments={})["result"]["content"][0]["text"])
    code, _ = serving.end()
    assert (code, state_of(pid)) == (0, "gone")
