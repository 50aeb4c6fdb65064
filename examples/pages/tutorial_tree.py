"""A supervisor below a supervisor: what is restarted with what, and by whom when that does not help.

Prints::

    started: weather
    started: heating
    started: house
    started: supervisor
    the wire is dead
    started: weather
    started: heating
    the wire is dead
    started: weather
    started: heating
    started: house
"""

from __future__ import annotations

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    Call,
    ChildSpec,
    Event,
    Started,
    Supervisor,
    SupervisorRef,
    handles,
    open_supervisor,
)


@frozen
class Ask(Call[None]):
    wire_is_dead: bool = False


class Weather(Actor):
    @handles(Ask)
    async def ask(self, message: Ask) -> None:
        if message.wire_is_dead:
            raise ConnectionError("the wire is dead")

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, ConnectionError)


class Heating(Actor):
    @handles(Ask)
    async def ask(self, message: Ask) -> None:
        """It only has to be there."""


def house() -> Supervisor:
    return Supervisor(
        ChildSpec("weather", Weather),
        ChildSpec("heating", Heating),
        strategy="rest_for_one",  # the heating depends on the weather
        max_restarts=1,
        window=60,
    )


def tell(event: Event) -> None:
    if isinstance(event, Started):
        print("started:", event.actor)


async def main() -> None:
    async with open_supervisor(
        ChildSpec("house", house), observers=[tell]
    ) as supervisor:
        inside = supervisor.child("house", SupervisorRef)
        weather, heating = inside.child("weather"), inside.child("heating")
        for _ in range(2):
            async with heating.watch() as monitor:
                try:
                    await weather.call(Ask(wire_is_dead=True))
                except ConnectionError as error:
                    print(error)
                await monitor.wait()  # until it has ended, as it depends on the weather
            await heating.call(Ask())  # waits until it is there again
        await inside.which_children()  # and so does this


trio.run(main)
