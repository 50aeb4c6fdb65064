"""The environment of a server process, as the server shows it."""

from __future__ import annotations

import json
import os

import pytest
from attrs import evolve

from mcp_actors import ServerConfig, Stdio, open_servers
from mcp_actors.config._template import INHERITED

from .test_tools import text_of

ALLOWED = {*INHERITED, "LC_CTYPE"}


async def environment_of(config: ServerConfig) -> dict[str, str]:
    """Return the environment in which the server runs."""
    async with open_servers(config, strict=True) as servers:
        environment: dict[str, str] = json.loads(text_of(await servers["everything"].call_tool("get-env")))
        return environment


async def test_a_server_gets_the_allowed_variables_and_nothing_else(
    over_stdio: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("LANG", "C.UTF-8")
    ours = {name: value for name, value in os.environ.items() if name in ALLOWED}
    assert await environment_of(over_stdio) == ours


async def test_a_server_gets_what_it_is_configured_with(
    over_stdio: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGION", "eu-west-1")
    monkeypatch.setenv("TOKEN", "hunter2")
    assert isinstance(over_stdio.transport, Stdio)
    transport = evolve(over_stdio.transport, env={"KEY": "${TOKEN}!", "HOME": "/nowhere"}, env_from=["REGION"])
    environment = await environment_of(evolve(over_stdio, transport=transport))
    assert environment.keys() - ALLOWED == {"KEY", "REGION"}
    assert [environment[name] for name in ("HOME", "KEY", "REGION")] == ["/nowhere", "hunter2!", "eu-west-1"]
