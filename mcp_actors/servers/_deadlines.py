"""Enforce the deadlines of requests, and count how requests end.

A deadline belongs to a call, not to a connection: time also passes in the queue, and while the server is disconnected.
One task per group (`DeadlineTimer`) enforces all deadlines. An expired request fails at once; then the request is
withdrawn from the queue, or cancelled at the server.

Owns: deadlines of requests; counts of requests; circuit breakers; retry tokens; the timer's task.
Writes: each request's `deadline`; errors of expired requests; reports to observers of attempts.
Calls: kernel, _rules.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from contextlib import asynccontextmanager, contextmanager
from itertools import takewhile
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import trio
from attrs import define, field, frozen

from .._errors import RequestTimedOut
from .._misuse import outside_trio
from ..kernel import Actor
from ._rules import Breaker, RetryTokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator

    from ..config import ServerConfig
    from ..kernel import PendingCall
    from ._attempts import Observed


Limit = Literal["request_timeout", "progress_timeout"]


@define(eq=False)
class InTask:
    """An attempt through middleware, in the caller's task. It may send several messages.

    Attributes:
        calls: the unanswered messages.
        latest: the latest message.
        error: the error given to `expire`, which the attempt raises.
    """

    scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    calls: list[PendingCall[Any]] = field(factory=list, init=False)
    latest: PendingCall[Any] | None = field(default=None, init=False)
    error: BaseException | None = field(default=None, init=False)

    @property
    def handed_over(self) -> bool:
        """True while the server has a message of this attempt."""
        return any(call.handed_over for call in self.calls)

    @property
    def actor(self) -> str | None:
        return None if self.latest is None else self.latest.actor

    def expire(self, exc: BaseException) -> bool:
        self.error = exc
        self.scope.cancel("the end of its request was decided")
        return True

    def withdraw(self) -> None:
        """Do nothing: `expire` has cancelled the task."""


@define(eq=False)
class Deadline:
    """The deadline of one request with all its attempts; a context manager around the request.

    Time counts from the call, even while a full pipe blocks the write.

    Attributes:
        operation: the protocol's method and main argument: ``"tools/call 'search'"``.
        own: True for internal requests, such as for a new list of tools; `wait_settled` does not wait for these.
        idle_at: when the request times out without progress; infinite if unlimited or not sent.
        call: the message of the latest attempt, or the task whose middleware sends messages.
        possible_effects: how many messages of this attempt, sent by middleware, have ended and may have had an effect.
        stopped_time: seconds not counted because a person was asked. While questions are open, the time at which the
            first began is subtracted.
        questions: for each open question to a person, the most that `stopped_time` may become.
        tries: the number of attempts, including the current.
        since: when the present retry is due; None for the first attempt.
        observed: takes the end of the current attempt; None without an observer, and afterwards.
        subject: the tool, prompt or resource, if observed.
        sent_at: when an actor took the observed attempt; None before.
    """

    keeper: Deadlines
    operation: str
    began: float
    at: float
    own: bool = False
    idle_at: float = math.inf
    call: PendingCall[Any] | InTask | None = None
    possible_effects: int = 0
    expired: bool = False
    limit: Limit = "request_timeout"
    stopped_time: float = 0.0
    questions: tuple[float, ...] = ()
    tries: int = 1
    since: float | None = None
    observed: Observed | None = None
    subject: str | None = None
    sent_at: float | None = None
    replica: str | None = None
    request_id: int | str | None = None

    @property
    def sent(self) -> bool:
        """True while an attempt is at the server, or on its way."""
        return self.call is not None and self.call.handed_over

    @property
    def actor(self) -> str | None:
        return None if self.call is None else self.call.actor

    def is_pending(self, *, queued: bool, actors: Container[str | None] | None = None) -> bool:
        """Return True for a caller's request if in flight (at one of `actors`, if given), or if `queued` is True."""
        return not self.own and (queued or (self.sent if actors is None else self.is_at(actors)))

    def is_at(self, actors: Container[object]) -> bool:
        """Return True while one of these actors has a message of the request."""
        calls = self.call.calls if isinstance(self.call, InTask) else () if self.call is None else (self.call,)
        return any(call.handed_over and call.actor in actors for call in calls)

    def renew(self) -> None:
        """Restart the time without progress: the session has the request, or progress arrived."""
        keeper = self.keeper
        if keeper._progress_timeout is not None and self in keeper._requests:
            self.idle_at = keeper.timer.now() + keeper._progress_timeout
            keeper._idle[self] = None
            keeper._idle.move_to_end(self)
            keeper.timer.wake_by(self.idle_at, keeper)

    def wait_again(self, failure: Exception, delay: float) -> None:
        """Note a failed attempt; another follows in `delay` seconds."""
        observed, self.observed = self.observed, None  # cleared first: an observer may raise SystemExit
        if observed is not None:
            observed.failed(self, failure, last=False)
        self.possible_effects = 0
        self.tries += 1
        self.since = trio.current_time() + delay
        self.observed, self.sent_at, self.replica, self.request_id = observed, None, None, None
        self.keeper.wake_waiters()

    def suspend(self) -> None:
        """Stop the time without progress: the request waits again, or its answer has arrived."""
        self.idle_at = math.inf
        self.keeper._idle.pop(self, None)

    def call_later(self, seconds: float, fn: Callable[[], object]) -> None:
        """Call a function after `seconds`; at once if the request has ended.

        `seconds` must always be the same: the timer only looks at the oldest entry.
        """
        if self in self.keeper._requests:
            at = self.keeper.timer.now() + seconds
            self.keeper._late[fn] = at, self  # by function, as middleware may send several messages at once
            self.keeper.timer.wake_by(at, self.keeper)
        else:
            fn()

    def fail(self, failure: Exception) -> None:
        if (observed := self.observed) is not None:
            self.observed = None
            observed.failed(self, failure, last=True)

    def handed_over(self, replica: str) -> None:
        if self.observed is not None:
            if self.sent_at is None:
                # In the step of the caller there is no `PendingCall` yet, and no need to read the clock again.
                self.sent_at = self.began if self.call is None else trio.current_time()
            self.replica = replica

    def put_back(self) -> None:
        """Note that the message waits in the mailbox again, unsent."""
        if not self.possible_effects:
            self.sent_at = self.request_id = None

    def __enter__(self) -> Self:
        return self

    def end(self, *_: object) -> None:
        self.call = None
        if (observed := self.observed) is not None:  # its caller has left: all other ends have been reported
            self.observed = None
            observed.cancelled(self)
        self.keeper.end(self)

    __exit__ = end


