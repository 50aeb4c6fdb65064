"""Put defects into the library, to prove that the simulation finds them."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, partialmethod
from typing import Any, Final
from unittest.mock import patch
from weakref import WeakKeyDictionary

import httpx2

from mcp_actors.auth import SignInRequired
from mcp_actors.kernel import Event, _supervisor
from mcp_actors.kernel._mailbox import Mailbox
from mcp_actors.kernel._requests import Requests
from mcp_actors.kernel._restart import RestartBudget, affected
from mcp_actors.kernel._supervisor import Recovery
from mcp_actors.servers._catalog import ServerCatalog
from mcp_actors.servers._deadlines import DeadlineTimer
from mcp_actors.servers._rules import Retries, seconds_to_retry
from mcp_actors.servers.connection import _direct
from mcp_actors.servers.connection._streams import RECONNECT_BACKOFF, ChangeStream, OpenSubscriptions
from mcp_actors.servers.connection._upkeep import keep_trying
from mcp_actors.servers.group import _loop, _tree
from mcp_actors.servers.group._loop import ServerLoops
from mcp_actors.servers.group._open import GroupFollower
from mcp_actors.servers.record._life import ServerLife
from mcp_actors.servers.record._record import ConnectionRecord, ServerRecord
from mcp_actors.servers.record._wanted import Mode, Verdict, Wanted, started, stopped, verdict_of_start
from mcp_actors.servers.ref import ServerEntry, _operations
from mcp_actors.servers.ref._caller import Caller
from mcp_actors.servers.requests import CallTool
from mcp_actors.transports import CancelLine
from mcp_actors.transports._credentials import Credentials, Renewal
from mcp_actors.transports._request_table import RequestTable
from mcp_actors.transports.http import _bodies
from mcp_actors.transports.http._session import HttpSession, NotificationStream
from mcp_actors.transports.stdio._pipes import PipeWriter


def feed_without_moving_up(self: Mailbox) -> None:
    while self._queue and self.taker is not None and self.taker.free > 0:
        envelope, _ = self._queue.popitem(last=False)
        self.taker.take(envelope)


def write_twice(self: PipeWriter, data: bytes) -> int:
    taken = os.write(self._stream.fileno(), data)
    if b'"tools/call"' in data:
        os.write(self._stream.fileno(), data)
    return taken


settle = RequestTable.settle
failed = Retries.failed
follow = GroupFollower.__call__
wake = Caller.wake
renew = ServerLoops._renew
note_refusal = HttpSession._note_refusal
is_listed: Any = vars(ServerLife)["listed"].fget
resolve = Credentials.resolve
resolved = WeakKeyDictionary[Any, dict[str, str]]()


def settle_the_oldest(self: RequestTable, message: Any) -> bool:
    if type(message) is dict and message.get("id") in self._waiting:
        message = {**message, "id": next(iter(self._waiting))}
    return settle(self, message)


def never_sent(self: Retries, error: BaseException, now: float, *, sent: bool, **options: Any) -> object:
    return failed(self, error, now, sent=False, **options)


def abandon_without_an_answer(self: Requests, envelope: Any) -> None:
    envelope.open = False  # or the end of its slot would answer it
    envelope.later = None
    self._in_flight.discard(envelope)
    self._unneeded.append(envelope)


def close_without_answers(self: Mailbox, refusal: Any) -> list[Any]:
    self._refusal = refusal
    self._control.clear()
    self.drain()
    return []


def append_to_a_full_queue(self: Mailbox, envelope: Any) -> bool:
    envelope.holder = self
    self._queue[envelope] = 0.0
    return True


async def listen_at_once(self: ChangeStream) -> None:
    while await keep_trying(self._consume, RECONNECT_BACKOFF, self._describe, level=logging.DEBUG):
        pass


def never_for_a_person(policy: Any, error: Any) -> float | None:
    return None if isinstance(error, SignInRequired) else seconds_to_retry(policy, error)


def with_the_other_replicas(strategy: Any, ids: Iterable[str], failed: str) -> Sequence[str]:
    return tuple(ids) if failed.rpartition(":")[2].isdigit() else affected(strategy, ids, failed)


def hide_all_that_is_idle(self: GroupFollower, event: Event) -> None:
    record = self.roster.record_of(event.actor)
    if record is None or not record.life.idle:
        follow(self, event)


async def resolve_once(self: Credentials) -> dict[str, str]:
    if self.transport not in resolved:
        resolved[self.transport] = await resolve(self)
    return resolved[self.transport].copy()


send_once = CallTool.send_once


async def send_without_answers(self: CallTool, session: Any, record: Any, _: object, extras: Any) -> object:
    return await send_once(self, session, record, {}, extras)


def wake_once(self: Caller) -> None:
    if not self._life.connects:
        wake(self)


def listed_unless(mode: Mode) -> property:
    def listed(life: ServerLife) -> bool:
        return is_listed(life) and not (life.wanted.mode == mode and life.state in ("stopping", "stopped"))

    return property(listed)


def start_instead(wanted: Wanted, **_: Any) -> Wanted:
    return started(wanted)


def keep_what_is_wanted(wanted: Wanted) -> Wanted:
    return stopped(wanted) if wanted.generation % 2 else started(wanted)


def succeed_whatever_is_wanted(mine: Wanted, wanted: Wanted, *args: Any, **options: Any) -> Verdict:
    verdict = verdict_of_start(mine, wanted, *args, **options)
    return "done" if verdict == "superseded" else verdict


async def finish_in_silence(
    self: ServerLoops, record: ServerRecord, ends: Sequence[ConnectionRecord], end: Callable[[], Awaitable[bool]]
) -> bool:
    _loop.hold(ends, True)
    try:
        await _loop.drain(record, ends, self._seconds, queued=False)
        return await end()
    finally:
        _loop.hold(ends, False)


async def keep(self: ServerLoops, server: ServerEntry, old: ConnectionRecord, *, replica: bool) -> bool:
    if (old.name != server.name) == replica:
        old.life.old = False
        return False
    return await renew(self, server, old)


async def note_refusals_of_later_streams(self: HttpSession, response: httpx2.Response, *, last: bool) -> None:
    await note_refusal(self, response, last=False)


def nothing(*_: object) -> None:
    pass


async def no_wait(*_: object, **__: object) -> None:
    pass


async def same_as_before(*_: object) -> bool:
    return False


def defect(owner: object, name: str, instead: object) -> Callable[[], AbstractContextManager[Any]]:
    """Return what replaces an attribute while a block runs."""
    return partial(patch.object, owner, name, instead)


DEFECTS: Final[dict[str, Callable[[], AbstractContextManager[Any]]]] = {
    "none": nullcontext,
    "a lost wake-up: a sender who waits for room stays outside": defect(Mailbox, "feed", feed_without_moving_up),
    "a doubled send: a line is written twice": defect(PipeWriter, "_write_nowait", write_twice),
    "a second attempt of a call that was sent": defect(Retries, "failed", never_sent),
    "an answer to the wrong caller": defect(RequestTable, "settle", settle_the_oldest),
    "a stale catalogue": defect(ServerCatalog, "mark_stale", nothing),
    "a budget that is not reset": defect(Recovery, "_lasted", lambda *_: False),
    "a budget without an end": defect(RestartBudget, "spend", lambda *_: True),
    "a leaked slot: of a caller who has left": defect(_direct, "CancelLine", lambda id_, _: CancelLine(id_, nothing)),
    "a deadline that does not wake the timer": defect(DeadlineTimer, "wake_by", nothing),
    "a call that is forgotten in a crash": defect(Requests, "_interrupt_deferred", abandon_without_an_answer),
    "a call that is forgotten in a stop": defect(Mailbox, "close", close_without_answers),
    "a call of a caller who has left": defect(Mailbox, "forget", nothing),
    "a queue without a bound": defect(Mailbox, "_append", append_to_a_full_queue),
    "a drain that does not wait": defect(_loop, "drain", no_wait),
    "a credential that is not renewed": defect(Renewal, "_renew", same_as_before),
    "a gap in the notifications that is not reported": defect(NotificationStream, "_report_gap", no_wait),
    "an idle stop with a request in flight": defect(ServerRecord, "is_used", False),
    "a sign-in elsewhere that is not noticed": defect(_tree, "seconds_to_retry", never_for_a_person),
    "an old connection that is kept": defect(ServerLoops, "_renew", partialmethod(keep, replica=False)),
    "an old replica that is kept": defect(ServerLoops, "_renew", partialmethod(keep, replica=True)),
    "credentials that are resolved only once": defect(Credentials, "resolve", resolve_once),
    "a call of two rounds that begins again": defect(CallTool, "send_once", send_without_answers),
    "a subscription that is not renewed": defect(OpenSubscriptions, "begin", nothing),
    "a crash of a replica that ends the others": defect(_supervisor, "affected", with_the_other_replicas),
    "the tools of a server that comes to rest vanish": defect(ServerLife, "listed", listed_unless("rest")),
    "a server that stays at rest although it is used": defect(Caller, "wake", wake_once),
    "a start that succeeds although a stop was faster": defect(
        _operations, "verdict_of_start", succeed_whatever_is_wanted
    ),
    "a restart that leaves the connection": defect(_operations, "restarted", start_instead),
    "a wish that an older one overrides": defect(_operations, "stopped", keep_what_is_wanted),
    # The simulation has found these.
    "a catalogue that stays old as its stream has fallen silent": defect(_bodies, "QUIET_STREAM", math.inf),
    "a stream that is requested from a session that has ended": defect(ChangeStream, "_run", listen_at_once),
    "a pool whose events are hidden": defect(GroupFollower, "__call__", hide_all_that_is_idle),
    "a refused stream that nobody notices": defect(HttpSession, "_note_refusal", no_wait),
    "a gap that subscriptions do not hear of": defect(OpenSubscriptions, "note_gap", nothing),
    "a new connection that is not asked for what the lost one has refused": defect(
        ServerLoops, "_once_finished", finish_in_silence
    ),
    "the tools of a server that is connected anew vanish": defect(ServerLife, "listed", listed_unless("run")),
    "a session that was lost before its stream opened": defect(
        HttpSession, "_note_refusal", note_refusals_of_later_streams
    ),
}
"""The defects, and how each is put in."""
