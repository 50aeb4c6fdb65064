"""Handlers that type checkers must accept and refuse. Nothing runs this file: an ignore that is not needed is an error.

mypy checks it with all others, and pyright with `tests/pyright.json`, both in ``nox -s typing``.
"""

from __future__ import annotations

from typing import assert_type

from mcp_actors.kernel import Actor, ActorRef, Call, Later, Message, handles


class Add(Call[int]):
    """A call."""


class Name(Call[str | None]):
    """A call that may be answered with None."""


class Reset(Message):
    """A message without an answer."""


class Right(Actor):
    """All of this is accepted."""

    @handles(Add)
    async def add(self, message: Add) -> int:
        return 1

    @handles(Name)
    async def name(self, message: Name) -> str:
        return ""

    @handles(Reset)
    async def reset(self, message: Message) -> None:
        assert_type(await self.add(Add()), int)


class RightLater(Actor):
    """Answers that come later."""

    @handles(Add)
    async def add(self, message: Add) -> int | Later[int]:
        return assert_type(self.defer(message), Later[int])

    @handles(Name)
    async def name(self, message: Name) -> Later[str | None]:
        return self.defer(message)


class RightPlain(Actor):
    """Without a task."""

    @handles(Add)
    def add(self, message: Add) -> int | Later[int]:
        return assert_type(self.defer(message), Later[int])

    @handles(Name)
    def name(self, message: Name) -> str:
        return ""

    @handles(Reset)
    def reset(self, message: Message) -> None:
        assert_type(self.name(Name()), str | None)


class RightPlainHandle(Actor):
    """One function for all messages."""

    def handle(self, message: Add | Name) -> int | None:
        return 1


async def use(ref: ActorRef) -> None:
    """A call has the type of its answer."""
    assert_type(await ref.call(Add()), int)
    assert_type(await ref.call(Name()), str | None)


def define_wrong_ones() -> None:
    """All of this is refused, here and when it runs."""

    class WrongResult(Actor):
        @handles(Add)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] # a wrong result
        async def add(self, message: Add) -> str:
            return ""

    class WrongLater(Actor):
        @handles(Add)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] # a wrong result
        async def add(self, message: Add) -> Later[str]:
            raise NotImplementedError

    class WrongParameter(Actor):
        @handles(Add)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] # another message
        async def add(self, message: Reset) -> int:
            return 1

    class WrongPlainResult(Actor):
        @handles(Add)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] # a wrong result
        def add(self, message: Add) -> str:
            return ""

    class WrongPlainParameter(Actor):
        @handles(Add)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] # another message
        def add(self, message: Reset) -> int:
            return 1

    class PlainAnswers(Actor):
        @handles(Reset)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] # there is no answer
        def reset(self, message: Reset) -> int:
            return 1

    class Answers(Actor):
        @handles(Reset)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType] # there is no answer
        async def reset(self, message: Reset) -> int:
            return 1
