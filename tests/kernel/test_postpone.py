"""Messages that a handler postpones, and answers that wait in a queue."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, ClassVar

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorRef,
    ActorStopped,
    Call,
    ChildSpec,
    DeadLetter,
    Event,
    Later,
    LaterQueue,
    MailboxFull,
    Message,
    Pool,
    Postpone,
    handles,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import Boom, of


@frozen
class Pay(Call[int]):
    number: int


@frozen
class Note(Message):
    number: int


@frozen
class NoteNow(Note):
    control: ClassVar[bool] = True


@frozen
class Open(Message):
    crash: bool = False


class Till(Actor[Pay | Note | Open]):
    """Handles nothing before it is open, and remembers what it has handled across crashes."""

    handled: ClassVar[list[int]] = []

    def __init__(self, *, is_open: bool = False) -> None:
        self.open = is_open

    def _done(self, message: Pay | Note) -> int:
        if not self.open:
            raise Postpone
        self.handled.append(message.number)
        return message.number

    @handles(Pay)
    async def pay(self, message: Pay) -> int:
        return self._done(message)

    @handles(Note)
    def note(self, message: Note) -> None:
        self._done(message)

    @handles(Open)
    def begin(self, message: Open) -> None:
        if message.crash:
            self.fail(Boom())
            return
        self.open = True
        self.resume()


@pytest.fixture(autouse=True)
def nothing_handled() -> None:
    Till.handled.clear()


async def test_a_postponed_message_is_handled_in_its_old_place_once_the_actor_resumes() -> None:
    """D-68: calls and tells, of async and plain handlers, in front of what came later."""
    async with open_actor(Till(), name="till") as ref, trio.open_nursery() as nursery:
        for number in range(1, 5):
            await ref.tell(Note(number))
            await settle()
        nursery.start_soon(ref.call, Pay(5))
        await settle()
        await ref.tell(NoteNow(6))
        assert (Till.handled, ref.statistics().queued, ref.statistics().in_flight) == ([], 6, 0)
        await ref.tell(Open())
        assert await ref.call(Pay(7)) == 7
        assert Till.handled == [6, 1, 2, 3, 4, 5, 7]


async def test_postponed_messages_survive_a_crash_and_are_dead_letters_at_the_end() -> None:
    """D-68."""
    events: list[Event] = []
    async with open_supervisor(ChildSpec("till", Till), max_restarts=9, observers=[events.append]) as top:
        ref = top.child("till", Till)
        outcomes: list[object] = []

        async def pay(number: int) -> None:
            try:
                outcomes.append(await ref.call(Pay(number)))
            except ActorStopped:
                outcomes.append("stopped")

        async with trio.open_nursery() as nursery:
            await ref.tell(Note(1))
            nursery.start_soon(pay, 2)
            await settle()
            await ref.tell(Open(crash=True))
            await settle()
            assert (ref.statistics().incarnation, ref.statistics().queued, outcomes) == (2, 2, [])
            await ref.tell(Open())
            await settle()
            assert (Till.handled, outcomes) == ([1, 2], [2])
            await ref.tell(Open(crash=True))
            await settle()
            await ref.tell(Note(3))
            nursery.start_soon(pay, 4)
            await settle()
            await top.stop_child("till")
        assert outcomes == [2, "stopped"]
        assert of(events, DeadLetter) == ["DeadLetter"]


async def test_the_next_incarnation_begins_with_what_was_postponed() -> None:
    """D-68: without a call of ``resume``."""
    tills = iter([Till(), Till(is_open=True)])
    async with open_supervisor(ChildSpec("till", lambda: next(tills))) as top:
        ref = top.child("till", Till)
        for number in (1, 2):
            await ref.tell(Note(number))
        await ref.tell(Open(crash=True))
        assert await ref.call(Pay(3)) == 3
        assert Till.handled == [1, 2, 3]


async def test_a_caller_that_leaves_takes_its_postponed_message_along() -> None:
    async with open_actor(Till(), name="till") as ref:
        with trio.move_on_after(0) as scope:
            scope.deadline = trio.current_time() + 1e-9
            await ref.call(Pay(1))
        await settle()
        assert ref.statistics().queued == 0
        await ref.tell(Open())
        assert Till.handled == []


async def test_no_more_messages_are_postponed_than_the_mailbox_holds(
    said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    """D-68: one more is answered with an error, or is a dead letter."""
    events: list[Event] = []
    async with open_actor(Till(), name="till", mailbox_size=2, observers=[events.append]) as ref:
        for number in (1, 2, 3):
            await ref.tell(Note(number))
        with pytest.raises(MailboxFull) as full:
            await ref.call(Pay(4))
        said("too many postponed", str(full.value))
        assert of(events, DeadLetter) == ["DeadLetter"]
        assert "Note cannot be postponed" in caplog.text
        await ref.tell(Open())
        assert Till.handled == [1, 2]


async def test_postponed_at_the_end_of_its_incarnation_it_goes_to_the_next() -> None:
    class Ends(Till):
        @handles(Pay)
        async def pay(self, message: Pay) -> int:
            if message.number == 1 and not self.handled:
                self.handled.append(0)
                self.fail(Boom())
                raise Postpone
            return message.number

    async with open_supervisor(ChildSpec("till", Ends)) as top:
        assert await top.child("till", Till).call(Pay(1)) == 1


async def test_a_member_of_a_pool_postpones_messages_of_the_pool() -> None:
    async with open_actor(Pool(Till, 1), name="pool") as pool, trio.open_nursery() as nursery:
        await pool.tell(Note(1))
        nursery.start_soon(pool.call, Pay(2))
        await settle()
        assert pool.statistics().queued == 2
        await pool.tell(Open())
        await settle()
        assert Till.handled == [1, 2]


async def test_a_pool_that_comes_back_with_a_key_handles_what_was_postponed() -> None:
    """D-68: by its members, although they are other actors now."""
    tills = iter([Till(), Till(is_open=True)])
    pools = iter([partial(Pool, max_restarts=0), partial(Pool, key=lambda _: 0)])
    async with open_supervisor(ChildSpec("pool", lambda: next(pools)(lambda: next(tills), 1))) as top:
        ref = top.child("pool", Till)
        for number in (1, 2):
            await ref.tell(Note(number))
        await ref.tell(Open(crash=True))
        assert await ref.call(Pay(3)) == 3
        assert Till.handled == [1, 2, 3]


# --- Answers that wait ------------------------------------------------------------------------------------------------


class Next(Call[str]):
    """Wait for a job."""


@frozen
class Put(Message):
    job: str


class Jobs(Actor[Next | Put]):
    def __init__(self) -> None:
        self.jobs: deque[str] = deque()
        self.waiting: LaterQueue[str] = LaterQueue()
        self.canceled: list[Later[str]] = []

    @handles(Next)
    def next(self, message: Next) -> str | Later[str]:
        if self.jobs:
            return self.jobs.popleft()
        return self.waiting.add(self.defer(message, keep_slot=False))

    @handles(Put)
    def put(self, message: Put) -> None:
        if not self.waiting.reply(message.job):
            self.jobs.append(message.job)


async def test_answers_that_wait_forget_callers_that_have_left(autojump_clock: MockClock) -> None:
    """D-65: 20 000 callers with a deadline leave nothing, and the next job goes to the one that waits."""
    jobs, got = Jobs(), []

    async def take(ref: ActorRef[Next | Put], seconds: float) -> None:
        with trio.move_on_after(seconds):
            got.append(await ref.call(Next()))

    async with open_actor(jobs, name="jobs") as ref, trio.open_nursery() as nursery:
        async with trio.open_nursery() as many:
            for _ in range(100):
                many.start_soon(take, ref, 1)
        for _ in range(200):
            for pending in [ref.send_request(Next()) for _ in range(100)]:
                pending.withdraw()  # as a task that is cancelled does
            await settle()
            assert (len(jobs.waiting), ref.statistics().in_flight) == (0, 0)
        nursery.start_soon(take, ref, 1)
        await settle()
        nursery.start_soon(take, ref, 9)
        nursery.start_soon(take, ref, 9)
        await trio.sleep(2)
        assert [later.open for later in jobs.waiting] == [True, True]
        await ref.tell(Put("a"))
        await ref.tell(Put("b"))
        await ref.tell(Put("c"))
        assert (len(jobs.waiting), [*jobs.jobs]) == (0, ["c"])
    assert got == ["a", "b"]


async def test_an_answer_that_waits_may_have_a_function_for_its_cancellation(autojump_clock: MockClock) -> None:
    left: list[Later[str]] = []

    class Noting(Jobs):
        @handles(Next)
        def next(self, message: Next) -> str | Later[str]:
            later = self.defer(message)
            later.on_cancel = left.append
            return self.waiting.add(later)

    jobs = Noting()
    async with open_actor(jobs, name="jobs") as ref:
        with trio.move_on_after(1):
            await ref.call(Next())
        await settle()
        assert (len(left), len(jobs.waiting), ref.statistics().in_flight) == (1, 0, 1)
        left[0].reply("dropped")
        assert ref.statistics().in_flight == 0


async def test_an_answer_that_was_given_elsewhere_is_passed_over() -> None:
    class Shuffling(Jobs):
        @handles(Next)
        async def next(self, message: Next) -> str | Later[str]:  # type: ignore[override]  # not a plain one
            later = self.waiting.add(self.defer(message, keep_slot=False))
            self.canceled.append(later)
            return later

    jobs = Shuffling()
    async with open_actor(jobs, name="jobs") as ref, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(ref.call, Next())
            await settle()
        assert jobs.canceled[0].reply("by itself")
        assert jobs.waiting.popleft() is jobs.canceled[1]
        assert jobs.waiting.popleft() is None
        assert jobs.canceled[1].reply("too")


async def test_a_message_of_a_tell_that_waits_for_an_answer_is_passed_over() -> None:
    jobs, got = Jobs(), []
    async with open_actor(jobs, name="jobs") as ref, trio.open_nursery() as nursery:

        async def take() -> None:
            got.append(await ref.call(Next()))

        await ref.tell(Next())
        nursery.start_soon(take)
        await settle()
        await ref.tell(Put("a"))
    assert got == ["a"]


async def test_the_end_of_an_actor_empties_its_queue_of_answers() -> None:
    jobs: list[Jobs] = []

    def make() -> Jobs:
        jobs.append(Jobs())
        return jobs[-1]

    async with open_supervisor(ChildSpec("jobs", make)) as top, trio.open_nursery() as nursery:
        ref = top.child("jobs", Jobs)

        async def wait() -> None:
            with pytest.raises(ActorCrashed):
                await ref.call(Next())

        nursery.start_soon(wait)
        await settle()
        jobs[0].fail(Boom())
        await settle()
        assert len(jobs[0].waiting) == 0


async def test_a_message_without_an_answer_cannot_be_deferred(said: Said, caplog: pytest.LogCaptureFixture) -> None:
    """D-66: it would hold its slot for ever."""

    class Defers(Actor):
        @handles(Put)
        def put(self, message: Any) -> Any:
            return self.defer(message)

    async with open_actor(Defers(), name="defers") as ref:
        await ref.tell(Put("a"))
        [record] = caplog.records
        assert record.exc_info is not None
        said("defer() of a message without an answer", str(record.exc_info[1]))
        assert ref.statistics().in_flight == 0
