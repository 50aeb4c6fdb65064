"""Configure hostile servers over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from mcp_actors import Http, ServerConfig, Sse
from tests.forkserver import serve_python

SCRIPT: Final = Path(__file__).with_name("hostile_http_server.py")

Over = Literal["http", "sse"]


@contextmanager
def hostile_http(over: Over = "http", *, name: str = "evil", **options: Any) -> Iterator[ServerConfig]:
    """Run the hostile server in a process of its own, and say how to connect to it.

    `options` are those of `ServerConfig`.
    """
    with serve_python(SCRIPT) as (_, port):
        here = f"http://127.0.0.1:{port}"
        transport = Sse(f"{here}/sse") if over == "sse" else Http(f"{here}/mcp")
        yield ServerConfig(name, transport, protocol="legacy", **options)
