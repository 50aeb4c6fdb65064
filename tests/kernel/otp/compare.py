"""Run programs on both supervisors, compare the recordings, and make a program that differs as small as possible."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, permutations, zip_longest
from typing import Any, Final

from attrs import frozen

from .erlang import PATIENCE, Otp
from .ours import run_program
from .terms import Program, Term, render_term

WIDTH: Final = 70


@frozen
class Difference:
    """A program that did different things.

    Attributes:
        program: the program.
        otp: what it did on Erlang/OTP.
        ours: what it did here.
    """

    program: Program
    otp: list[Term]
    ours: list[Term]

    def __str__(self) -> str:
        lines = [render_term(self.program), "", f"    {'Erlang/OTP':{WIDTH}} mcp_actors"]
        for theirs, ours in zip_longest(map(render_term, self.otp), map(render_term, self.ours), fillvalue=""):
            same = theirs == ours
            lines.append(f"{'    ' if same else '  ! '}{theirs:{WIDTH}} {'' if same else ours}".rstrip())
        return "\n".join(lines)


def compare(otp: Otp, programs: Sequence[Program]) -> list[Difference]:
    """Run programs on both, at the same time, and return the differences."""
    begun = [[otp.submit(each) for each in orders(program)] for program in programs]
    found = []
    with _quiet():
        for program, futures in zip(programs, begun, strict=True):
            ours = _run(program)
            allowed = [future.result(PATIENCE) for future in futures]
            if _without_order(program, ours) not in [_without_order(program, each) for each in allowed]:
                found.append(Difference(program, allowed[0], ours))
    return found


def orders(program: Program) -> list[Program]:
    """Return the programs for OTP of which a program for ours may do any.

    With ``at_once`` the order is ours: Trio runs the tasks that are woken in one step in a random order.
    """
    flags, specs, actions = program
    for place, action in enumerate(actions):
        if action[0] == "at_once":
            return [
                (flags, specs, [*actions[:place], ("together", list(order)), *actions[place + 1 :]])
                for order in permutations(action[1])
            ]
    return [program]


def _without_order(program: Program, events: list[Term]) -> list[Term]:
    """Return the events, with the ends that are ``at_once`` in one order: each ends before any is noticed."""
    ids = {death[1] for action in program[2] if action[0] == "at_once" for death in action[1]}
    result: list[Term] = []
    for is_end, group in groupby(events, lambda event: event[0] in ("killed", "died") and event[1] in ids):
        ends = list(group)
        result += sorted(ends, key=str) if is_end else ends
    return result


def _run(program: Program) -> list[Term]:
    try:
        return run_program(program)
    except Exception as exc:
        return ["raised", repr(exc)]


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


# --- smaller programs -----------------------------------------------------------------------------------------------


def shrink(otp: Otp, found: Difference) -> Difference:
    """Return the difference of the smallest program that is found to differ."""
    while smaller := next(
        (each for program in smaller_programs(found.program) for each in compare(otp, [program])), None
    ):
        found = smaller
    return found


def smaller_programs(program: Program) -> Iterator[Program]:
    """Yield programs with one thing less, the largest things first."""
    flags, specs, actions = program
    yield from ((flags, specs, fewer) for fewer in _smaller_list(actions, _smaller_action))
    yield from ((flags, fewer, actions) for fewer in _smaller_list(specs, _smaller_map))
    yield from ((fewer, specs, actions) for fewer in _smaller_map(flags))


def _smaller_list(items: list[Term], smaller: Any) -> Iterator[list[Term]]:
    for place, item in enumerate(items):
        before, after = items[:place], items[place + 1 :]
        yield [*before, *after]
        yield from ([*before, less, *after] for less in smaller(item))


def _smaller_action(action: Term) -> Iterable[Term]:
    match action:
        case ("together", actions):
            yield from actions
            yield from (("together", fewer) for fewer in _smaller_list(actions, _smaller_action))
        case ("during", trigger, actions):
            yield trigger
            yield from (("during", trigger, fewer) for fewer in _smaller_list(actions, _smaller_action))
        case ("on", home, call):
            yield from (("on", home, less) for less in _smaller_action(call))
        case ("start_child", spec):
            yield from (("start_child", less) for less in _smaller_map(spec))


def _smaller_map(spec: dict[str, Term]) -> Iterator[dict[str, Term]]:
    """Yield flags or specs without one key, or with a smaller value."""
    for key, given in spec.items():
        if key in ("id", "type"):
            continue
        if key in ("children", "init"):
            yield from (
                {**spec, key: fewer} for fewer in _smaller_list(given, _smaller_map if key == "children" else _none)
            )
        elif key == "flags":
            yield from ({**spec, key: less} for less in _smaller_map(given))
        # Without these, others would be invalid, or nothing would end.
        elif not (key == "restart" and "significant" in spec) and key not in ("auto_shutdown", "shutdown"):
            yield {other: spec[other] for other in spec if other != key}


def _none(_: Term) -> tuple[()]:
    return ()
