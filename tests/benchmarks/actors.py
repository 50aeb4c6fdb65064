"""The actors that are measured: as simple as can be, so that what is measured is the kernel."""

from __future__ import annotations

from attrs import frozen

from mcp_actors.kernel import Actor, Call


@frozen
class Ask(Call[int]):
    """Wants its number back."""

    number: int


class Echo(Actor):
    """Answers at once. With one slot, as by default, concurrent callers queue."""

    async def handle(self, message: Ask) -> int:
        """Give the number back."""
        return message.number


class WideEcho(Echo):
    """Serves many at the same time."""

    max_in_flight = 256
