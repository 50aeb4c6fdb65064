"""Wrong requests on Trio. Nothing runs this file."""

from __future__ import annotations

from mcp_actors import ServerGroup, ServerRef


async def request(ref: ServerRef) -> None:
    await ref.call_tool()  # wrong
    await ref.call_tool(1)  # wrong
    await ref.call_tool(b"add")  # wrong
    await ref.call_tool(None)  # wrong
    await ref.call_tool("add", ["a", 1])  # wrong
    await ref.call_tool("add", "a=1")  # wrong
    await ref.call_tool("add", {1: 2})  # wrong
    await ref.call_tool("add", a=1)  # wrong
    await ref.call_tool("add", timeout=5)  # wrong
    await ref.call_tool("add", {}, 5)  # wrong
    await ref.call_tool("add", idempotent="yes")  # wrong
    await ref.call_tool("add", progress=3)  # wrong
    await ref.call_tool("add", progress=lambda: None)  # wrong
    await ref.call_tool("add", meta="x")  # wrong
    await ref.call_tool("add", input_required="return")  # wrong
    (await ref.call_tool("add")).contents  # wrong
    (await ref.call_tool("add"))["content"]  # wrong
    await ref.call()  # wrong
    await ref.call("add", 1, 2)  # wrong
    await ref.call(tool="add")  # wrong
    await ref.list_tools("all")  # wrong
    (await ref.list_tools())[0].inputSchema  # wrong
    (await ref.list_tools()).append(1)  # wrong
    await ref.get_prompt()  # wrong
    await ref.get_prompt("plan", {"days": 3})  # wrong
    await ref.get_prompt("plan", meal="tea")  # wrong: mypy pyright pyrefly
    (await ref.get_prompt("plan")).text  # wrong
    await ref.read_resource(7)  # wrong
    await ref.read_resource(uri=None)  # wrong
    (await ref.read_resource("a:b")).content  # wrong
    await ref.set_log_level("verbose")  # wrong
    await ref.set_log_level(10)  # wrong
    await ref.wait_state("redy")  # wrong
    await ref.wait_state(["ready"])  # wrong
    await ref.wait_ready(5)  # wrong
    await ref.sign_in(show="https://x")  # wrong
    await ref.sign_in(lambda url: None)  # wrong
    await ref.approve_tools("add")  # wrong
    await ref.restart(force=True)  # wrong
    await ref.disconnect()  # wrong
    ref.tools  # wrong
    ref.state.upper().lowercase  # wrong
    ref.name = "other"  # wrong
    ref.statistics().queue  # wrong
    ref.statistics().queued.items  # wrong
    ref.info.nmae  # wrong
    ref.config.request_timeot  # wrong
    ref.call_tool("add")  # wrong
    ref.restart()  # wrong
    ref.call_tool("add").content  # wrong
    for _ in ref.list_tools():  # wrong
        pass


async def manage(group: ServerGroup) -> None:
    await group.call_tool()  # wrong
    await group.call_tool(1, {})  # wrong
    await group.call_tool("s__add", "a=1")  # wrong
    await group.call_tool("s__add", a=1)  # wrong
    await group.call("s__add", 1)  # wrong
    await group.list_tools("agent")  # wrong
    (await group.list_tools())[0].public_nme  # wrong
    await group.add("time")  # wrong
    await group.add({"command": "x"})  # wrong
    await group.replace("time", 1)  # wrong
    await group.remove(1)  # wrong
    await group.reload(5)  # wrong
    await group.reconnect(failed_only="no", name="x")  # wrong
    await group.wait_ready(timeout=3)  # wrong
    group["time"] = 1  # wrong
    group[0].name  # wrong
    group.time.state  # wrong
    group.tools.nmaes  # wrong
    group.find_tool(1)  # wrong
    group.find_tool("x").input_shema  # wrong
    group.errors["x"].phase  # wrong
    group.status()["x"].tool  # wrong
    del group["time"]  # wrong
