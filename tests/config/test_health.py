"""How soon a server that stops answering is noticed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mcp_actors import ConfigError, HealthPolicy, InProcess, ServerConfig


def test_the_defaults_are_those_of_the_ladder() -> None:
    """S2-24, S2-25, S2-28: 2 warn, 3 unhealthy, 5 restart, 10 fail; every 60 s, with 5 s for the answer."""
    policy = HealthPolicy()
    rungs = (policy.warn_after, policy.unhealthy_after, policy.restart_after, policy.fail_after)
    assert (policy.interval, policy.timeout, policy.silence, rungs) == (60, 5, 300, (2, 3, 5, 10))


def test_checks_can_be_disabled_and_steps_may_coincide() -> None:
    assert HealthPolicy(interval=None, silence=None).interval is None
    assert HealthPolicy(warn_after=1, unhealthy_after=1, restart_after=1, fail_after=1).fail_after == 1


@pytest.mark.parametrize(
    ("fields", "wrong", "remedy"),
    [
        ({"interval": 0}, "interval", "or None"),
        ({"interval": math.inf}, "interval", "finite"),
        ({"timeout": None}, "timeout", "positive, finite number of seconds"),
        ({"timeout": True}, "timeout", "positive, finite number of seconds"),
        ({"silence": -1}, "silence", "or None"),
        ({"warn_after": 0}, "warn_after", "whole number of 1 or more"),
        ({"fail_after": 10.5}, "fail_after", "whole number of 1 or more"),
        ({"warn_after": 4}, "unhealthy_after", "at least warn_after, which is 4"),
        ({"restart_after": 2}, "restart_after", "at least unhealthy_after, which is 3"),
        ({"fail_after": 4}, "fail_after", "at least restart_after, which is 5"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(fields: dict[str, Any], wrong: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HealthPolicy(**fields)
    assert (caught.value.source, caught.value.path) == ("HealthPolicy", wrong)
    assert remedy in str(caught.value)


def test_a_server_takes_nothing_else() -> None:
    wrong: Any = None
    with pytest.raises(ConfigError, match=r"health=<NoneType>.*HealthPolicy\(interval=None\) disables") as caught:
        ServerConfig("a", InProcess(_server()), health=wrong)
    assert caught.value.path == "servers.a.health"


def _server() -> Any:
    from mcp.server.mcpserver import MCPServer

    return MCPServer("a")
