"""Wrong configurations. Nothing runs this file."""

from __future__ import annotations

import math

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    Callbacks,
    HealthPolicy,
    Http,
    InProcess,
    Limits,
    RestartPolicy,
    RetryPolicy,
    Secret,
    ServerConfig,
    Socket,
    Sse,
    Stdio,
    ToolFilter,
    load_config,
    open_servers,
)
from mcp_actors.config import OAuth, Sandbox

SERVER = Stdio("server")


def transports() -> None:
    Stdio()  # wrong
    Stdio(1)  # wrong
    Stdio(["npx", "server"])  # wrong
    Stdio("server", 1)  # wrong
    Stdio("server", [1, 2])  # wrong
    Stdio("server", arg=["x"])  # wrong
    Stdio("server", env=["A=1"])  # wrong
    Stdio("server", env={"A": 1})  # wrong
    Stdio("server", env_from=1)  # wrong
    Stdio("server", env_from=[1])  # wrong
    Stdio("server", cwd=1)  # wrong
    Stdio("server", sandbox=True)  # wrong
    Stdio("server", sandbox="strict")  # wrong
    Stdio("server", trust_outcomes="no")  # wrong
    Stdio("server", max_line_bytes="64M")  # wrong
    Sandbox(signals="no")  # wrong
    Http()  # wrong
    Http(1)  # wrong
    Http("https://x", {"A": "b"})  # wrong
    Http("https://x", headers=["A: b"])  # wrong
    Http("https://x", headers={"A": 1})  # wrong
    Http("https://x", auth=1)  # wrong
    Http("https://x", auth=("user", "word"))  # wrong
    Http("https://x", verify=1.5)  # wrong
    Http("https://x", timeout=5)  # wrong
    Http("https://x", keepalive="60")  # wrong
    Http("https://x", http_client="x")  # wrong
    Sse("https://x", verify=False)  # wrong
    Socket(("host", 1))  # wrong
    Socket("host:1", secret=1)  # wrong
    Socket("host:1", secret_file=1)  # wrong
    Socket("host:1", server=1)  # wrong
    InProcess()  # wrong
    InProcess("server.py")  # wrong
    InProcess(None)  # wrong
    Secret(1)  # wrong
    OAuth(scopes=1)  # wrong
    OAuth(scopes=[1])  # wrong
    OAuth(grant="password")  # wrong
    OAuth(on_sign_in="browser")  # wrong
    OAuth(store="keyring")  # wrong


def servers() -> None:
    ServerConfig()  # wrong
    ServerConfig("a")  # wrong
    ServerConfig(SERVER)  # wrong
    ServerConfig(SERVER, "a")  # wrong
    ServerConfig("a", "npx server")  # wrong
    ServerConfig("a", SERVER, True)  # wrong
    ServerConfig("a", SERVER, required="yes")  # wrong
    ServerConfig("a", SERVER, tool_filter=["x"])  # wrong
    ServerConfig("a", SERVER, tool_filter=None)  # wrong
    ServerConfig("a", SERVER, request_timeout="60")  # wrong
    ServerConfig("a", SERVER, connect_timeout=[1])  # wrong
    ServerConfig("a", SERVER, connect="later")  # wrong
    ServerConfig("a", SERVER, when_down="skip")  # wrong
    ServerConfig("a", SERVER, max_in_flight=1.5)  # wrong
    ServerConfig("a", SERVER, max_in_flight=None)  # wrong
    ServerConfig("a", SERVER, restarts=5)  # wrong
    ServerConfig("a", SERVER, retry=3)  # wrong
    ServerConfig("a", SERVER, callbacks={})  # wrong
    ServerConfig("a", SERVER, middleware=print)  # wrong
    ServerConfig("a", SERVER, middleware=[1])  # wrong
    ServerConfig("a", SERVER, protocol="modern")  # wrong
    ServerConfig("a", SERVER, on_failure="stop")  # wrong
    ServerConfig("a", SERVER, replicas="2")  # wrong
    ServerConfig("a", SERVER, overflow="drop")  # wrong
    ServerConfig("a", SERVER, health=None)  # wrong
    ServerConfig("a", SERVER, breaker=5)  # wrong
    ServerConfig("a", SERVER, validate=True)  # wrong
    ServerConfig("a", SERVER, validate="strict")  # wrong
    ServerConfig("a", SERVER, static_tools=[1])  # wrong
    ServerConfig("a", SERVER, static_tools="x")  # wrong
    ServerConfig("a", SERVER, on_tool_change="ask")  # wrong
    ServerConfig("a", SERVER, limits=100)  # wrong
    ServerConfig("a", SERVER, isolation="shard")  # wrong
    ServerConfig("a", SERVER, extensions=["com.example"])  # wrong
    ServerConfig("a", SERVER, client_info="me")  # wrong
    ServerConfig("a", SERVER, timeout=60)  # wrong
    ServerConfig("a", SERVER).name = "b"  # wrong


def policies() -> None:
    ToolFilter(["x"])  # wrong
    ToolFilter(allow=1)  # wrong
    ToolFilter(allow=[1])  # wrong
    ToolFilter(deny=None)  # wrong
    ToolFilter(deny=[1])  # wrong
    ToolFilter(patterns=5)  # wrong
    ToolFilter(predicate="read_*")  # wrong
    ToolFilter(predicate=lambda tool: True)  # wrong
    RestartPolicy(max_restarts="3")  # wrong
    RestartPolicy(backoff=1)  # wrong
    RetryPolicy(attempts="3")  # wrong
    RetryPolicy(attempt=3)  # wrong
    BreakerPolicy(failures=None)  # wrong
    HealthPolicy(interval="60")  # wrong
    Limits(max_tools="all")  # wrong
    Backoff(first="1")  # wrong
    Callbacks(sampling=1)  # wrong
    Callbacks(sampling=True)  # wrong
    Callbacks(logging=lambda: None)  # wrong
    Callbacks(log_level="verbose")  # wrong
    Callbacks(timeout=str(math.inf))  # wrong
    load_config(1)  # wrong
    load_config("x.json").server  # wrong
    load_config("x.json").servers["a"]  # wrong


async def opened() -> None:
    open_servers("a").tools  # wrong
    await open_servers()  # wrong
    async with open_servers(1):  # wrong
        pass
    async with open_servers(ServerConfig("a", SERVER), strict="yes"):  # wrong
        pass
    async with open_servers(ServerConfig("a", SERVER), callback=None):  # wrong
        pass
    async with open_servers(ServerConfig("a", SERVER)) as servers:
        await servers["a"].call_tol("x")  # wrong
    with open_servers(ServerConfig("a", SERVER)):  # wrong
        pass
