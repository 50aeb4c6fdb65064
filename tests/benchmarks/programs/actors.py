"""The programs as actors of this package: with plain handlers, unless a handler waits for room or for an answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from attrs import frozen

from mcp_actors.kernel import Actor, ActorRef, Call, ChildSpec, Later, Message, handles, open_actor, open_supervisor

from ..actors import Ask, Echo, PlainEcho
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


async def ping_pong(size: int, kind: type[Actor] = PlainEcho) -> int:
    """Make one call after the other."""
    async with open_actor(kind(), name="echo") as echo:
        return sum([await echo.call(Ask(1)) for _ in range(size)])


@frozen
class One(Message):
    """Is counted."""


@frozen
class Total(Call[int]):
    """Asks for the number."""


class Counter(Actor[One | Total]):
    """Counts."""

    total = 0

    @handles(One)
    def count(self, _: One) -> None:
        """Count one."""
        self.total += 1

    @handles(Total)
    def answer(self, _: Total) -> int:
        """Give the number back."""
        return self.total


class TaskCounter(Counter):
    """Counts in tasks."""

    @handles(One)
    async def count(self, _: One) -> None:  # type: ignore[override]  # a plain one
        """Count one."""
        self.total += 1


async def counting(size: int, kind: type[Counter] = Counter) -> int:
    """Send messages without an answer, which wait for room."""
    async with open_actor(kind(), name="counter") as counter:
        for _ in range(size):
            await counter.tell(One())
        return await counter.call(Total())


async def many_counters(size: int) -> int:
    """Send to many in turn."""
    async with open_supervisor(*(ChildSpec(str(node), Counter) for node in range(NODES))) as top:
        counters = [top.child(str(node), Counter) for node in range(NODES)]
        for _ in range(size // NODES):
            for counter in counters:
                await counter.tell(One())
        return sum([await counter.call(Total()) for counter in counters])


class Once(Actor[One]):
    """Stops after one message."""

    def __init__(self, seen: list[int]) -> None:
        self._seen = seen

    @handles(One)
    def end(self, _: One) -> None:
        """Note it and stop."""
        self._seen.append(1)
        self.stop()


async def short_lives(size: int) -> int:
    """Start an actor for each message."""
    seen: list[int] = []
    async with open_supervisor() as top:
        for number in range(size):
            once = await top.start_child(ChildSpec(str(number), Once, args=(seen,), restart="temporary"))
            await once.tell(One())
    return len(seen)


@frozen
class Token(Message):
    """Is passed on so many times."""

    left: int


class Node(Actor[Token]):
    """Passes a token to the next one."""

    def __init__(self, number: int, over: trio.Event) -> None:
        self._next, self._over = str((number + 1) % RING), over
        self._ref: ActorRef[Token] | None = None

    @handles(Token)
    def pass_on(self, token: Token) -> None:
        """Pass it on, unless it was the last time."""
        if not token.left:
            self._over.set()
            return
        if self._ref is None:
            assert self.supervisor is not None
            self._ref = self.supervisor.child(self._next, Node)
        self._ref.tell_nowait(Token(token.left - 1))


async def ring(size: int) -> int:
    """Pass a token round."""
    over = trio.Event()
    async with open_supervisor(*(ChildSpec(str(node), Node, args=(node, over)) for node in range(RING))) as top:
        await top.child("0", Node).tell(Token(size))
        await over.wait()
    return size


@frozen
class Meet(Call[int]):
    """Waits for another creature, and gets its color; -1 if the mall is closed."""

    color: int


class Mall(Actor[Meet]):
    """Lets two creatures meet."""

    def __init__(self, meetings: int) -> None:
        self._left = meetings
        self._waits: Later[int] | None = None
        self._color = 0

    @handles(Meet)
    def meet(self, message: Meet) -> int | Later[int]:
        """Let the first one of two wait."""
        if not self._left:
            return -1
        first, self._waits = self._waits, None
        if first is None:
            self._waits, self._color = self.defer(message, keep_slot=False), message.color
            return self._waits
        self._left -= 1
        first.reply(message.color)
        return self._color


async def meetings(size: int) -> int:
    """Let creatures meet, whose answers are deferred."""
    met = 0

    async def live(color: int) -> None:
        nonlocal met
        while (other := await mall.call(Meet(color))) >= 0:
            met += 1
            color = third(color, other)

    async with open_actor(Mall(size), name="mall") as mall, trio.open_nursery() as nursery:
        for creature in range(CREATURES):
            nursery.start_soon(live, creature % 3)
    return met


@frozen
class Begin(Message):
    """Begins to send to these."""

    to: list[ActorRef[Begin | Question | Reply]]


@frozen
class Question(Message):
    """Is answered by a message."""

    sender: ActorRef[Begin | Question | Reply]


@frozen
class Reply(Message):
    """Answers a question."""


class Talker(Actor[Begin | Question | Reply]):
    """Sends a question to a random other one after each answer."""

    def __init__(self, number: int, size: int, ended: Callable[[], None]) -> None:
        self._choices = choices(number, size // NODES, NODES)
        self._ended = ended
        self._to: list[ActorRef[Begin | Question | Reply]] = []

    @handles(Begin)
    def begin(self, message: Begin) -> None:
        """Ask the first one."""
        self._to = message.to
        self._ask()

    @handles(Question)
    def answer(self, message: Question) -> None:
        """Answer."""
        message.sender.tell_nowait(Reply())

    @handles(Reply)
    def go_on(self, _: Reply) -> None:
        """Ask the next one."""
        self._ask()

    def _ask(self) -> None:
        other = next(self._choices, None)
        if other is None:
            self._ended()
        else:
            self._to[other].tell_nowait(Question(self.ref))


async def crosstalk(size: int) -> int:
    """Send between all."""
    over, left = trio.Event(), NODES

    def ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            over.set()

    specs = [ChildSpec(str(node), Talker, args=(node, size, ended)) for node in range(NODES)]
    async with open_supervisor(*specs) as top:
        talkers = [top.child(spec.id, Talker) for spec in specs]
        for talker in talkers:
            await talker.tell(Begin(talkers))
        await over.wait()
    return size // NODES * NODES


@frozen
class Read(Call[int]):
    """Reads a key."""

    key: int


@frozen
class Write(Call[None]):
    """Writes a key."""

    key: int


class Dictionary(Actor[Read | Write]):
    """Keeps values."""

    def __init__(self) -> None:
        self._values: dict[int, int] = {}

    @handles(Read)
    def read(self, message: Read) -> int:
        """Return a value."""
        return self._values.get(message.key, 0)

    @handles(Write)
    def write(self, message: Write) -> None:
        """Keep a value."""
        self._values[message.key] = message.key


async def dictionary(size: int) -> int:
    """Read and write from several tasks."""
    answered = 0

    async def read(reader: int) -> None:
        nonlocal answered
        for key, writes in lookups(reader, size):
            if writes:
                await ref.call(Write(key))
            else:
                await ref.call(Read(key))
            answered += 1

    async with open_actor(Dictionary(), name="dictionary") as ref, trio.open_nursery() as nursery:
        for reader in range(READERS):
            nursery.start_soon(read, reader)
    return answered


@frozen
class Put(Call[None]):
    """Waits until there is room for an item."""

    item: int


@frozen
class Take(Call[int]):
    """Waits for an item."""


class Buffer(Actor[Put | Take]):
    """Holds some items."""

    def __init__(self) -> None:
        self._items: deque[int] = deque()
        self._full: deque[tuple[Later[None], int]] = deque()
        self._empty: deque[Later[int]] = deque()

    @handles(Put)
    def put(self, message: Put) -> Later[None] | None:
        """Take an item, or let its producer wait."""
        if self._empty:
            self._empty.popleft().reply(message.item)
        elif len(self._items) < ROOM:
            self._items.append(message.item)
        else:
            later = self.defer(message, keep_slot=False)
            self._full.append((later, message.item))
            return later
        return None

    @handles(Take)
    def give(self, message: Take) -> int | Later[int]:
        """Give the oldest item, or let the consumer wait."""
        if not self._items:
            later = self.defer(message, keep_slot=False)
            self._empty.append(later)
            return later
        if self._full:
            waiting, item = self._full.popleft()
            waiting.reply(None)
            self._items.append(item)
        return self._items.popleft()


async def buffer(size: int) -> int:
    """Produce and consume."""
    total = 0

    async def produce() -> None:
        for _ in range(size // PRODUCERS):
            await ref.call(Put(1))

    async def consume() -> None:
        nonlocal total
        for _ in range(size // PRODUCERS):
            item = await ref.call(Take())
            total += item

    async with open_actor(Buffer(), name="buffer") as ref, trio.open_nursery() as nursery:
        for _ in range(PRODUCERS):
            nursery.start_soon(produce)
            nursery.start_soon(consume)
    return total


@frozen
class Credit(Call[None]):
    """Adds one."""


@frozen
class Transfer(Call[None]):
    """Moves one to another account."""

    to: ActorRef[Credit | Transfer | Total]


class Account(Actor[Credit | Transfer | Total]):
    """Has a balance."""

    balance = 0

    @handles(Credit)
    def credit(self, _: Credit) -> None:
        """Add one."""
        self.balance += 1

    @handles(Transfer)
    async def transfer(self, message: Transfer) -> None:
        """Wait until the other account has it."""
        self.balance -= 1
        await message.to.call(Credit())

    @handles(Total)
    def answer(self, _: Total) -> int:
        """Return the balance."""
        return self.balance


async def bank(size: int) -> int:
    """Move money, by calls within calls."""

    async def move(teller: int) -> None:
        for giver, taker in transfers(teller, size):
            await accounts[giver].call(Transfer(accounts[taker]))

    async with open_supervisor(*(ChildSpec(str(number), Account) for number in range(ACCOUNTS))) as top:
        accounts = [top.child(str(number), Account) for number in range(ACCOUNTS)]
        async with trio.open_nursery() as nursery:
            for teller in range(TELLERS):
                nursery.start_soon(move, teller)
        return sum([await account.call(Total()) for account in accounts[ACCOUNTS // 2 :]])


@frozen
class Value(Message):
    """A value on its way through the stages."""

    value: int


@frozen
class End(Message):
    """Comes after the last value."""


class Stage(Actor[Value | End]):
    """Sorts by one bit: zeros first."""

    def __init__(self, bit: int, to: ActorRef[Value | End]) -> None:
        self._bit, self._to = bit, to
        self._ones: list[Value] = []

    @handles(Value)
    async def sort(self, message: Value) -> None:
        """Pass a zero on and keep a one."""
        if message.value >> self._bit & 1:
            self._ones.append(message)
        else:
            await self._to.tell(message)

    @handles(End)
    async def end(self, message: End) -> None:
        """Pass the ones on."""
        for one in self._ones:
            await self._to.tell(one)
        await self._to.tell(message)


class Sink(Actor[Value | End]):
    """Notes what arrives."""

    def __init__(self, found: list[int], over: trio.Event) -> None:
        self._values, self._over = found, over

    @handles(Value)
    def note(self, message: Value) -> None:
        """Note a value."""
        self._values.append(message.value)

    @handles(End)
    def end(self, _: End) -> None:
        """Say that it is over."""
        self._over.set()


async def radix_sort(size: int) -> int:
    """Stream values through stages, each of which waits for room in the next."""
    found: list[int] = []
    over = trio.Event()
    async with open_supervisor(ChildSpec("sink", Sink, args=(found, over))) as top:
        first: ActorRef[Value | End] = top.child("sink", Sink)
        for bit in reversed(range(BITS)):
            first = await top.start_child(ChildSpec(f"bit-{bit}", Stage, args=(bit, first)))
        for value in values(size):
            await first.tell(Value(value))
        await first.tell(End())
        await over.wait()
    return in_order(found, size)


@frozen
class Extend(Message):
    """Asks for the boards with one more queen."""

    board: Board


@frozen
class Found(Message):
    """Boards with one more queen, and how many of them are full."""

    boards: list[Board]
    full: int


class Worker(Actor[Extend]):
    """Places queens."""

    def __init__(self, side: int, to: ActorRef[Found]) -> None:
        self._side, self._to = side, to

    @handles(Extend)
    async def extend(self, message: Extend) -> None:
        """Place one."""
        await self._to.tell(Found(*placed(message.board, self._side)))


class Master(Actor[Found]):
    """Shares the boards among the workers."""

    def __init__(self, over: trio.Event) -> None:
        self.full = 0
        self.workers: list[ActorRef[Extend]] = []
        self._open, self._turn, self._over = 1, 0, over

    @handles(Found)
    async def found(self, message: Found) -> None:
        """Pass the boards on."""
        self.full += message.full
        self._open += len(message.boards) - 1
        for board in message.boards:
            self._turn = (self._turn + 1) % WORKERS
            await self.workers[self._turn].tell(Extend(board))
        if not self._open:
            self._over.set()


async def queens(size: int) -> int:
    """Divide a search among workers."""
    over = trio.Event()
    master = Master(over)
    async with open_supervisor(ChildSpec("master", lambda: master, mailbox_size=100_000)) as top:
        ref = top.child("master", Master)
        for worker in range(WORKERS):
            spec = ChildSpec(f"worker-{worker}", Worker, args=(size, ref), mailbox_size=100_000)
            master.workers.append(await top.start_child(spec))
        await master.workers[0].tell(Extend(()))
        await over.wait()
    return master.full


async def ping_pong_tasks(size: int) -> int:
    """Make one call after the other to an ``async def``."""
    return await ping_pong(size, Echo)


async def counting_tasks(size: int) -> int:
    """Send messages without an answer to an ``async def``."""
    return await counting(size, TaskCounter)


PROGRAMS: Final[dict[str, Callable[[int], Awaitable[int]]]] = named(globals())

IN_TASKS: Final[dict[str, Callable[[int], Awaitable[int]]]] = {"ping pong": ping_pong_tasks, "counting": counting_tasks}
"""The same with an ``async def`` where a plain handler would do."""
