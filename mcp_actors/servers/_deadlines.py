"""Enforce the deadlines of requests, and count how they end.

All requests of callers to one server share its `Calls`, on whichever connection: the deadlines (`Deadlines`), the
counts of outcomes and durations (`LatencyCounts`; `Latency` is their snapshot), and the retry tokens and the circuit
breaker of ``_rules``. A group has one `DeadlineTimer`, which the `DeadlineActor` runs in a task.

The record owns the `Calls`. Callers begin and end deadlines, and so does `request_internally` for requests of a
connection's own, which are not counted; health checks, the requests of a connect and `Unsubscribe` have none. A
connection, its requests and the questions of the server renew, suspend and hold them. The timer answers an expired
request by the kernel's `PendingCall`, and calls `Deadlines.on_timeout` if it was sent. This file uses Trio's clock, and
`Deadlines.begin` refuses callers outside Trio, or in other threads. It imports no record, session or connection, and
logs nothing.

Theory of operation
-------------------
A deadline belongs to the call, not to the connection: it starts with the call, includes the time in the queue, and
holds while the server is disconnected or a full pipe blocks the write. One task of the group (`DeadlineTimer`),
independent of all connections, therefore enforces the deadlines of all messages; while an isolated retry connects, its
caller does. The timer answers in the server's place: the caller gets its error at once; then the request is withdrawn
from the queue or, if it was sent, cancelled at the server.

All requests to one server have the same timeout, so they expire in the order in which they began, and a FIFO queue
replaces one timer per request. The same holds for the time without progress: renewing it moves an entry to the end.
What has come is read before requests expire: an answer that was there when its deadline was judged counts.

While a person is asked to sign in, the ``request_timeout`` of all requests to that server stops. A request that began
before another one is given at least as much time back, so their order stays. While a person answers a question of the
server, that of the request stops for which it asks. The queue skips such requests: they are few, and looked at one by
one.
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
from ._attempts import ObservedAttempt
from ._rules import Breaker, RetryTokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator

    from ..config import ServerConfig
    from ..kernel import PendingCall
    from ._attempts import Observed


Limit = Literal["request_timeout", "progress_timeout"]

READ_FIRST: Final = 100
"""Steps of the event loop for what has come before requests expire, two milliseconds if nothing has. An answer needs a
few; a long one is read in pieces."""


@define(eq=False)
class InTask:
    """An attempt in the task of its caller, which runs middleware there; it may send several messages.

    Attributes:
        scope: the scope around it.
        calls: its messages that have no answer yet.
        latest: the latest of all its messages.
        error: its end, if that was decided from outside.
    """

    scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    calls: list[PendingCall[Any]] = field(factory=list, init=False)
    latest: PendingCall[Any] | None = field(default=None, init=False)
    error: BaseException | None = field(default=None, init=False)

    @property
    def handed_over(self) -> bool:
        """True while a message of it is at the server."""
        return any(call.handed_over for call in self.calls)

    @property
    def actor(self) -> str | None:
        """The name of the actor that has the latest of its messages; None before the first."""
        return None if self.latest is None else self.latest.actor

    def expire(self, exc: BaseException) -> bool:
        """Cancel it: its caller gets this exception."""
        self.error = exc
        self.scope.cancel("the end of its request was decided")
        return True

    def withdraw(self) -> None:
        """Do nothing: its task is cancelled by itself."""


@define(eq=False)
class Deadline:
    """The deadline of one request with all its attempts; a context manager around that request.

    Attributes:
        keeper: the server's deadlines.
        operation: the protocol's method and its main argument: ``"tools/call 'search'"``.
        began: when the request was made.
        at: when it times out.
        own: True for a request of our own, such as a new list of tools: it is not finished before the server leaves.
        idle_at: when it times out without progress; infinite unless that is limited and the request was sent.
        call: the message of the current or latest attempt, or the middleware that sends its messages.
        begun: the number of messages of this attempt, sent by middleware, that have ended and may have had an effect.
        expired: True after it has timed out.
        limit: the limit that has expired.
        asked: seconds of its time that do not count, because a person was asked. While a question of the server is
            open, the time at which that began is missing from them.
        questions: for each open question of the server to a person, the most that `asked` may become.
        tries: the number of attempts so far, with the one that is under way.
        since: when the present retry is due; None for the first attempt.
        observed: the attempt under way, for observers; None without an observer, and after its end.
    """

    keeper: Deadlines
    operation: str
    began: float
    at: float
    own: bool = False
    idle_at: float = math.inf
    call: PendingCall[Any] | InTask | None = None
    begun: int = 0
    expired: bool = False
    limit: Limit = "request_timeout"
    asked: float = 0.0
    questions: tuple[float, ...] = ()
    tries: int = 1
    since: float | None = None
    observed: ObservedAttempt | None = None

    @property
    def sent(self) -> bool:
        """True while an attempt is at the server, or on its way there."""
        return self.call is not None and self.call.handed_over

    @property
    def actor(self) -> str | None:
        """The name of the actor that has the latest attempt; None before the first."""
        return None if self.call is None else self.call.actor

    def is_pending(self, *, queued: bool, actors: Container[str | None] | None = None) -> bool:
        """Return True for a caller's request that is in flight, with one of these actors if any are given.

        With ``queued``, return True for any request of a caller.
        """
        return not self.own and (queued or (self.sent if actors is None else self.is_at(actors)))

    def is_at(self, actors: Container[object]) -> bool:
        """Return True while one of these actors has a message of it."""
        calls = self.call.calls if isinstance(self.call, InTask) else () if self.call is None else (self.call,)
        return any(call.handed_over and call.actor in actors for call in calls)

    def renew(self) -> None:
        """Restart the time without progress: the request was handed to the session, or progress arrived."""
        keeper = self.keeper
        if keeper._progress_timeout is not None and self in keeper._requests:
            self.idle_at = trio.current_time() + keeper._progress_timeout
            keeper._idle[self] = None
            keeper._idle.move_to_end(self)
            keeper.timer.wake_by(self.idle_at, keeper)

    def wait_again(self, failure: Exception, delay: float) -> None:
        """Note that an attempt has failed and that the request waits so many seconds for another one."""
        attempt, self.observed = self.observed, None  # an observer may want the program to exit
        if attempt is not None:
            attempt.failed(failure, last=False)
        self.begun = 0
        self.tries += 1
        self.since = trio.current_time() + delay
        if attempt is not None:
            self.observed = ObservedAttempt(attempt.observed, self.operation, attempt.subject, self.since, self.tries)
        self.keeper.settled()

    def suspend(self) -> None:
        """Stop the time without progress: the request waits again, or its answer has arrived."""
        self.idle_at = math.inf
        self.keeper._idle.pop(self, None)

    def hurry(self, seconds: float, fn: Callable[[], object]) -> None:
        """Call a function after some seconds, the same for all requests; at once if the request has its outcome."""
        if self in self.keeper._requests:
            self.keeper._late[fn] = trio.current_time() + seconds, self  # middleware may send several messages at once
            self.keeper.timer.wake_by(trio.current_time() + seconds, self.keeper)
        else:
            fn()

    def fail(self, failure: Exception) -> None:
        """Note that the last attempt has failed."""
        if (attempt := self.observed) is not None:
            self.observed = None
            attempt.failed(failure, last=True)

    def handed_over(self, replica: str) -> None:
        """Note that a connection has taken the attempt, if that is observed."""
        if (attempt := self.observed) is not None:
            if attempt.sent_at is None:
                # In the step of the caller, the message has no `PendingCall` yet, and the clock need not be read again.
                attempt.sent_at = self.began if self.call is None else trio.current_time()
            attempt.replica = replica

    def put_back(self) -> None:
        """Note that the message waits in the mailbox again, because nothing of it was sent."""
        if self.observed is not None and not self.begun:
            self.observed.sent_at = self.observed.request_id = None

    def __enter__(self) -> Self:
        return self

    def end(self, *_: object) -> None:
        """Forget the deadline: the request has its outcome."""
        self.call = None
        if (attempt := self.observed) is not None:  # its caller has left: each other end has been reported
            self.observed = None
            attempt.cancelled()
        self.keeper.end(self)

    __exit__ = end


class Deadlines:
    """The deadlines of all requests to one server.

    Args:
        server: the server's name.
        request_timeout: seconds for a whole request; None disables the limit.
        progress_timeout: seconds without progress after a request was sent; None disables the limit.
        timer: the timer of the group. None for a server without one, whose deadlines nothing enforces.

    Attributes:
        server: the server's name.
        timer: see above.
        note_quiet: True if `quiet_since` is kept, which costs a request a look at the clock.
        quiet_since: the last time at which a caller's request ended.
        on_timeout: called with the deadline and the error of each sent request that times out.
        outage: describes why the server does not serve, with the error that keeps it down; an empty text while it does.
        observed: what the attempts of requests share if they are observed. Set by the record.
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
        self.timer = timer or DeadlineTimer()
        self._settled: trio.Event | None = None
        self.set_limits(request_timeout, progress_timeout)

    def set_limits(self, request_timeout: float | None, progress_timeout: float | None) -> None:
        """Change the timeouts, also those of the requests that wait: theirs count from the call, as before.

        The time without progress begins anew when the next progress arrives.
        """
        self._request_timeout, self._progress_timeout = request_timeout, progress_timeout
        self._limit = math.inf if request_timeout is None else request_timeout
        for deadline in tuple(self._idle):
            deadline.suspend()
        self._reckon(self._requests)

    def _reckon(self, requests: Iterable[Deadline]) -> None:
        """Compute when requests time out."""
        for deadline in requests:
            deadline.at = deadline.began + self._limit + max(deadline.questions or (deadline.asked,))
        self.timer.wake_by(self.next(), self)

    # --- requests ---------------------------------------------------------------------------------------------------

    def begin(self, request: Any, *, own: bool = False) -> Deadline:
        """Start the deadline of a request. Use it as a context manager, or call its `end`.

        Args:
            request: the `Request`, which gets it.
            own: see `Deadline`. Then its attempts are not observed.

        Raises:
            RuntimeError: the caller is outside Trio. Every request of a user begins here.
        """
        # Before anything is changed, because the Trio run of another thread has a clock too.
        timer = self.timer
        if get_ident() != timer.thread:
            raise outside_trio(f"server {self.server!r}")
        try:
            now = trio.current_time()
        except RuntimeError:
            raise outside_trio(f"server {self.server!r}") from None
        deadline = request.deadline = Deadline(self, request.operation, now, now + self._limit, own)
        if self.observed is not None and not own:
            deadline.observed = ObservedAttempt(self.observed, deadline.operation, request.subject, now)
        self._requests[deadline] = None
        if deadline.at < timer.at or self not in timer.used:
            timer.wake_by(deadline.at, self)
        return deadline

    def end(self, deadline: Deadline) -> None:
        """Forget the deadline of a request that has its outcome."""
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

    def settled(self) -> None:
        """Wake the tasks that wait until requests are settled: one has its outcome, or waits for another attempt."""
        if self._settled is not None:
            self._settled.set()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Stop the ``request_timeout`` of all requests while a person is asked to sign in, one at a time.

        The time without progress goes on. It runs only for requests that were sent. Those are isolated attempts, which
        have a connection of their own and do not wait for the person.
        """
        self._asking_since = since = trio.current_time()
        try:
            yield
        finally:
            self._asking_since, now = None, trio.current_time()
            for deadline in self._requests:
                deadline.asked += now - max(since, deadline.began)
            self._reckon(self._requests)

    @contextmanager
    def answering(self, actor: str, known: Deadline | None, most: float | None = None) -> Iterator[None]:
        """Stop the time without progress while a server waits for our answer; all time if a person gives it.

        Args:
            actor: the actor of the connection.
            known: the request for which the server asks. None if it does not say that; then all count that it has.
            most: seconds that a request may be given in all for the answers of people, or a server that asks again and
                again could hold it. None if no person answers.
        """
        key, asked = known or actor, list[Deadline]()
        if most is not None:
            asked = [each for each in self._requests if each.is_at((actor,))] if known is None else [known]
        self._held[key] += 1
        for each in asked:
            limit = max(most or 0.0, each.asked, *each.questions)
            each.asked -= 0 if each.questions else trio.current_time()
            each.questions = (limit,) * (len(each.questions) + 1)
            if each in self._requests:
                self._asked[each] = None
        self._reckon(asked)
        try:
            yield
        finally:
            for each in asked:
                (limit, *rest), each.questions = each.questions, each.questions[1:]
                each.asked = each.asked if rest else min(each.asked + trio.current_time(), limit)
            self._reckon(asked)
            self._held -= Counter((key,))
            for each in tuple(self._idle):
                if not self._is_held(each) and (each is known or (known is None and each.is_at((actor,)))):
                    each.renew()

    def _is_held(self, deadline: Deadline) -> bool:
        """Return True while a server waits for an answer to a question that belongs to a request."""
        return deadline in self._held or deadline.is_at(self._held)

    def pending(self, *, queued: bool, actors: Container[str | None] | None = None) -> int:
        """Return the number of callers' requests in flight; with ``queued``, of all without an outcome.

        With the names of actors, only those count that they have.
        """
        requests = tuple(self._requests)  # in one step, because other threads ask too
        return sum(deadline.is_pending(queued=queued, actors=actors) for deadline in requests)

    async def wait_settled(self, *, queued: bool, actors: Container[str | None] | None = None) -> None:
        """Wait until no requests are `pending`."""
        while any(deadline.is_pending(queued=queued, actors=actors) for deadline in self._requests):
            if self._settled is None or self._settled.is_set():  # else another task waits for the same
                self._settled = trio.Event()
            await self._settled.wait()

    def any_sent_before(self, time: float, actor: str) -> bool:
        """Return True if a request that began by `time` was sent, to that actor, and has not expired."""
        older = takewhile(lambda deadline: deadline.began <= time, self._requests)
        return any(deadline.is_at((actor,)) for deadline in older)

    def leave(self) -> None:
        """Forget the server, which has ended. Attempts that a program has kept show what is known of it now."""
        self.timer.used.pop(self, None)  # it has no request any more that could expire
        self.on_timeout, self.outage = (lambda *_: None), (lambda: ("", None))
        if (observed := self.observed) is not None:
            facts = observed.describe(self.server)
            observed.describe = lambda _: facts

    # --- the timer --------------------------------------------------------------------------------------------------

    def next(self) -> float:
        """Return the time at which the next request expires, unless it ends before that."""
        running = self._requests if self._asking_since is None else ()
        first = next((each for each in running if each not in self._asked), None)
        first_asked = min((each.at for each in self._asked if running), default=math.inf)
        first_idle = next((each for each in self._idle if not self._is_held(each)), None)
        first_late, _ = next(iter(self._late.values()), (math.inf, None))
        idle_at = first_idle.idle_at if first_idle else math.inf
        return min(first.at if first else math.inf, first_asked, idle_at, first_late)

    @trio.lowlevel.enable_ki_protection  # a Ctrl-C in the midst would lose an answer
    def expire(self, now: float) -> None:
        """Answer the requests whose time is over; first those that have an answer."""
        while self._late and next(iter(self._late.values()))[0] <= now:
            hurry = next(iter(self._late))
            del self._late[hurry]
            hurry()
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
        """Return the requests to answer, with the limit that has expired; the earlier one if both have.

        A limit that is stopped has not expired, whatever time is noted for it.
        """
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
        """Return the error for a request that has timed out.

        Its cause is what keeps the server down, if that is why the request was not sent.
        """
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
        elif deadline.begun:
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
            outcome="unknown" if deadline.sent or deadline.begun or deadline.tries > 1 else "not_sent",
        )
        failure.__cause__ = cause
        return failure


class DeadlineTimer:
    """Enforces the deadlines of all servers of a group."""

    def __init__(self) -> None:
        self.thread: int = get_ident()
        self.at: float = math.inf
        self._sleep = trio.CancelScope()
        # Those that have a request, because of many servers few are used. A removed server must not be held here: its
        # credentials would be, too.
        self.used: dict[Deadlines, None] = {}

    @property
    def lives_here(self) -> bool:
        """True if the caller is in the thread of the group."""
        return get_ident() == self.thread

    def wake_by(self, time: float, deadlines: Deadlines) -> None:
        """Look at these deadlines at a time, or earlier; never if it is infinite."""
        if time == math.inf:
            return
        self.used[deadlines] = None
        # The deadline of the scope is often that of a request which has ended: an early wake-up now and then costs less
        # than moving the deadline at every request.
        if time < self.at:
            self.at = self._sleep.deadline = time

    async def run(self) -> None:
        """Expire deadlines while the group is open."""
        while True:
            self.at = min((each.next() for each in self.used), default=math.inf)
            if (now := trio.current_time()) < self.at:
                with trio.CancelScope(deadline=self.at) as self._sleep:
                    await trio.sleep_forever()
            else:
                # The program may have been held up (a blocked loop, SIGSTOP, a breakpoint), so that an answer has come
                # in time and was not read. Trio runs this task and the readers in any order, so they go first: in steps
                # and not for a time, because a program may be held up again.
                for _ in range(READ_FIRST):
                    await trio.lowlevel.checkpoint()
                for each in tuple(self.used):
                    each.expire(now)

    def close(self) -> None:
        """Let middleware that still runs keep its time by itself, because the group is closed."""
        for deadline in [deadline for each in self.used for deadline in each._requests]:
            if isinstance(deadline.call, InTask):
                deadline.call.scope.deadline = deadline.at


class DeadlineActor(Actor):
    """Owns the task that enforces deadlines. It takes no messages."""

    def __init__(self, timer: DeadlineTimer) -> None:
        self.timer = timer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the task, which outlives every connection."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.timer.run, name=self.ref.name)
            yield
            nursery.cancel_scope.cancel("the group is closed")
            self.timer.close()


# --- Count the requests to one server and their durations, in bounded memory ------------------------------------------

# Theory of operation
# -------------------
# Exact percentiles would need every duration. Instead each duration is counted in a bucket; the bounds of the buckets
# grow by 2 % from one to the next. A percentile is reported as the middle of its bucket, so its error is at most 1 %.
# (This is the histogram of DDSketch, Masson et al. 2019, with a relative accuracy of 1 %.) From a microsecond to a day
# there are 1273 buckets, of which a server uses some dozens; the first and the last also count shorter and longer
# durations. Counting takes one logarithm and one dict entry.


_SHORTEST: Final = 1e-6
"""Seconds. The way through the mailbox alone takes ten times as long."""

_LONGEST: Final = 86_400.0
"""Seconds. A day."""

_GROWTH: Final = 1.02
"""The ratio of the upper bounds of neighbouring buckets. The error is ``(g - 1) / (g + 1)``, 0.99 %."""

_PER_E: Final = 1 / math.log(_GROWTH)
_MIDDLE: Final = 2 / (_GROWTH + 1)
_LAST: Final = math.ceil(math.log(_LONGEST / _SHORTEST) * _PER_E)


@frozen(kw_only=True)
class Latency:
    """A snapshot of how many requests to a server ended, how, and after which time.

    Percentiles cover the requests that had a result. They are in seconds, accurate to 1 % from a microsecond to a day,
    and None before the first result.

    Attributes:
        done: the number of requests that had a result, one with ``is_error`` included.
        failed: the number of requests that raised an error, the server's own errors included. Requests whose caller
            left count in neither.
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
    """Counts the requests to one server while it is in its group."""

    _failed: int = field(default=0, init=False)
    _buckets: dict[int, int] = field(factory=dict, init=False)

    def done(self, seconds: float) -> None:
        """Count a result that took so many seconds."""
        if seconds <= _SHORTEST:  # a mock clock may even say 0
            bucket = 0
        elif seconds >= _LONGEST:
            bucket = _LAST
        else:
            bucket = math.ceil(math.log(seconds / _SHORTEST) * _PER_E)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def failed(self) -> None:
        """Count an error, without its duration, which often is just one of our own timeouts."""
        self._failed += 1

    def snapshot(self) -> Latency:
        """Return the counts so far, in some dozens of steps however many requests there were.

        Any thread may call it while the event loop counts, so everything is computed from one copy.
        """
        buckets = self._buckets.copy()
        done = sum(buckets.values())
        p50, p95, p99 = _percentiles(buckets, done, 50, 95, 99)
        return Latency(done=done, failed=self._failed, p50=p50, p95=p95, p99=p99)


