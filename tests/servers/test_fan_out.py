"""The same step for several actors at the same time."""

from __future__ import annotations

import pytest
import trio
from attrs import frozen

from mcp_actors._tasks import fan_out


@frozen
class Each:
    name: str
    error: Exception | None = None


async def fail(each: Each) -> None:
    if each.error is None:
        await trio.sleep_forever()
    else:
        raise each.error


async def test_the_failure_of_one_step_is_raised_bare_and_ends_the_others() -> None:
    lost = LookupError("lost")
    with pytest.raises(LookupError) as caught:
        await fan_out(fail, [Each("a"), Each("b", lost)], "step")
    assert caught.value is lost


async def test_failures_of_several_steps_are_raised_as_a_group() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await fan_out(fail, [Each("a", LookupError()), Each("b", ValueError())], "step")
    assert sorted(type(each).__name__ for each in caught.value.exceptions) == ["LookupError", "ValueError"]
