"""A KeyboardInterrupt or SystemExit of a child leaves the block ungrouped, after the clean-up."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    open_supervisor,
)

from .workers import Yard, crash, door_raises


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
async def test_an_exit_out_of_a_child_is_raised_ungrouped_after_clean_up(error: BaseException) -> None:
    yard = Yard()
    with door_raises(type(error)) as raised:
        async with open_supervisor(yard.spec("a"), yard.spec("b", stop=error)) as supervisor:
            await crash(supervisor.child("b"))
            await trio.sleep_forever()
    assert raised.value is error
    assert yard.log == ["a up", "b up", "a down"]


@pytest.mark.parametrize("start_order", ["sequential", "parallel"])
@pytest.mark.parametrize("strict", [True, False])
async def test_an_exit_out_of_a_first_start_is_raised_ungrouped_after_clean_up(strict: bool, start_order: str) -> None:
    yard = Yard()
    error = KeyboardInterrupt()

    async def after_a() -> None:
        await settle()
        raise error

    with door_raises(KeyboardInterrupt) as raised:
        async with open_supervisor(
            yard.spec("a"),
            yard.spec("b", after_a),
            strict=strict,
            start_order="parallel" if start_order == "parallel" else "sequential",
        ):
            raise AssertionError("not reached")
    assert raised.value is error
    assert yard.log == ["a up", "b failed", "a down"]


async def test_an_exit_out_of_a_restart_is_raised_ungrouped_after_clean_up() -> None:
    yard = Yard()
    error = KeyboardInterrupt()
    with door_raises(KeyboardInterrupt) as raised:
        async with open_supervisor(yard.spec("a"), yard.spec("b", None, error)) as supervisor:
            await crash(supervisor.child("b"))
            await trio.sleep_forever()
    assert raised.value is error
    assert yard.log == ["a up", "b up", "b down", "b failed", "a down"]


async def test_an_exit_out_of_start_child_is_raised_ungrouped_after_clean_up() -> None:
    yard = Yard()
    error = SystemExit()
    with door_raises(SystemExit) as raised:
        async with open_supervisor(yard.spec("a")) as supervisor:
            await supervisor.start_child(yard.spec("b", error))
    assert raised.value is error
    assert yard.log == ["a up", "b failed", "a down"]


async def test_an_exit_out_of_a_stop_is_raised_ungrouped_after_clean_up() -> None:
    yard = Yard()
    error = SystemExit()
    with door_raises(SystemExit) as raised:
        async with open_supervisor(yard.spec("a"), yard.spec("b", stop=error), yard.spec("c")):
            pass
    assert raised.value is error
    assert yard.log == ["a up", "b up", "c up", "c down", "a down"]


async def test_an_exit_out_of_stop_child_is_raised_ungrouped_after_clean_up() -> None:
    yard = Yard()
    error = SystemExit()
    with door_raises(SystemExit) as raised:
        async with open_supervisor(yard.spec("a"), yard.spec("b", stop=error)) as supervisor:
            await supervisor.stop_child("b")
            await trio.sleep_forever()
    assert raised.value is error
    assert yard.log == ["a up", "b up", "a down"]