class Deadlines:
    """The deadlines of all requests to one server.

    All requests have the same timeout and expire in the order of their calls, so a FIFO queue replaces a timer per
    request. Time without progress has a second queue, in which `Deadline.renew` moves a request to the end. The queues
    skip requests with a stopped limit (`answering`).

    Args:
        request_timeout: seconds for a whole request; None disables the limit.
        progress_timeout: seconds without progress after sending; None disables the limit.
        timer: the timer of the group. Without a timer, nothing enforces deadlines.

    Attributes:
        note_quiet: True keeps `quiet_since`, at the price of reading the clock per request.
        quiet_since: when a caller's request last ended.
        on_timeout: called with deadline and error of each sent request that times out.
        outage: returns why the server does not serve, and the error; an empty text and None while serving.
    """

    def __init__(
        self,
        server: str,
        request_timeout: float | None,
        progress_timeout: float | None,
        timer: DeadlineTimer | None = None,
    ) -> None:
        self.server = server
        self.on_timeout: Callable[[Deadline, Exception], None] = lambda *_: None
        self.outage: Callable[[], tuple[str, Exception | None]] = lambda: ("", None)
        self.observed: Observed | None = None
        self.note_quiet: bool = False
        self.quiet_since: float = -math.inf
        self._requests: OrderedDict[Deadline, None] = OrderedDict()
        self._idle: OrderedDict[Deadline, None] = OrderedDict()
        self._asked: dict[Deadline, None] = {}
        self._late: dict[Callable[[], object], tuple[float, Deadline]] = {}
        self._held: Counter[str | Deadline | None] = Counter()
        self._asking_since: float | None = None
        self.timer: DeadlineTimer = timer or DeadlineTimer()
        self._settled: trio.Event | None = None
        self.set_limits(request_timeout, progress_timeout)

    def set_limits(self, request_timeout: float | None, progress_timeout: float | None) -> None:
        """Change the timeouts, also for waiting requests, still counted from the call.

        Time without progress starts again with the next progress.
        """
        self._request_timeout, self._progress_timeout = request_timeout, progress_timeout
        self._limit = math.inf if request_timeout is None else request_timeout
        for deadline in tuple(self._idle):
            deadline.suspend()
        self._reckon(self._requests)

    def _reckon(self, requests: Iterable[Deadline]) -> None:
        for deadline in requests:
            deadline.at = deadline.began + self._limit + max(deadline.questions or (deadline.stopped_time,))
        self.timer.wake_by(self.next(), self)

    # --- requests ---------------------------------------------------------------------------------------------------

    def begin(self, request: Any, *, own: bool = False) -> Deadline:
        """Start the deadline of a request. Use the result as a context manager, or call its `end`.

        Attempts of requests that are `own` (see `Deadline`) are not observed.

        Raises:
            RuntimeError: the caller is outside Trio. Every request of a user begins here.
        """
        # Check the thread before changing anything: the Trio run of another thread has a clock, too.
        timer = self.timer
        if get_ident() != timer.thread:
            raise outside_trio(f"server {self.server!r}")
        try:
            now = trio.current_time()
        except RuntimeError:
            raise outside_trio(f"server {self.server!r}") from None
        deadline = request.deadline = Deadline(self, request.operation, now, now + self._limit, own)
        if self.observed is not None and not own:
            deadline.observed, deadline.subject = self.observed, request.subject
        self._requests[deadline] = None
        if deadline.at < timer.at or self not in timer.used:
            timer.wake_by(deadline.at, self)
        return deadline

    def end(self, deadline: Deadline) -> None:
        self._requests.pop(deadline, None)
        if self._idle:
            self._idle.pop(deadline, None)
        if self._asked:
            self._asked.pop(deadline, None)
        if self._late:
            self._late = {fn: late for fn, late in self._late.items() if late[1] is not deadline}
        if not self._requests:
            self.timer.used.pop(self, None)
        if self._settled is not None:
            self._settled.set()
        if self.note_quiet and not deadline.own:
            self.quiet_since = trio.current_time()

    def wake_waiters(self) -> None:
        """Wake `wait_settled`: a request has its outcome, or waits for another attempt."""
        if self._settled is not None:
            self._settled.set()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Stop the ``request_timeout`` of all requests while a person signs in; one sign-in at a time.

        Time without progress continues: only isolated attempts are at the server now, and do not wait for the person.
        """
        self._asking_since = since = trio.current_time()
        try:
            yield
        finally:
            self._asking_since, now = None, trio.current_time()
            # An older request gets back at least as much time as a younger one, so requests still expire in order.
            for deadline in self._requests:
                deadline.stopped_time += now - max(since, deadline.began)
            self._reckon(self._requests)

    @contextmanager
    def answering(self, actor: str, known: Deadline | None, most: float | None = None) -> Iterator[None]:
        """Stop the time without progress while a server waits for the client's answer; both limits if a person answers.

        Args:
            actor: the actor of the connection.
            known: the request behind the question; None means all requests at the actor.
            most: how many seconds people's answers may add to a request in all, or a server could hold a request by
                asking forever. None if no person answers.
        """
        # Questions of one request may overlap, and `stopped_time` counts their union once: the first subtracts the time
        # at its start, the last adds the time at its end. In between `_reckon` uses the limit; all open questions share
        # the largest, so closing one shortens nothing. A request that has ended is not added to `_asked`: only the end
        # of a request removes an entry.
        key, asked = known or actor, list[Deadline]()
        if most is not None:
            asked = [each for each in self._requests if each.is_at((actor,))] if known is None else [known]
        self._held[key] += 1
        for each in asked:
            limit = max(most or 0.0, each.stopped_time, *each.questions)
            each.stopped_time -= 0 if each.questions else trio.current_time()
            each.questions = (limit,) * (len(each.questions) + 1)
            if each in self._requests:
                self._asked[each] = None
        self._reckon(asked)
        try:
            yield
        finally:
            for each in asked:
                (limit, *rest), each.questions = each.questions, each.questions[1:]
                each.stopped_time = each.stopped_time if rest else min(each.stopped_time + trio.current_time(), limit)
            self._reckon(asked)
            self._held -= Counter((key,))
            for each in tuple(self._idle):
                if not self._is_held(each) and (each is known or (known is None and each.is_at((actor,)))):
                    each.renew()

    def _is_held(self, deadline: Deadline) -> bool:
        """Return True while a server waits for an answer on behalf of a request."""
        return deadline in self._held or deadline.is_at(self._held)

    def pending(self, *, queued: bool, actors: Container[str | None] | None = None) -> int:
        """Return the number of callers' requests for which `Deadline.is_pending`."""
        requests = tuple(self._requests)  # in one step, because other threads may call this
        return sum(deadline.is_pending(queued=queued, actors=actors) for deadline in requests)

    async def wait_settled(self, *, queued: bool, actors: Container[str | None] | None = None) -> None:
        while any(deadline.is_pending(queued=queued, actors=actors) for deadline in self._requests):
            if self._settled is None or self._settled.is_set():  # else another task waits already
                self._settled = trio.Event()
            await self._settled.wait()

    def any_sent_before(self, time: float, actor: str) -> bool:
        """Return True if the actor has a request that began by `time` and has not expired."""
        older = takewhile(lambda deadline: deadline.began <= time, self._requests)
        return any(deadline.is_at((actor,)) for deadline in older)

    def release(self) -> None:
        """Forget the ended server. Attempts kept by a program show its last known facts."""
        self.timer.used.pop(self, None)  # no request is left to expire
        self.on_timeout, self.outage = (lambda *_: None), (lambda: ("", None))
        if (observed := self.observed) is not None:
            facts = observed.describe(self.server)
            observed.describe = lambda _: facts

    # --- the timer --------------------------------------------------------------------------------------------------

    def next(self) -> float:
        """Return when the next request expires, unless it ends before."""
        running = self._requests if self._asking_since is None else ()
        first = next((each for each in running if each not in self._asked), None)
        first_asked = min((each.at for each in self._asked if running), default=math.inf)
        first_idle = next((each for each in self._idle if not self._is_held(each)), None)
        first_late, _ = next(iter(self._late.values()), (math.inf, None))
        idle_at = first_idle.idle_at if first_idle else math.inf
        return min(first.at if first else math.inf, first_asked, idle_at, first_late)

    @trio.lowlevel.enable_ki_protection
    def expire(self, now: float) -> None:
        """Fail expired requests. First, deliver answers that have waited too long (`Deadline.call_later`)."""
        # The answer of an expired request may wait in `_late` for the progress callback, and then replaces the timeout,
        # except for middleware. Look the functions up before `end`, which forgets them, and call after `end`, so that
        # no deadline expires twice. Without the protection above, a Ctrl-C in between would lose the answer, and the
        # caller would wait forever.
        while self._late and next(iter(self._late.values()))[0] <= now:
            fn = next(iter(self._late))
            del self._late[fn]
            fn()
        for deadline, limit in self._due(now).items():
            answered = [fn for fn, (_, of) in self._late.items() if of is deadline]
            self.end(deadline)
            if answered and not isinstance(deadline.call, InTask):
                answered[0]()  # only the caller's callback is late
                continue
            deadline.expired, deadline.limit = True, limit
            if deadline.call is not None:
                if deadline.sent:
                    self.on_timeout(deadline, self.failure(deadline))
                deadline.call.expire(self.failure(deadline))

    def _due(self, now: float) -> dict[Deadline, Limit]:
        """Return expired requests with their limits, the earlier if both have expired; stopped limits never expire."""
        due: dict[Deadline, Limit] = {}
        for deadline in self._requests if self._asking_since is None else ():
            if deadline.at <= now:
                due[deadline] = "request_timeout"
            elif deadline not in self._asked:
                break
        for deadline in self._idle:
            if deadline.idle_at > now:
                break
            if not self._is_held(deadline) and (deadline not in due or deadline.idle_at < deadline.at):
                due[deadline] = "progress_timeout"
        return due

    def failure(self, deadline: Deadline) -> RequestTimedOut:
        """Return the error of a request that has timed out, caused by the outage if that prevented sending."""
        limit = deadline.limit
        cause: Exception | None = None
        if limit == "progress_timeout":
            seconds, without = self._progress_timeout, " without progress"
        else:
            seconds, without = self._request_timeout, ""
        if deadline.sent:
            detail = "the request was already sent and may have taken effect; the server was asked to cancel it"
            if deadline.questions:
                detail += f"; its {max(deadline.questions):g} s for the answers of people are over, too"
            elif self._is_held(deadline):
                detail += "; the server was waiting for a callback of yours, whose time counts"
        elif deadline.possible_effects:
            detail = "its middleware was still running, and the request may have taken effect"
        elif deadline.tries > 1:
            detail = "it was waiting to be retried"
        else:
            outage, cause = self.outage()
            detail = f"the request was not sent{outage and f', because {outage}'}"
        assert seconds is not None
        failure = RequestTimedOut(
            f"server {self.server!r}: {deadline.operation} timed out after {seconds:g} s{without} ({limit}); {detail}",
            server=self.server,
            operation=deadline.operation,
            seconds=seconds,
            limit=limit,
            outcome="unknown" if deadline.sent or deadline.possible_effects or deadline.tries > 1 else "not_sent",
        )
        failure.__cause__ = cause
        return failure


