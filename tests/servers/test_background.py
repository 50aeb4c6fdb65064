"""Tasks that serve a block until its clean-up is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from mcp_actors._tasks import open_background


async def fail() -> None:
    raise LookupError("lost")


async def run_beside(block: Callable[[], Awaitable[None]], *tasks: Callable[[], Awaitable[None]]) -> None:
    async with open_background() as background:
        for task in tasks:
            background.start_soon(task, name="task")
        await block()


async def test_a_task_serves_the_clean_up_of_a_cancelled_block() -> None:
    asked, answered = trio.Event(), trio.Event()

    async def serve() -> None:
        await asked.wait()
        answered.set()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        async with open_background() as background:
            background.start_soon(serve, name="serve")
            try:
                scope.cancel("the block is not wanted any more")
                await trio.lowlevel.checkpoint()
            finally:
                with trio.CancelScope(shield=True):
                    asked.set()
                    await answered.wait()
    assert scope.cancelled_caught
    assert answered.is_set()


async def test_nothing_starts_after_the_block() -> None:
    """A caller whose connection has ended must get the error of that, not one of a nursery."""
    async with open_background() as background:
        pass
    background.start_soon(fail, name="late")


async def test_tasks_end_with_the_block() -> None:
    ended: list[int] = []

    async def serve(number: int) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(number)

    async with open_background() as background:
        for number in range(3):
            background.start_soon(serve, number, name="serve")
        await trio.testing.wait_all_tasks_blocked()
    assert sorted(ended) == [0, 1, 2]


async def test_a_task_that_fails_cancels_the_block_and_its_exception_leaves_alone() -> None:
    with pytest.raises(LookupError, match="lost") as caught:
        await run_beside(trio.sleep_forever, fail)
    assert not isinstance(caught.value.__context__, BaseExceptionGroup)


async def test_two_failures_leave_together() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await run_beside(trio.sleep_forever, fail, fail)
    assert [type(error) for error in caught.value.exceptions] == [LookupError, LookupError]


async def test_the_failure_of_a_task_does_not_hide_the_blocks_own() -> None:
    async def block() -> None:
        raise ValueError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        await run_beside(block, fail)
    assert [type(error) for error in caught.value.exceptions] == [ValueError, LookupError]
