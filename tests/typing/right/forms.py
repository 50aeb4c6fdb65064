"""For each argument of a configuration the forms that its documentation allows. Checkers accept them, and they run."""

from __future__ import annotations

import math
import ssl
from pathlib import Path
from typing import Any

import httpx2
from mcp.client import advertise
from mcp.server import MCPServer, Server
from mcp.types import CallToolResult, ElicitResult, Implementation, Tool

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    Callbacks,
    CatalogTool,
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
    ToolRequest,
)
from mcp_actors.config import CallbackContext, CallNext, OAuth, Sandbox, ToolContext

STDIO = Stdio("server")


async def token() -> str:
    """Return a credential."""
    return "secret"


def plain_token() -> str:
    """Return a credential without waiting."""
    return "secret"


async def log(request: ToolRequest, call_next: CallNext) -> CallToolResult:
    """Pass a call on."""
    return await call_next(request)


class Around:
    """Middleware that is an object."""

    async def __call__(self, request: ToolRequest, call_next: CallNext) -> CallToolResult:
        """Pass a call on."""
        return await call_next(request)


async def allowed(tool: CatalogTool, context: ToolContext) -> bool:
    """Decide for an agent."""
    return tool.name != "wipe"


def elicit(context: CallbackContext, params: Any) -> ElicitResult:
    """Answer a question."""
    return ElicitResult(action="decline")


def collections() -> list[object]:
    """Tuples, lists and other collections."""
    return [
        Stdio("server", ["-a"], env={"A": "b"}, env_from=["C"], cwd="/"),
        Stdio(Path("server"), ("-a",), env={"A": Secret("b"), "B": token, "C": plain_token}, cwd=Path("/")),
        Stdio("server", (each for each in ("a", "b")), env_from=("C",)),
        Stdio("server", env_from={"C": 1}.keys(), sandbox=Sandbox(read=["/"], write=(Path("/"),), tcp=[80])),
        Stdio("server", sandbox={"read": ["/"]}),
        Stdio("server", sandbox=None, max_line_bytes=1024, trust_outcomes=True),
        Sandbox(tcp=None, signals=True),
        ToolFilter(allow=["a"], deny=["wipe"]),
        ToolFilter(allow=("a",), deny=("wipe",), patterns=["read_*"], predicate=allowed),
        ToolFilter(allow={"a"}, deny=frozenset({"wipe"}), patterns=("read_*",)),
        ToolFilter(allow=None, patterns=None, predicate=lambda tool, context: True),
        ServerConfig("a", STDIO, middleware=[log]),
        ServerConfig("a", STDIO, middleware=(log, Around())),
        ServerConfig("a", STDIO, static_tools=[{"name": "x", "inputSchema": {"type": "object"}}]),
        ServerConfig("a", STDIO, static_tools=(Tool(name="x", input_schema={"type": "object"}),)),
        ServerConfig("a", STDIO, extensions=[advertise("com.example/a")]),
        ServerConfig("a", STDIO, extensions=(advertise("com.example/a"),)),
    ]


def transports() -> list[object]:
    """URLs, credentials and servers."""
    context = ssl.create_default_context()
    return [
        Http("https://x.example", headers={"A": "b", "B": Secret("b"), "C": token}, auth="token"),
        Http("https://x.example", auth=Secret("token"), verify=context, max_connections=2, keepalive=5),
        Http("https://x.example", auth=token, verify="/etc/ca.pem"),
        Http("https://x.example", auth=plain_token, verify=Path("/etc/ca.pem")),
        Http("https://x.example", auth=httpx2.BasicAuth("a", "b"), http_client=httpx2.AsyncClient),
        Http("https://x.example", auth=OAuth(scopes="a b"), verify=True),
        Http("https://x.example", auth=OAuth(scopes=["a"], client_id="me"), verify=None),
        Http("https://x.example", auth=OAuth(scopes=("a",), on_sign_in=print)),
        Sse("https://x.example", headers={}, auth=None),
        Socket("/run/x.sock"),
        Socket("host:1", secret="a secret of this length", server="a"),
        Socket("host:1", secret=Secret("a secret of this length")),
        Socket("host:1", secret=token),
        Socket("host:1", secret_file="/x"),
        Socket("host:1", secret_file=Path("/x")),
        Socket(token),
        InProcess(MCPServer("a")),
        InProcess(Server("a")),
    ]


def words_and_numbers() -> list[object]:
    """Words, numbers and policies."""
    return [
        ServerConfig("a", STDIO, required=True, request_timeout=60, connect_timeout=1.5, stop_timeout=3),
        ServerConfig("a", STDIO, request_timeout=None, connect_timeout=None, progress_timeout=None),
        ServerConfig("a", STDIO, connect="eager", when_down="wait", protocol="auto", on_failure="park"),
        ServerConfig("a", STDIO, connect="lazy", when_down="fail", protocol="legacy", overflow="fail"),
        ServerConfig("a", STDIO, protocol="2026-07-28", on_failure="raise", validate="schema"),
        ServerConfig("a", STDIO, validate="off", on_tool_change="block", isolation="per-session", replicas=2),
        ServerConfig("a", STDIO, validate="required", on_tool_change="warn", isolation="per-identity"),
        ServerConfig("a", STDIO, restarts=RestartPolicy(max_restarts=3, window=math.inf, backoff=Backoff())),
        ServerConfig("a", STDIO, retry=RetryPolicy(attempts=1), breaker=BreakerPolicy(), health=HealthPolicy()),
        ServerConfig("a", STDIO, breaker=None, health=HealthPolicy(interval=None), limits=Limits(max_tools=5)),
        ServerConfig("a", STDIO, client_info=Implementation(name="me", version="1"), title="A", enabled=False),
        ServerConfig("a", STDIO, callbacks=Callbacks(elicitation=elicit, sampling=False, log_level="debug")),
        ServerConfig("a", STDIO, callbacks=None, client_info=None, title=None, keep_resources=True),
        Callbacks(timeout=math.inf),
        OAuth(grant="client_credentials", client_id="a", client_secret=Secret("b")),
    ]
