"""Test actors: a probe in place of a neighbor, events, and a run that one number repeats.

Prints::

    ....                                                                     [100%]
    4 passed in ...
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    ChildSpec,
    Started,
    handles,
    open_actor,
    open_supervisor,
)
from mcp_actors.testing import EventRecorder, Probe, run_seeded


@frozen
class GetPrice(Call[float]):
    item: str


@frozen
class Order(Call[str]):
    item: str


class Shop(Actor):
    def __init__(self, prices: ActorRef) -> None:
        self.prices = prices

    @handles(Order)
    async def order(self, message: Order) -> str:
        price = await self.prices.call(GetPrice(message.item))
        return f"{message.item} for {price}"


async def test_a_shop_asks_for_the_price() -> None:
    probe = Probe()
    probe.reply(GetPrice, 9.5)
    async with (
        open_actor(probe.actor(), name="prices") as prices,
        open_actor(Shop(prices), name="shop") as shop,
    ):
        assert await shop.call(Order("tea")) == "tea for 9.5"
    assert probe.received == [GetPrice("tea")]


async def test_an_order_fails_if_the_price_is_unknown() -> None:
    probe = Probe()
    probe.fail(GetPrice, KeyError("tea"))
    async with (
        open_actor(probe.actor(), name="prices") as prices,
        open_actor(Shop(prices), name="shop") as shop,
    ):
        with pytest.raises(KeyError):
            await shop.call(Order("tea"))


async def test_an_order_waits_while_the_prices_restart() -> None:
    probe, events = Probe(), EventRecorder()
    probe.fail(GetPrice, ConnectionError("lost"), crash=True)
    probe.reply(GetPrice, 9.5)
    async with open_supervisor(
        ChildSpec("prices", probe.actor), observers=[events]
    ) as supervisor:
        prices = supervisor.child("prices")
        with pytest.raises(ConnectionError):
            await prices.call(GetPrice("tea"))
        assert await prices.call(GetPrice("tea")) == 9.5
        await events.wait_for(Started, actor="prices", incarnation=2)


async def race() -> list[int]:
    order: list[int] = []

    async def run(number: int) -> None:
        await trio.sleep(3600)
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(run, number)
    return order


def test_a_race_is_repeated_by_its_seed() -> None:
    assert run_seeded(race, seed=7) == run_seeded(race, seed=7)


if __name__ == "__main__":
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    raise SystemExit(subprocess.call(command))
