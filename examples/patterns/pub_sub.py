"""Publish and subscribe: a subscriber that is slow loses the oldest news, and delays no other.

Prints::

    fast got 1 2 3 4 5
    slow got 1 4 5 and lost 2
    subscribers: 1
"""

from __future__ import annotations

import trio
import trio.testing
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    ChildSpec,
    Down,
    Message,
    handles,
    open_supervisor,
)


@frozen
class News(Message):
    number: int


@frozen
class Subscribe(Call[int]):
    """Answered with the number of subscribers."""

    ref: ActorRef[News] | None = None


class Topic(Actor[Subscribe | News | Down]):
    def __init__(self) -> None:
        self._subscribers: dict[ActorRef[News], None] = {}

    @handles(Subscribe)
    def subscribe(self, message: Subscribe) -> int:
        if message.ref is not None:
            self._subscribers[message.ref] = None
            self.watch(message.ref)
        return len(self._subscribers)

    @handles(News)
    def publish(self, message: News) -> None:
        for ref in self._subscribers:
            ref.tell_nowait(message)  # never raises: the subscribers drop the oldest

    @handles(Down)
    def forget(self, message: Down) -> None:
        if message.comes_back:
            self.watch(message.ref)
        else:
            self._subscribers.pop(message.ref, None)


class Subscriber(Actor[News]):
    def __init__(self, got: list[int], go_on: trio.Event) -> None:
        self._got, self._go_on = got, go_on

    @handles(News)
    async def read(self, message: News) -> None:
        self._got.append(message.number)
        await self._go_on.wait()


async def main() -> None:
    got: dict[str, list[int]] = {"fast": [], "slow": []}
    at_once, later = trio.Event(), trio.Event()
    at_once.set()
    events = {"fast": at_once, "slow": later}
    async with open_supervisor(
        ChildSpec("topic", Topic),
        *(
            ChildSpec(
                name,
                Subscriber,
                args=(got[name], events[name]),
                mailbox_size=2,
                overflow="drop_oldest",
            )
            for name in got
        ),
    ) as top:
        topic = top.child("topic", Topic)
        for name in got:
            await topic.call(Subscribe(top.child(name, Subscriber)))
        for number in range(1, 6):
            await topic.tell(News(number))
            await trio.testing.wait_all_tasks_blocked()
        print("fast got", *got["fast"])
        later.set()
        await trio.testing.wait_all_tasks_blocked()
        lost = top.child("slow").statistics().dropped
        print("slow got", *got["slow"], f"and lost {lost}")
        await top.stop_child("slow")
        print("subscribers:", await topic.call(Subscribe()))


trio.run(main)