class DeadlineTimer:
    """Enforces the deadlines of all servers of a group.

    While a retry opens its own connection (``RetryPolicy.isolated``), the caller's task enforces the deadline.
    """

    def __init__(self) -> None:
        self.thread: int = get_ident()
        # For what each request does: `trio.current_time` takes two calls more.
        self.now: Callable[[], float] = trio.lowlevel.current_clock().current_time
        self.at: float = math.inf
        self._sleep = trio.CancelScope()
        # Only servers with requests: of many, few are in use. Holding a removed server would hold its credentials.
        self.used: dict[Deadlines, None] = {}

    @property
    def lives_here(self) -> bool:
        return get_ident() == self.thread

    def wake_by(self, time: float, deadlines: Deadlines) -> None:
        """Check these deadlines by `time`, perhaps earlier; never if infinite."""
        if time == math.inf:
            return
        self.used[deadlines] = None
        # The request behind the scope's deadline has often ended. An early wake-up costs less than moving the deadline
        # at each request.
        if time < self.at:
            self.at = self._sleep.deadline = time

    async def run(self) -> None:
        while True:
            self.at = min((each.next() for each in self.used), default=math.inf)
            if (now := trio.current_time()) < self.at:
                with trio.CancelScope(deadline=self.at) as self._sleep:
                    await trio.sleep_forever()
            else:
                # The program may have been held up (a blocked loop, SIGSTOP, a breakpoint) while an answer arrived in
                # time, unread. Trio runs this task and the readers in any order, so let the readers go first, or
                # answered requests would time out. Count steps, not seconds: the program may be held up again. `now`
                # stays: a deadline that passes meanwhile gets its own steps.
                for _ in range(100):  # two milliseconds if idle
                    await trio.lowlevel.checkpoint()
                for each in tuple(self.used):
                    each.expire(now)

    def close(self) -> None:
        """Let running middleware enforce its own deadline, because the group is closed."""
        for deadline in [deadline for each in self.used for deadline in each._requests]:
            if isinstance(deadline.call, InTask):
                deadline.call.scope.deadline = deadline.at


