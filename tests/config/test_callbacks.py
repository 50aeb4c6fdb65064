"""Callbacks as configuration: what they may be, what is refused, and which of two wins."""

from __future__ import annotations

import functools
import math
from typing import Any

import attrs
import pytest
from mcp.types import SamplingCapability

from mcp_actors import Callbacks, ConfigError, ServerConfig, Stdio
from mcp_actors.config import EffectiveCallbacks, effective_callbacks


async def answer(context: Any, params: Any) -> Any:
    return None


async def roots(context: Any) -> Any:
    return None


def plain(context: Any, params: Any) -> Any:
    return None


class Agent:
    def __init__(self, key: str) -> None:
        self.key = key

    def __repr__(self) -> str:
        return f"Agent({self.key!r})"

    async def answer(self, context: Any, params: Any) -> Any:
        return None

    async def __call__(self, context: Any, params: Any, *, more: int = 0) -> Any:
        return None


def test_by_default_there_are_no_callbacks() -> None:
    assert Callbacks() == Callbacks(sampling=None, elicitation=None, roots=None, logging=None, message=None)
    assert effective_callbacks(None, None) == EffectiveCallbacks()
    assert (EffectiveCallbacks().log_level, EffectiveCallbacks().timeout) == (None, 300)


def test_a_log_level_without_a_callback_for_messages_is_refused_and_named() -> None:
    with pytest.raises(ConfigError, match="has no callback that receives the log messages") as caught:
        effective_callbacks(Callbacks(log_level="debug"), server="a")
    assert (caught.value.source, caught.value.path) == ("Callbacks", "log_level")


@pytest.mark.parametrize(
    ("own", "default", "level"),
    [
        (Callbacks(logging=answer), None, "info"),
        (Callbacks(message=answer), None, None),
        (Callbacks(message=answer, log_level="debug"), None, "debug"),
        (Callbacks(log_level="debug"), Callbacks(logging=answer), "debug"),
        (Callbacks(log_level="debug"), Callbacks(logging=answer, log_level="error"), "debug"),
        (Callbacks(logging=answer), Callbacks(log_level="error"), "error"),
        (Callbacks(logging=False), Callbacks(logging=answer, log_level="error"), None),
        (Callbacks(logging=False, message=answer), Callbacks(logging=answer, log_level="error"), "error"),
    ],
)
def test_a_log_level_is_requested_for_the_callbacks_that_receive_the_messages(
    own: Callbacks, default: Callbacks | None, level: str | None
) -> None:
    assert effective_callbacks(own, default).log_level == level


@pytest.mark.parametrize(
    "function", [answer, plain, print, Agent("k").answer, Agent("k"), functools.partial(answer), False, None]
)
def test_any_callable_with_the_right_parameters_is_accepted(function: Any) -> None:
    for field in ("sampling", "elicitation", "logging", "message"):
        assert getattr(Callbacks(**{field: function}), field) is function


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("sampling", "gpt", "sampling='gpt' is not valid; give a function (context, params), async or not, or None"),
        (
            "elicitation",
            True,
            "elicitation=True is not valid; give a function (context, params), async or not, or None",
        ),
        ("sampling", Agent, "sampling=<the class Agent> is not valid; give a function "),
        (
            "logging",
            roots,
            "logging=<roots, which cannot be called with (context, params)> is not valid; give a function",
        ),
        (
            "roots",
            answer,
            "roots=<answer, which cannot be called with (context)> is not valid; give a function (context), ",
        ),
        ("message", 1, "message=1 is not valid; give a function (context, message), async or not, or None"),
        ("log_level", "loud", "log_level='loud' is not valid; choose 'debug' or 'info' or 'notice' or "),
        ("sampling_capabilities", {}, "sampling_capabilities=<dict> is not valid; give an mcp.types.SamplingCap"),
        ("timeout", 0, "timeout=0 is not valid; give a positive number of seconds, or math.inf, or None"),
        ("timeout", True, "timeout=True is not valid; give a positive number of seconds, or math.inf, or None"),
    ],
)
def test_an_invalid_callback_is_refused_and_named(field: str, value: object, message: str) -> None:
    arguments: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError) as caught:
        Callbacks(**arguments)
    assert str(caught.value).startswith(f"Callbacks: {message}")
    assert (caught.value.source, caught.value.path) == ("Callbacks", field)


def test_its_repr_shows_the_names_of_functions_and_no_object() -> None:
    """The object that a method belongs to may show a key of its own."""
    shown = repr(Callbacks(sampling=Agent("hunter2").answer, elicitation=Agent("hunter2"), roots=False))
    assert "hunter2" not in shown
    assert shown == "Callbacks(sampling=<Agent.answer>, elicitation=<Agent>, roots=False)"


def test_a_server_takes_callbacks_and_nothing_else() -> None:
    callbacks = Callbacks(roots=roots)
    assert ServerConfig("docs", Stdio("docs"), callbacks=callbacks).callbacks is callbacks
    with pytest.raises(ConfigError, match="server 'docs': callbacks=<dict> is not valid; give a Callbacks"):
        ServerConfig("docs", Stdio("docs"), callbacks={"roots": roots})  # type: ignore[arg-type]  # what is tested


def test_a_servers_own_win_field_by_field() -> None:
    capabilities = SamplingCapability()
    default = Callbacks(
        sampling=answer, roots=roots, logging=answer, log_level="debug", sampling_capabilities=capabilities, timeout=5
    )
    own = Callbacks(elicitation=answer, logging=False, timeout=math.inf)
    assert effective_callbacks(own, default) == EffectiveCallbacks(
        sampling=answer,
        elicitation=answer,
        roots=roots,
        sampling_capabilities=capabilities,
        timeout=math.inf,
    )
    assert effective_callbacks(default) == effective_callbacks(None, default)


def test_callbacks_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Callbacks().timeout = 1  # type: ignore[misc]  # that it refuses is what is tested
