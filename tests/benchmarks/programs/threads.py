"""The programs as actors of Pykka 4: each is a thread, with a queue without a limit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pykka

from . import (
    ACCOUNTS,
    BITS,
    CREATURES,
    NODES,
    PRODUCERS,
    READERS,
    RING,
    ROOM,
    TELLERS,
    WORKERS,
    Board,
    choices,
    in_order,
    lookups,
    named,
    placed,
    third,
    transfers,
    values,
)


@contextmanager
def started(*refs: Any) -> Iterator[list[Any]]:
    """Stop these actors after the block."""
    try:
        yield list(refs)
    finally:
        for ref in refs:
            ref.stop()


def run_all(*clients: Callable[[], None]) -> None:
    """Run functions in threads, and wait for them."""
    threads = [threading.Thread(target=client) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ask_later(ref: Any, *words: object) -> Any:
    """Wait for an answer that an actor gives later: Pykka has no word for that."""
    future: Any = pykka.ThreadingFuture()
    ref.tell((future, *words))
    return future.get()


class Echo(pykka.ThreadingActor):
    """Answers at once."""

    def on_receive(self, message: int) -> int:
        """Give the number back."""
        return message


def ping_pong(size: int) -> int:
    """Make one call after the other."""
    with started(Echo.start()) as [echo]:
        return sum(echo.ask(1) for _ in range(size))


class Counter(pykka.ThreadingActor):
    """Counts."""

    def __init__(self) -> None:
        super().__init__()
        self._total = 0

    def on_receive(self, message: object) -> int:
        """Count, or answer."""
        if message is None:
            self._total += 1
        return self._total


def counting(size: int) -> int:
    """Send messages without an answer."""
    with started(Counter.start()) as [counter]:
        for _ in range(size):
            counter.tell(None)
        total: int = counter.ask("total")
        return total


def many_counters(size: int) -> int:
    """Send to many in turn."""
    with started(*(Counter.start() for _ in range(NODES))) as counters:
        for _ in range(size // NODES):
            for counter in counters:
                counter.tell(None)
        return sum(counter.ask("total") for counter in counters)


class Once(pykka.ThreadingActor):
    """Stops after one message."""

    def on_receive(self, message: list[int]) -> None:
        """Note it and stop."""
        message.append(1)
        self.stop()


def short_lives(size: int) -> int:
    """Start an actor for each message."""
    seen: list[int] = []
    refs = []
    for _ in range(size):
        ref = Once.start()
        ref.tell(seen)
        refs.append(ref)
    for ref in refs:
        ref.actor_stopped.wait()
    return len(seen)


class Node(pykka.ThreadingActor):
    """Passes a token to the next one."""

    def __init__(self, over: threading.Event) -> None:
        super().__init__()
        self._over = over
        self._next: Any = None

    def on_receive(self, message: Any) -> None:
        """Note the next one, or pass a token on."""
        if not isinstance(message, int):
            self._next = message
        elif message:
            self._next.tell(message - 1)
        else:
            self._over.set()


def ring(size: int) -> int:
    """Pass a token round."""
    over = threading.Event()
    with started(*(Node.start(over) for _ in range(RING))) as nodes:
        for number, node in enumerate(nodes):
            node.tell(nodes[(number + 1) % RING])
        nodes[0].tell(size)
        over.wait()
    return size


class Mall(pykka.ThreadingActor):
    """Lets two creatures meet."""

    def __init__(self, meetings: int) -> None:
        super().__init__()
        self._left = meetings
        self._waits: tuple[Any, int] | None = None

    def on_receive(self, message: tuple[Any, int]) -> None:
        """Let the first one of two wait."""
        future, color = message
        if not self._left:
            future.set(-1)
        elif self._waits is None:
            self._waits = message
        else:
            self._left -= 1
            first, other = self._waits
            self._waits = None
            first.set(color)
            future.set(other)


def meetings(size: int) -> int:
    """Let creatures meet."""
    met = [0] * CREATURES

    def live(creature: int) -> None:
        color = creature % 3
        while (other := ask_later(mall, color)) >= 0:
            met[creature] += 1
            color = third(color, other)

    with started(Mall.start(size)) as [mall]:
        run_all(*(lambda creature=creature: live(creature) for creature in range(CREATURES)))
    return sum(met)


class Talker(pykka.ThreadingActor):
    """Sends a question to a random other one after each answer."""

    def __init__(self, number: int, size: int, ended: threading.Semaphore) -> None:
        super().__init__()
        self._choices = choices(number, size // NODES, NODES)
        self._ended = ended
        self._to: list[Any] = []

    def on_receive(self, message: Any) -> None:
        """Answer a question, or ask the next one."""
        if isinstance(message, pykka.ActorRef):
            message.tell(None)
            return
        self._to = message or self._to
        other = next(self._choices, None)
        if other is None:
            self._ended.release()
        else:
            self._to[other].tell(self.actor_ref)


def crosstalk(size: int) -> int:
    """Send between all."""
    ended = threading.Semaphore(0)
    with started(*(Talker.start(number, size, ended) for number in range(NODES))) as talkers:
        for talker in talkers:
            talker.tell(talkers)
        for _ in talkers:
            ended.acquire()
    return size // NODES * NODES


class Dictionary(pykka.ThreadingActor):
    """Keeps values."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[int, int] = {}

    def on_receive(self, message: tuple[int, bool]) -> int | None:
        """Read or write."""
        key, writes = message
        if not writes:
            return self._values.get(key, 0)
        self._values[key] = key
        return None


