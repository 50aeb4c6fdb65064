"""Events, for observers and for subscribers."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Event,
    EventStream,
    RequestFinished,
    RequestStarted,
    Started,
    Starting,
    Stopped,
    Stopping,
    open_actor,
    open_supervisor,
)
from mcp_actors.kernel._events import EventHub

from .actors import Boom, Do, Get, Host, Put, of, raising


def event(number: int) -> Event:
    return Started(actor="host", incarnation=number, time=0.0)


async def test_the_life_of_an_actor_and_its_requests_are_events(autojump_clock: MockClock) -> None:
    events: list[Event] = []
    boom = Boom()

    async def work() -> None:
        await trio.sleep(2)
        raise boom

    async with open_actor(Host(), name="host", observers=[events.append]) as ref:
        began = trio.current_time()
        with pytest.raises(Boom):
            await ref.call(Do(work))
        await ref.call(Get(1))
    assert of(events) == [
        "Starting",
        "Started",
        "RequestStarted",
        "RequestFinished",
        "RequestStarted",
        "RequestFinished",
        "Stopping",
        "Stopped",
    ]
    assert {(one.actor, one.incarnation) for one in events} == {("host", 1)}
    assert [one.time - began for one in events] == [0, 0, 0, 2, 2, 2, 2, 2]
    finished = [one for one in events if isinstance(one, RequestFinished)]
    assert [(one.message, one.seconds, one.error) for one in finished] == [("Do", 2, boom), ("Get", 0, None)]
    assert [one.message for one in events if isinstance(one, RequestStarted)] == ["Do", "Get"]


class Uninterested(list[Event]):
    """Can do without the events of requests."""

    wants_requests = False

    def __call__(self, event: Event, /) -> None:
        self.append(event)


async def test_an_event_can_be_pickled() -> None:
    events: list[Event] = []
    async with open_actor(Host(), name="host", observers=[events.append]):
        pass
    copies = pickle.loads(pickle.dumps(events))
    assert copies == events
    assert [copy.at for copy in copies] == [event.at for event in events]


async def test_requests_emit_no_events_while_no_observer_wants_them() -> None:
    uninterested = Uninterested()
    async with open_actor(Host(), name="host", observers=[uninterested]) as ref:
        await ref.call(Get(1))
        assert of(uninterested) == ["Starting", "Started"]
        uninterested.wants_requests = True
        await ref.call(Get(1))
        assert of(uninterested) == ["Starting", "Started", "RequestStarted", "RequestFinished"]


async def test_one_observer_that_wants_requests_gets_them() -> None:
    events: list[Event] = []
    async with open_actor(Host(), name="host", observers=[Uninterested(), events.append]) as ref:
        await ref.call(Get(1))
    assert of(events)[2:4] == ["RequestStarted", "RequestFinished"]


async def test_a_cancelled_request_is_finished_too() -> None:
    events: list[Event] = []
    async with open_actor(Host(), name="host", observers=[events.append]) as ref:
        await ref.tell(Do(trio.sleep_forever))
        await settle()
    (finished,) = (one for one in events if isinstance(one, RequestFinished))
    assert isinstance(finished.error, trio.Cancelled)


async def test_an_exception_of_an_observer_is_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Event] = []

    def broken(one: Event) -> None:
        raise Boom("in the observer")

    async with open_actor(Host(), name="host", observers=[broken, events.append]) as ref:
        assert await ref.call(Get(1)) == 1
    assert of(events, Stopping, Stopped) == ["Stopping", "Stopped"]
    assert len(caplog.records) == len(events)
    assert "raised on Starting(" in caplog.text
    assert "the actor is not affected" in caplog.text


def test_an_observer_may_come_and_go() -> None:
    """Also while the other observers are being called."""
    hub, seen = EventHub(), list[Any]()

    def once(one: Event) -> None:
        seen.append(("once", one.incarnation))
        hub.remove(once)

    def always(one: Event) -> None:
        seen.append(("always", one.incarnation))

    hub.emit(event(0))
    hub.add(once)
    hub.add(always)
    hub.emit(event(1))
    hub.emit(event(2))
    assert seen == [("once", 1), ("always", 1), ("always", 2)]


async def test_a_stream_gives_events_in_order_and_then_the_end() -> None:
    stream = EventStream()
    got: list[int] = []

    async def read() -> None:
        got.extend([one.incarnation async for one in stream])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await settle()
        for number in range(3):
            stream(event(number))
        await settle()
        assert got == []  # a list comprehension hands over at its end
        stream(event(3))
        stream.close()
    assert got == [0, 1, 2, 3]
    assert stream.missed == 0


async def test_a_stream_drops_its_oldest_and_counts_what_it_missed() -> None:
    stream = EventStream(size=2)
    for number in range(5):
        stream(event(number))
    assert stream.missed == 3
    assert [one.incarnation for one in stream.pending()] == [3, 4]
    assert list(stream.pending()) == []
    stream.close()
    assert [one async for one in stream] == []


async def test_two_readers_of_a_stream_share_its_events() -> None:
    stream = EventStream()
    got: list[int] = []

    async def read() -> None:
        async for one in stream:
            got.append(one.incarnation)  # noqa: PERF401  # one by one, as they come

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(read)
        await settle()
        stream(event(1))
        await settle()
        stream(event(2))
        await settle()
        stream.close()
    assert got == [1, 2]


async def test_a_cancelled_reader_loses_no_event() -> None:
    stream = EventStream()
    stream(event(1))
    with trio.CancelScope() as scope:
        scope.cancel("before it reads")
        await anext(stream)
    assert scope.cancelled_caught
    assert [one.incarnation for one in stream.pending()] == [1]


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "many"])
def test_a_stream_holds_at_least_one_event(size: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^an event stream holds at least 1 event, not .*; give size as a positive int$"
    ):
        EventStream(size=size)


async def test_without_observers_requests_make_no_events() -> None:
    """And one that comes while a request is served sees the next one."""
    async with open_actor(Host(), name="host") as ref:
        await ref.tell(Put(1))
        with pytest.raises(Boom):
            await ref.call(Do(raising(Boom())))


def test_events_are_frozen_and_compare_by_what_they_say() -> None:
    assert event(1) == event(1) != event(2)
    with pytest.raises(AttributeError):
        event(1).actor = "other"  # type: ignore[misc]  # which is the point


def test_events_are_equal_if_all_but_their_errors_and_their_times_by_the_wall_clock_are() -> None:
    def finished(seconds: float, error: Exception) -> RequestFinished:
        return RequestFinished(actor="a", incarnation=1, time=0.0, message="Do", seconds=seconds, error=error)

    one, same, other = finished(2.0, Boom()), finished(2.0, ValueError()), finished(3.0, Boom())
    assert one == same
    assert one != other
    assert {one, same, other} == {one, other}
    assert one != "a"


def test_events_of_different_classes_are_not_equal() -> None:
    starting, started = (kind(actor="a", incarnation=1, time=0.0) for kind in (Starting, Started))
    assert started != starting
    assert len({started, starting}) == 2


def test_an_event_shows_its_class_and_its_fields() -> None:
    assert repr(event(3)) == "Started(actor='host', incarnation=3, time=0.0)"


async def test_a_stream_of_a_tree_that_has_ended_ends_too() -> None:
    async with open_supervisor() as supervisor, supervisor.watch_events() as during:
        pass
    assert [event async for event in during] == []


async def test_a_stream_ends_with_its_tree_once_it_was_read() -> None:
    seen: list[str] = []

    async def read() -> None:
        async with supervisor.watch_events() as stream:
            seen.extend([type(event).__name__ async for event in stream])

    async with trio.open_nursery() as nursery, open_supervisor() as supervisor:
        nursery.start_soon(read)
        await settle()
    assert seen == ["Stopping", "Stopped"]


async def test_an_event_has_the_time_of_the_wall_clock(autojump_clock: MockClock) -> None:
    """B-25: whatever Trio's own clock says."""
    before = datetime.now(UTC)
    happened = event(1)
    await trio.sleep(3600)
    assert before <= happened.at <= datetime.now(UTC)
