"""Unwrap one failure from the groups that nurseries put around it."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_actors._collapse import collapse, exit_in, is_failure, leaves, without_cancelled

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