def dictionary(size: int) -> int:
    """Read and write from several threads."""
    answered = [0] * READERS

    def read(reader: int) -> None:
        for each in lookups(reader, size):
            ref.ask(each)
            answered[reader] += 1

    with started(Dictionary.start()) as [ref]:
        run_all(*(lambda reader=reader: read(reader) for reader in range(READERS)))
    return sum(answered)


class Buffer(pykka.ThreadingActor):
    """Holds some items."""

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[int] = deque()
        self._full: deque[tuple[Any, int]] = deque()
        self._empty: deque[Any] = deque()

    def on_receive(self, message: tuple[Any, int | None]) -> None:
        """Take or give an item, or let the client wait."""
        future, item = message
        if item is None:
            if not self._items:
                self._empty.append(future)
                return
            if self._full:
                waiting, added = self._full.popleft()
                waiting.set(None)
                self._items.append(added)
            future.set(self._items.popleft())
        elif self._empty:
            self._empty.popleft().set(item)
            future.set(None)
        elif len(self._items) < ROOM:
            self._items.append(item)
            future.set(None)
        else:
            self._full.append((future, item))


def buffer(size: int) -> int:
    """Produce and consume."""
    totals: list[int] = []

    def produce() -> None:
        for _ in range(size // PRODUCERS):
            ask_later(ref, 1)

    def consume() -> None:
        totals.append(sum(ask_later(ref, None) for _ in range(size // PRODUCERS)))

    with started(Buffer.start()) as [ref]:
        run_all(*[produce, consume] * PRODUCERS)
    return sum(totals)


class Account(pykka.ThreadingActor):
    """Has a balance."""

    def __init__(self) -> None:
        super().__init__()
        self._balance = 0

    def on_receive(self, message: Any) -> int:
        """Add one, move one to another account, or only answer."""
        if message == "credit":
            self._balance += 1
        elif message != "total":
            self._balance -= 1
            message.ask("credit")
        return self._balance


def bank(size: int) -> int:
    """Move money, by calls within calls."""

    def move(teller: int) -> None:
        for giver, taker in transfers(teller, size):
            accounts[giver].ask(accounts[taker])

    with started(*(Account.start() for _ in range(ACCOUNTS))) as accounts:
        run_all(*(lambda teller=teller: move(teller) for teller in range(TELLERS)))
        return sum(account.ask("total") for account in accounts[ACCOUNTS // 2 :])


class Stage(pykka.ThreadingActor):
    """Sorts by one bit: zeros first."""

    def __init__(self, bit: int, to: Any) -> None:
        super().__init__()
        self._bit, self._to = bit, to
        self._ones: list[int] = []

    def on_receive(self, message: int | None) -> None:
        """Pass a zero on and keep a one, until the end."""
        if message is None:
            for one in [*self._ones, None]:
                self._to.tell(one)
        elif message >> self._bit & 1:
            self._ones.append(message)
        else:
            self._to.tell(message)


class Sink(pykka.ThreadingActor):
    """Notes what arrives."""

    def __init__(self, found: list[int], over: threading.Event) -> None:
        super().__init__()
        self._found, self._over = found, over

    def on_receive(self, message: int | None) -> None:
        """Note a value, or the end."""
        if message is None:
            self._over.set()
        else:
            self._found.append(message)


def radix_sort(size: int) -> int:
    """Stream values through stages, whose queues have no limit."""
    found: list[int] = []
    over = threading.Event()
    refs: list[Any] = [Sink.start(found, over)]
    for bit in reversed(range(BITS)):
        refs.append(Stage.start(bit, refs[-1]))
    with started(*refs):
        for value in values(size):
            refs[-1].tell(value)
        refs[-1].tell(None)
        over.wait()
    return in_order(found, size)


class Worker(pykka.ThreadingActor):
    """Places queens."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self._side = side

    def on_receive(self, message: tuple[Any, Board]) -> None:
        """Place one."""
        master, board = message
        master.tell(placed(board, self._side))


class Master(pykka.ThreadingActor):
    """Shares the boards among the workers."""

    def __init__(self, workers: list[Any], over: Any) -> None:
        super().__init__()
        self._workers, self._over = workers, over
        self._open, self._turn, self._full = 0, 0, 0

    def on_receive(self, message: tuple[list[Board], int]) -> None:
        """Pass the boards on."""
        boards, full = message
        self._full += full
        for board in boards:
            self._turn = (self._turn + 1) % WORKERS
            self._workers[self._turn].tell((self.actor_ref, board))
        self._open += len(boards) - 1
        if self._open < 0:
            self._over.set(self._full)


def queens(size: int) -> int:
    """Divide a search among workers."""
    over: Any = pykka.ThreadingFuture()
    with (
        started(*(Worker.start(size) for _ in range(WORKERS))) as workers,
        started(Master.start(workers, over)) as refs,
    ):
        refs[0].tell(([()], 0))
        full: int = over.get()
        return full


PROGRAMS: Final[dict[str, Callable[[int], int]]] = named(globals())