def _percentiles(buckets: dict[int, int], done: int, *shares: int) -> list[float | None]:
    """Return the times at these percentages, which must ascend; each has the rank ``ceil(share * done / 100)``."""
    times: list[float | None] = []
    below = 0
    for bucket in sorted(buckets):
        below += buckets[bucket]
        while len(times) < len(shares) and below * 100 >= shares[len(times)] * done:
            # The middle of the bucket: the value with the same relative distance to both of its bounds.
            times.append(_SHORTEST * _GROWTH**bucket * _MIDDLE if bucket else _SHORTEST)
    return times or [None] * len(shares)


# --- State shared by all requests to one server, on whichever connection ----------------------------------------------


class Calls:
    """The state of the policies of one server, for all its requests; written by their callers.

    Attributes:
        deadlines: their deadlines, also while the server is down.
        tokens: the rest of the retry budget.
        breaker: the circuit breaker, if one is configured.
        latency: counts of outcomes and durations.
    """

    def __init__(self, config: ServerConfig, timer: DeadlineTimer | None = None) -> None:
        self.deadlines: Deadlines = Deadlines(config.name, config.request_timeout, config.progress_timeout, timer)
        self.latency: LatencyCounts = LatencyCounts()
        self._begin_anew(config)

    def configure(self, config: ServerConfig) -> None:
        """Take over a changed configuration, also for the requests that wait."""
        self.deadlines.set_limits(config.request_timeout, config.progress_timeout)
        self._begin_anew(config)

    def _begin_anew(self, config: ServerConfig) -> None:
        self.tokens: RetryTokens = RetryTokens(config.retry.budget)
        self.breaker: Breaker | None = Breaker(config.name, config.breaker) if config.breaker is not None else None