class DeadlineActor(Actor):
    """Owns the timer's task. Takes no messages."""

    def __init__(self, timer: DeadlineTimer) -> None:
        self.timer = timer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.timer.run, name=self.ref.name)
            yield
            nursery.cancel_scope.cancel("the group is closed")
            self.timer.close()


# --- Count the requests to one server and their durations, in bounded memory ------------------------------------------

# Exact percentiles would need every duration. Instead, count durations in buckets whose bounds grow by 2 %; the middle
# of a bucket is at most 1 % off (DDSketch, Masson et al. 2019). From a microsecond to a day there are 1273 buckets, of
# which a server uses some dozens; the first and the last also count shorter and longer durations.


_SHORTEST_LATENCY: Final = 1e-6
"""Seconds. The mailbox alone takes ten times as long."""

_LONGEST_LATENCY: Final = 86_400.0
"""Seconds."""

_GROWTH: Final = 1.02
"""The ratio of neighbouring bounds. The error is ``(g - 1) / (g + 1)``, 0.99 %."""

_PER_E: Final = 1 / math.log(_GROWTH)
_MIDDLE: Final = 2 / (_GROWTH + 1)
_LAST: Final = math.ceil(math.log(_LONGEST_LATENCY / _SHORTEST_LATENCY) * _PER_E)


