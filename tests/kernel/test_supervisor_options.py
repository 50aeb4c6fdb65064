"""The options of a supervisor, which `Supervisor` and both functions that open one share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from mcp_actors import bridge
from mcp_actors.kernel import Backoff, Supervisor, SupervisorOptions, open_supervisor
from mcp_actors.kernel._restart import SupervisorPolicy

from .workers import Yard

TAKERS: list[Callable[..., Any]] = [Supervisor, open_supervisor, bridge.open_supervisor]


def test_type_checkers_know_all_options() -> None:
    assert [*SupervisorOptions.__annotations__] == [each.name for each in attrs.fields(SupervisorPolicy)]


@pytest.mark.parametrize("taker", TAKERS)
def test_a_signature_has_all_options_with_their_defaults(taker: Callable[..., Any]) -> None:
    shown = inspect.signature(taker).parameters
    assert "options" not in shown
    for each in attrs.fields(SupervisorPolicy):
        assert shown[each.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[each.name].default == each.default


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="max_restart'"):
        Supervisor(max_restart=1)  # type: ignore[call-arg]  # what is tested


async def test_open_supervisor_takes_every_option_of_a_nested_one() -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        backoff=None,
        on_limit="park",
        park_retry=lambda _: None,
        strict=False,
        await_start=False,
    ) as supervisor:
        await supervisor.child("a").wait_state("running")
    assert yard.log == ["a up", "a down"]
    assert SupervisorPolicy(backoff=None).backoff == Backoff()
