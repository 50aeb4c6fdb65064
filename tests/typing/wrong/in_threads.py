"""Wrong requests in threads. Nothing runs this file."""

from __future__ import annotations

from mcp_actors.sync import SyncServerGroup, SyncServerRef


def request(ref: SyncServerRef) -> None:
    ref.call_tool()  # wrong
    ref.call_tool(1)  # wrong
    ref.call_tool(b"add")  # wrong
    ref.call_tool(None)  # wrong
    ref.call_tool("add", ["a", 1])  # wrong
    ref.call_tool("add", "a=1")  # wrong
    ref.call_tool("add", {1: 2})  # wrong
    ref.call_tool("add", a=1)  # wrong
    ref.call_tool("add", timeout=5)  # wrong
    ref.call_tool("add", {}, 5)  # wrong
    ref.call_tool("add", idempotent="yes")  # wrong
    ref.call_tool("add", progress=3)  # wrong
    ref.call_tool("add", progress=lambda: None)  # wrong
    ref.call_tool("add", meta="x")  # wrong
    ref.call_tool("add", input_required="return")  # wrong
    (ref.call_tool("add")).contents  # wrong
    (ref.call_tool("add"))["content"]  # wrong
    ref.call()  # wrong
    ref.call("add", 1, 2)  # wrong
    ref.call(tool="add")  # wrong
    ref.list_tools("all")  # wrong
    (ref.list_tools())[0].inputSchema  # wrong
    (ref.list_tools()).append(1)  # wrong
    ref.get_prompt()  # wrong
    ref.get_prompt("plan", {"days": 3})  # wrong
    ref.get_prompt("plan", meal="tea")  # wrong: mypy pyright pyrefly
    (ref.get_prompt("plan")).text  # wrong
    ref.read_resource(7)  # wrong
    ref.read_resource(uri=None)  # wrong
    (ref.read_resource("a:b")).content  # wrong
    ref.set_log_level("verbose")  # wrong
    ref.set_log_level(10)  # wrong
    ref.wait_state("redy")  # wrong
    ref.wait_state(["ready"])  # wrong
    ref.wait_ready(5)  # wrong
    ref.sign_in(show="https://x")  # wrong
    ref.sign_in(lambda url: None)  # wrong
    ref.approve_tools("add")  # wrong
    ref.restart(force=True)  # wrong
    ref.disconnect()  # wrong
    ref.tools  # wrong
    ref.state.upper().lowercase  # wrong
    ref.name = "other"  # wrong
    ref.statistics().queue  # wrong
    ref.statistics().queued.items  # wrong
    ref.info.nmae  # wrong
    ref.config.request_timeot  # wrong
    (await_me := ref.call_tool("add")).__await__()  # wrong
    await_me.nothing  # wrong


def manage(group: SyncServerGroup) -> None:
    group.call_tool()  # wrong
    group.call_tool(1, {})  # wrong
    group.call_tool("s__add", "a=1")  # wrong
    group.call_tool("s__add", a=1)  # wrong
    group.call("s__add", 1)  # wrong
    group.list_tools("agent")  # wrong
    (group.list_tools())[0].public_nme  # wrong
    group.add("time")  # wrong
    group.add({"command": "x"})  # wrong
    group.replace("time", 1)  # wrong
    group.remove(1)  # wrong
    group.reload(5)  # wrong
    group.reconnect(failed_only="no", name="x")  # wrong
    group.wait_ready(timeout=3)  # wrong
    group["time"] = 1  # wrong
    group[0].name  # wrong
    group.time.state  # wrong
    group.tools.nmaes  # wrong
    group.find_tool(1)  # wrong
    group.find_tool("x").input_shema  # wrong
    group.errors["x"].phase  # wrong
    group.status()["x"].tool  # wrong
    del group["time"]  # wrong