@frozen(kw_only=True)
class Latency:
    """A snapshot: how many requests to a server have ended, how, and after how long.

    Percentiles cover requests with a result, in seconds, accurate to 1 % from a microsecond to a day. All are None
    before the first result.

    Attributes:
        done: the number of requests with a result, including ``is_error`` results.
        failed: the number of requests that raised an error, including the server's. Requests whose caller left count in
            neither.
        p50: the median.
        p95: the 95th percentile.
        p99: the 99th percentile.
    """

    done: int
    failed: int
    p50: float | None
    p95: float | None
    p99: float | None


@define(eq=False)
class LatencyCounts:
    _failed: int = field(default=0, init=False)
    _buckets: dict[int, int] = field(factory=dict, init=False)

    def done(self, seconds: float) -> None:
        if seconds <= _SHORTEST_LATENCY:  # a mock clock may even say 0
            bucket = 0
        elif seconds >= _LONGEST_LATENCY:
            bucket = _LAST
        else:
            bucket = math.ceil(math.log(seconds / _SHORTEST_LATENCY) * _PER_E)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def failed(self) -> None:
        """Count an error, but not its duration, which is often just the client's own timeout."""
        self._failed += 1

    def snapshot(self) -> Latency:
        """Return the counts. Any thread may call this while the event loop counts, so compute from one copy."""
        buckets = self._buckets.copy()
        done = sum(buckets.values())
        p50, p95, p99 = _percentiles(buckets, done, 50, 95, 99)
        return Latency(done=done, failed=self._failed, p50=p50, p95=p95, p99=p99)


