"""The scenarios: one function for each fault of ``faults.toml``, named like it."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Final

import trio

from mcp_actors.testing import (
    Ask,
    Crash,
    Duplicate,
    Fault,
    Flood,
    Garble,
    Gate,
    Hang,
    HttpError,
    Noise,
    ScriptedServer,
)

from .engine import ENDED, LIMIT, Cell, Judged, Outcome, Verdict, wait_until

SET: Final = 2.0
"""The seconds that a program sets as the timeout of a call, where a scenario needs one."""

LOST: Final = {"nothing": "hangs", "ended": ENDED}
"""Verdicts after which nothing else can be observed."""

STUCK: Final = 33.0
"""The seconds within which a start that hangs should have failed; some clients wait for 30 s."""

LARGE: Final = 10_000_000
NAMED: Final = r"timed?.?out|timeout|expired"

SCENARIOS: Final[dict[str, Callable[[Cell], Verdict]]] = {}


def scenario(play: Callable[[Cell], Verdict]) -> Callable[[Cell], Verdict]:
    """Register a scenario under its name."""
    SCENARIOS[play.__name__.replace("_", "-")] = play
    return play


def judge_error(outcome: Outcome, named: str, within: float) -> Verdict:
    """Judge an outcome that should be an error which names its cause."""
    if outcome.kind == "ok":
        return Verdict("works", outcome.seconds)
    if outcome.kind in LOST:
        return Verdict(LOST[outcome.kind], outcome.seconds, outcome.text)
    if outcome.seconds > within:
        return Verdict("late error", outcome.seconds, outcome.text)
    word = "clear error" if re.search(named, outcome.text, re.IGNORECASE) else "unclear error"
    return Verdict(word, outcome.seconds, outcome.text)


def works(outcome: Outcome, expected: str = "hello") -> Verdict:
    """Judge an outcome that should be a result."""
    if outcome.kind == "ok":
        word = "works" if outcome.text == expected else "wrong answer"
        return Verdict(word, outcome.seconds, "" if word == "works" else outcome.text[:200])
    return Verdict(LOST.get(outcome.kind, "fails"), outcome.seconds, outcome.text)


def then_recovers(cell: Cell, verdict: Verdict) -> Verdict:
    """Return a verdict, if the client works afterwards."""
    if verdict.word in LOST.values():
        return verdict
    later = cell.recovers()
    return verdict if later.word == "recovers" else later


def called(server: ScriptedServer, text: str) -> int:
    """Return how often a call was carried out."""
    return sum(call.arguments.get("text") == text for call in server.calls)


# --- starting --------------------------------------------------------------------------------------------------------


def start_works(cell: Cell, *habits: str) -> Verdict:
    """Judge a start that is slow or odd, and should succeed."""
    cell.add("stdio", habits)
    cell.start()
    began = monotonic()
    outcome = cell.client.ask("open")
    if outcome.kind == "ok":
        outcome = cell.call(limit=max(1.0, LIMIT - outcome.seconds))
    verdict = works(outcome)
    return Verdict(verdict.word, monotonic() - began, verdict.detail)


def start_fails(cell: Cell, named: str, within: float) -> Verdict:
    """Judge a start that cannot succeed: its error, or that of the first call, where a client connects by then."""
    cell.start()
    began = monotonic()
    outcome = cell.client.ask("open", within + 2)
    if outcome.kind == "ok":
        outcome = cell.call(limit=max(1.0, within + 2 - outcome.seconds))
    return judge_error(Outcome(outcome.kind, outcome.text, monotonic() - began), named, within)


@scenario
def slow_start(cell: Cell) -> Verdict:
    return start_works(cell, "sleep")


@scenario
def banner(cell: Cell) -> Verdict:
    return start_works(cell, "banner")


@scenario
def chatty_stderr(cell: Cell) -> Verdict:
    return start_works(cell, "chatty")


@scenario
def never_starts(cell: Cell) -> Verdict:
    cell.add("stdio", ["never"])
    return start_fails(cell, NAMED, STUCK)


@scenario
def http_never_answers(cell: Cell) -> Verdict:
    cell.add("http").inject(Hang(), "connect", times=math.inf)
    return start_fails(cell, NAMED, STUCK)


@scenario
def no_such_command(cell: Cell) -> Verdict:
    cell.add_command("weather-server-that-is-not-installed")
    return start_fails(cell, "weather-server-that-is-not-installed", 10)


@scenario
def exits_at_start(cell: Cell) -> Verdict:
    cell.add("stdio", ["exit"])
    verdict = start_fails(cell, "WEATHER_API_KEY", 10)
    if verdict.word == "unclear error" and "WEATHER_API_KEY" in cell.printed():
        return Verdict("error, reason printed", verdict.seconds, verdict.detail)
    return verdict


@scenario
def http_refused_at_start(cell: Cell) -> Verdict:
    cell.add("http").go_down()
    return start_fails(cell, r"refused|connect|reach", 10)


def one_of_two(cell: Cell, habit: str) -> Verdict:
    """Judge whether a server can be used while the one before it does not start."""
    bad = cell.add("stdio", [habit], name="b")
    bad.add_tool("beta", notify=False)
    bad.remove_tool("echo")
    cell.add("stdio")
    cell.start()
    began = monotonic()
    outcome = cell.client.ask("open", STUCK)
    if outcome.kind == "ok":
        outcome = cell.call(limit=max(1.0, STUCK - outcome.seconds))
    verdict = works(outcome)
    seconds = monotonic() - began
    return Verdict("late" if verdict.word == "works" and seconds > 15 else verdict.word, seconds, verdict.detail)


@scenario
def one_of_two_fails(cell: Cell) -> Verdict:
    return one_of_two(cell, "exit")


@scenario
def one_of_two_hangs(cell: Cell) -> Verdict:
    return one_of_two(cell, "never")


# --- losing the server -----------------------------------------------------------------------------------------------


@scenario
def dies_idle(cell: Cell) -> Verdict:
    server = cell.add("stdio")
    cell.connect()
    server.crash()
    sleep(1)
    return cell.recovers()


@scenario
def dies_in_a_call(cell: Cell) -> Verdict:
    server = cell.add("stdio")
    cell.connect()
    server.inject(Crash())
    outcome = cell.call(text="once", limit=10)
    sleep(0.5)
    if outcome.kind in LOST:
        return Verdict(LOST[outcome.kind], outcome.seconds, outcome.text)
    if called(server, "once") > 1:
        return Verdict("called twice", outcome.seconds, outcome.text)
    later = cell.recovers()
    return Verdict(later.word, outcome.seconds + (later.seconds or 0), outcome.text)


@scenario
def freezes_idle(cell: Cell) -> Verdict:
    server = cell.add("stdio", timeout=SET)
    cell.connect()
    server.freeze()
    verdict = judge_error(cell.call(limit=TIMED), NAMED, TIMED)
    server.thaw()
    return then_recovers(cell, verdict)


@scenario
def freezes_in_a_call(cell: Cell) -> Verdict:
    server = cell.add("stdio", timeout=SET)
    gate = Gate()
    cell.connect()
    server.inject(gate)
    number = cell.call_soon()
    wait_until(lambda: len(server.calls) == 2, 5)
    server.freeze()
    verdict = judge_error(cell.client.wait(number, TIMED), NAMED, TIMED)
    gate.open()
    server.thaw()
    return then_recovers(cell, verdict)


@scenario
def full_pipe(cell: Cell) -> Verdict:
    server = cell.add("stdio", timeout=SET)
    cell.connect()
    server.freeze()
    verdict = judge_error(cell.call(text="x" * 1_000_000, limit=TIMED), NAMED, TIMED)
    server.thaw()
    return then_recovers(cell, verdict)


# --- HTTP ------------------------------------------------------------------------------------------------------------


@scenario
def forgets_session(cell: Cell) -> Verdict:
    server = cell.add("http", era="legacy")
    cell.connect()
    server.forget_sessions()
    return cell.recovers()


@scenario
def http_restarts(cell: Cell) -> Verdict:
    server = cell.add("http", era="legacy")
    cell.connect()
    server.crash()
    sleep(1)
    return cell.recovers()


@scenario
def http_away(cell: Cell) -> Verdict:
    server = cell.add("http", era="legacy")
    cell.connect()
    server.go_down()
    cell.call(limit=3)
    sleep(1)
    server.come_up()
    return cell.recovers()


def status(cell: Cell, fault: HttpError, times: float, named: str, at_least: float = 0.0) -> Verdict:
    """Judge a call that is answered with an HTTP status for a while."""
    server = cell.add("http")
    cell.connect()
    server.inject(fault, times=times)
    outcome = cell.call(limit=10)
    server.heal()
    if outcome.kind == "ok":
        return Verdict("recovers" if outcome.seconds >= at_least else "too early", outcome.seconds)
    return then_recovers(cell, judge_error(outcome, named, 10))


@scenario
def too_many_requests(cell: Cell) -> Verdict:
    return status(cell, HttpError(429, {"Retry-After": "1"}), 1, r"429|too many|rate", 0.9)


@scenario
def unavailable(cell: Cell) -> Verdict:
    return status(cell, HttpError(503), 2, r"503|unavailable")


@scenario
def unauthorized(cell: Cell) -> Verdict:
    return status(cell, HttpError(401), math.inf, r"401|unauthori[sz]ed|credential|token")


# --- answers ---------------------------------------------------------------------------------------------------------

TIMED: Final = SET + 6.0
"""Seconds within which a call with a timeout should have ended."""


def answered(cell: Cell, fault: Fault, **options: Any) -> Verdict:
    """Judge a call whose answer is odd, but right."""
    server = cell.add("stdio", **options)
    cell.connect()
    server.inject(fault)
    return then_recovers(cell, works(cell.call(text="right", limit=20), "right"))


@scenario
def never_answered(cell: Cell) -> Verdict:
    server = cell.add("stdio", timeout=SET)
    cell.connect()
    server.inject(Hang())
    return then_recovers(cell, judge_error(cell.call(limit=TIMED), NAMED, TIMED))


@scenario
def other_order(cell: Cell) -> Verdict:
    server = cell.add("stdio")
    gate = Gate()
    cell.connect()
    server.inject(gate)
    first = cell.call_soon(text="first")
    wait_until(lambda: called(server, "first"), 5)
    second = works(cell.call(text="second", limit=10), "second")
    gate.open()
    return second if second.word != "works" else works(cell.client.wait(first, 10), "first")


@scenario
def doubled_answer(cell: Cell) -> Verdict:
    return answered(cell, Duplicate())


@scenario
def unknown_id(cell: Cell) -> Verdict:
    return answered(cell, Noise(b'{"jsonrpc": "2.0", "id": 123456, "result": {"content": []}}'))


@scenario
def print_in_a_tool(cell: Cell) -> Verdict:
    return answered(cell, Noise(b"fetching the weather ..."))


@scenario
def unasked_sampling(cell: Cell) -> Verdict:
    params = b'{"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 9}'
    return answered(
        cell, Noise(b'{"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": %s}' % params)
    )


@scenario
def flood(cell: Cell) -> Verdict:
    return answered(cell, Flood(5_000))


@scenario
def huge_answer(cell: Cell) -> Verdict:
    server = cell.add("stdio")
    server.add_tool("fill", "x" * LARGE, notify=False)
    cell.connect()
    outcome = cell.call("fill", limit=20)
    short = Outcome(outcome.kind, str(len(outcome.text)) if outcome.kind == "ok" else outcome.text, outcome.seconds)
    return then_recovers(cell, works(short, str(LARGE)))


@scenario
def broken_answer(cell: Cell) -> Verdict:
    server = cell.add("stdio", timeout=SET)
    cell.connect()
    server.inject(Garble())
    return then_recovers(cell, judge_error(cell.call(limit=TIMED), r"json|parse|invalid|not a message|" + NAMED, TIMED))


@scenario
def breaks_its_schema(cell: Cell) -> Verdict:
    cell.add_odd("echo", "forecast")
    cell.connect()
    cell.client.ask("list", server="a")
    outcome = cell.call("forecast", limit=10)
    if outcome.kind == "ok":
        return then_recovers(cell, Verdict("passed on", outcome.seconds, outcome.text))
    return then_recovers(cell, judge_error(outcome, r"schema|structured|not of type|output", 10))


@scenario
def progress(cell: Cell) -> Verdict:
    cell.add_odd("echo", "count")
    cell.connect()
    outcome = cell.client.ask("follow", 10, server="a", tool="count")
    if outcome.kind == "ok":
        seen = [float(number) for number in json.loads(outcome.text)]
        word = "reported" if seen == [1, 2, 3] else "not reported"
        return then_recovers(cell, Verdict(word, outcome.seconds, "" if word == "reported" else str(seen)))
    return then_recovers(cell, works(outcome))


@scenario
def two_of_one_name(cell: Cell) -> Verdict:
    cell.add_odd("echo", "search", "search")
    cell.start()
    outcome = cell.client.ask("open", 10)
    if outcome.kind == "ok":
        outcome = cell.call(limit=10)
    if outcome.kind != "ok":
        return judge_error(outcome, "search", 10)
    listed = cell.client.ask("list", 10, server="a")
    if listed.kind != "ok":
        return judge_error(listed, "search", 10)
    return Verdict("listed twice" if listed.text.count("'search'") > 1 else "works", outcome.seconds + listed.seconds)


@scenario
def asks_back(cell: Cell) -> Verdict:
    server = cell.add("stdio")
    cell.connect()
    server.inject(Ask())
    outcome = cell.call(limit=10)
    if outcome.kind == "ok":
        return Verdict("works", outcome.seconds)
    return then_recovers(cell, judge_error(outcome, r"elicit|input.?required|not supported|question", 10))


@scenario
def list_change(cell: Cell) -> Verdict:
    server = cell.add("stdio")
    cell.connect()
    cell.client.ask("list", server="a")
    server.add_tool("forecast")
    began = monotonic()
    while monotonic() - began < 10:
        outcome = cell.client.ask("list", server="a", limit=10)
        if outcome.kind == "ok" and "forecast" in outcome.text:
            return Verdict("seen", monotonic() - began)
        sleep(0.25)
    return Verdict("not seen")


@scenario
def cancelled_call(cell: Cell) -> Verdict:
    notified = threading.Event()

    async def work(_: object) -> str:
        try:
            await trio.sleep(LIMIT)
        except trio.Cancelled:
            notified.set()
            raise
        return "done"

    server = cell.add("stdio")
    server.add_tool("work", work, notify=False)
    cell.connect()
    number = cell.call_soon("work")
    wait_until(lambda: len(server.calls) == 2, 5)
    cell.client.send("cancel", of=number)
    outcome = cell.client.wait(number, 10)
    if outcome.kind in LOST:
        return Verdict(LOST[outcome.kind], outcome.seconds)
    heard = wait_until(notified.is_set, 5)
    word = "server is notified" if heard is not None else "server is not notified"
    return then_recovers(cell, Verdict(word, outcome.seconds + (heard or 0)))


# --- ending ----------------------------------------------------------------------------------------------------------


def nothing_left(cell: Cell, within: float) -> Verdict:
    """Judge whether the program and the processes of its servers end."""
    process = cell.client.process
    ended = wait_until(lambda: process.poll() is not None, within)
    if ended is None:
        return Verdict("program goes on", within)
    gone = wait_until(lambda: not cell.left(), max(1.0, within - ended))
    if gone is None:
        return Verdict("leaves a process", within)
    return Verdict("nothing left", ended + gone)


def closed(cell: Cell, *habits: str) -> Verdict:
    """Judge the end of a program that closes its client."""
    cell.add("stdio", habits)
    cell.connect()
    cell.client.send("close")
    return nothing_left(cell, 20)


@scenario
def close_with_deaf_server(cell: Cell) -> Verdict:
    return closed(cell, "ignore")


@scenario
def close_with_stubborn_server(cell: Cell) -> Verdict:
    return closed(cell, "stubborn")


@scenario
def close_with_grandchild(cell: Cell) -> Verdict:
    return closed(cell, "child")


@scenario
def close_in_a_call(cell: Cell) -> Verdict:
    server = cell.add("stdio")
    cell.connect()
    server.inject(Hang())
    number = cell.call_soon()
    wait_until(lambda: len(server.calls) == 2, 5)
    cell.client.send("close")
    outcome = cell.client.wait(number, 35)
    if outcome.kind == "nothing":
        return Verdict("call hangs", outcome.seconds)
    verdict = nothing_left(cell, 15)
    return Verdict(verdict.word, outcome.seconds + (verdict.seconds or 0), outcome.text)


def interrupted(cell: Cell, *, in_a_call: bool) -> Verdict:
    """Judge Ctrl-C, which a terminal sends to the whole group of the program."""
    server = cell.add("stdio")
    cell.connect()
    if in_a_call:
        server.inject(Hang())
        cell.call_soon()
        wait_until(lambda: len(server.calls) == 2, 5)
    sleep(0.5)
    os.killpg(cell.client.process.pid, signal.SIGINT)
    return nothing_left(cell, 15)


@scenario
def interrupted_idle(cell: Cell) -> Verdict:
    return interrupted(cell, in_a_call=False)


@scenario
def interrupted_in_a_call(cell: Cell) -> Verdict:
    return interrupted(cell, in_a_call=True)


@scenario
def program_killed(cell: Cell) -> Verdict:
    cell.add("stdio")
    cell.connect()
    cell.client.process.kill()
    return nothing_left(cell, 10)


@scenario
def program_killed_with_deaf_server(cell: Cell) -> Verdict:
    cell.add("stdio", ["ignore"])
    cell.connect()
    cell.client.process.kill()
    return nothing_left(cell, 10)


def play(name: str, python: str, driver: str) -> Verdict:
    """Play a scenario to a client."""
    with Cell(python, driver) as cell:
        try:
            return SCENARIOS[name](cell)
        except Judged as judged:
            return judged.verdict
