"""Waiting for an unknown state fails at once."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_actors import open_servers
from mcp_actors.kernel import Actor, open_actor

from .servers.groups import server


class Idle(Actor):
    """Does nothing."""

    async def handle(self, message: Any) -> None:
        """Is never asked."""


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (("redy",), "there is no state 'redy'; did you mean 'ready'?"),
        (("ready", "up"), "there is no state 'up'; give one of 'pending', 'connecting', "),
        ((), "wait_state() was called without a state; give one of 'pending', "),
    ],
)
async def test_a_state_of_a_server(states: tuple[Any, ...], message: str) -> None:
    async with open_servers(server("a")) as servers:
        with pytest.raises(ValueError, match="server 'a'") as refused:
            await servers["a"].wait_state(*states)
    assert str(refused.value).startswith(f"server 'a': {message}")


async def test_a_state_of_an_actor() -> None:
    async with open_actor(Idle(), name="idle") as ref:
        wrong: Any = "ready"
        with pytest.raises(ValueError, match=r"^actor .idle.: there is no state .ready.; give one of .starting., "):
            await ref.wait_state(wrong)