def _percentiles(buckets: dict[int, int], done: int, *shares: int) -> list[float | None]:
    """Return the times at ascending percentages; each has the rank ``ceil(share * done / 100)``."""
    times: list[float | None] = []
    below = 0
    for bucket in sorted(buckets):
        below += buckets[bucket]
        while len(times) < len(shares) and below * 100 >= shares[len(times)] * done:
            # The middle has the same relative distance to both bounds.
            times.append(_SHORTEST_LATENCY * _GROWTH**bucket * _MIDDLE if bucket else _SHORTEST_LATENCY)
    return times or [None] * len(shares)


# --- State shared by all requests to one server, on whichever connection ----------------------------------------------


class PolicyState:
    """The state of one server's policies, shared by all its requests and written in their callers' tasks."""

    def __init__(self, config: ServerConfig, timer: DeadlineTimer | None = None) -> None:
        self.deadlines: Deadlines = Deadlines(config.name, config.request_timeout, config.progress_timeout, timer)
        self.latency: LatencyCounts = LatencyCounts()
        self._begin_anew(config)

    def configure(self, config: ServerConfig) -> None:
        """Take over a changed configuration, also for waiting requests."""
        self.deadlines.set_limits(config.request_timeout, config.progress_timeout)
        self._begin_anew(config)

    def _begin_anew(self, config: ServerConfig) -> None:
        self.tokens: RetryTokens = RetryTokens(config.retry.budget)
        self.breaker: Breaker | None = Breaker(config.name, config.breaker) if config.breaker is not None else None
