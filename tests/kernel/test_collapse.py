"""Unwrap one failure from the groups that nurseries put around it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from mcp_actors._collapse import collapse, exit_in, flattened, is_failure, leaves, without_cancelled

from .actors import make_cancelled


def group(*excs: BaseException) -> BaseExceptionGroup[Any]:
    return BaseExceptionGroup("group", excs)


async def test_one_failure_is_taken_out_of_any_depth() -> None:
    cancelled, boom, stop = await make_cancelled(), ValueError("boom"), KeyboardInterrupt()
    assert collapse(boom) is boom
    assert collapse(group(group(boom))) is boom
    assert collapse(group(group(cancelled, boom), cancelled)) is boom
    assert collapse(group(group(cancelled), cancelled)) is cancelled
    assert collapse(cancelled) is cancelled
    assert collapse(group(boom, group(cancelled, stop))) is stop
    assert collapse(stop) is stop


async def test_several_failures_stay_a_group_without_cancellations() -> None:
    first, second = ValueError("first"), KeyError("second")
    kept = collapse(group(group(first, second, await make_cancelled())))
    assert isinstance(kept, ExceptionGroup)
    assert kept.exceptions == (first, second)
    both = ExceptionGroup("both", [first, second])
    assert collapse(both) is both


async def test_the_parts_of_a_group_can_be_distinguished() -> None:
    cancelled, boom, stop = await make_cancelled(), ValueError("boom"), SystemExit(3)
    assert leaves(group(group(boom), cancelled, stop)) == [boom, cancelled, stop]
    assert leaves(None) == []
    assert exit_in(group(boom, group(stop))) is stop
    assert exit_in(group(boom, cancelled)) is None
    assert exit_in(None) is None
    assert is_failure(group(boom, GeneratorExit()))
    assert not is_failure(group(boom, cancelled))
    assert not is_failure(stop)
    assert without_cancelled(None) is None
    assert without_cancelled(cancelled) is None
    assert without_cancelled(boom) is boom
    assert without_cancelled(group(cancelled)) is None
    with pytest.raises(ExceptionGroup) as caught:
        raise without_cancelled(group(cancelled, boom)) or AssertionError
    assert caught.value.exceptions == (boom,)


# --- groups of any depth ----------------------------------------------------------------------------------------------


def nested(exc: BaseException, depth: int) -> BaseException:
    for _ in range(depth):
        exc = BaseExceptionGroup("level", [exc])
    return exc


DEEP = 10_000


async def test_groups_of_any_depth_are_taken_apart() -> None:
    """C-31: Python's own `split` would exceed the recursion limit."""
    boom, cancelled, stop = ValueError("boom"), await make_cancelled(), KeyboardInterrupt()
    assert leaves(nested(boom, DEEP)) == [boom]
    assert collapse(nested(boom, DEEP)) is boom
    assert collapse(group(nested(boom, DEEP), nested(cancelled, DEEP))) is boom
    assert collapse(nested(group(boom, stop), DEEP)) is stop
    assert without_cancelled(nested(cancelled, DEEP)) is None
    both = nested(group(boom, cancelled, KeyError()), DEEP)
    kept = without_cancelled(both)
    assert isinstance(kept, ExceptionGroup)
    assert [type(leaf) for leaf in leaves(kept)] == [ValueError, KeyError]


def test_a_group_that_loses_a_member_keeps_the_rest() -> None:
    """C-31: its text, traceback, cause and notes; groups within it that lose nothing stay the same objects."""
    inner = ExceptionGroup("inner", [ValueError()])
    outer = group(inner, GeneratorExit())
    outer.add_note("a note")
    outer.__cause__ = cause = OSError()
    cancelled = trio.Cancelled._create(source="unknown")
    kept = without_cancelled(group(outer, cancelled))
    assert isinstance(kept, BaseExceptionGroup)
    assert kept.exceptions == (outer,)
    lost = group(inner, cancelled)
    lost.add_note("a note")
    lost.__cause__ = cause
    kept = without_cancelled(lost)
    assert isinstance(kept, ExceptionGroup)
    assert (kept.exceptions, kept.message, kept.__cause__, kept.__notes__) == ((inner,), "group", cause, ["a note"])


def test_only_groups_that_are_too_deep_are_flattened() -> None:
    """C-31: a traceback shows ten levels."""
    boom = ValueError("boom")
    shallow = nested(boom, 10)
    assert flattened(shallow) is shallow
    assert flattened(boom) is boom
    flat = flattened(nested(boom, 1000))
    assert isinstance(flat, ExceptionGroup)
    assert (flat.message, flat.exceptions) == ("level", (boom,))
