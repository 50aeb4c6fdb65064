"""A few random programs do the same on Erlang/OTP; ``nox -s otp`` runs thousands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ...programs import SEED
from .compare import Difference, compare, orders, smaller_programs
from .erlang import missing, open_otp
from .generate import draw_program
from .terms import parse_term, render_term

NUMBER = 60


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_random_programs_do_what_they_do_on_otp(record_property: Callable[[str, object], None]) -> None:
    record_property("note", f"{NUMBER} programs on Erlang/OTP, PROGRAMS_SEED={SEED}")
    with open_otp() as otp:
        found = compare(otp, [draw_program(SEED, number) for number in range(NUMBER)])
    assert not found, found[0]


def test_a_program_is_drawn_again_from_its_seed_and_number() -> None:
    program = draw_program(1, 2)
    assert draw_program(1, 2) == program != draw_program(1, 3)
    assert parse_term(render_term(program)) == program


def test_ends_in_one_step_are_compared_with_all_their_orders() -> None:
    kills = [("kill", "a"), ("kill", "b")]
    assert orders(({}, [], ["look", ("at_once", kills)])) == [
        ({}, [], ["look", ("together", kills)]),
        ({}, [], ["look", ("together", kills[::-1])]),
    ]


def test_smaller_programs_have_one_thing_less() -> None:
    program = parse_term("{#{intensity=>2},[#{id=>a,init=>[fail]}],[{during,{kill,a},[look]}]}")
    assert [render_term(each) for each in smaller_programs(program)] == [
        "{#{intensity=>2},[#{id=>a,init=>[fail]}],[]}",
        "{#{intensity=>2},[#{id=>a,init=>[fail]}],[{kill,a}]}",
        "{#{intensity=>2},[#{id=>a,init=>[fail]}],[{during,{kill,a},[]}]}",
        "{#{intensity=>2},[],[{during,{kill,a},[look]}]}",
        "{#{intensity=>2},[#{id=>a,init=>[]}],[{during,{kill,a},[look]}]}",
        "{#{},[#{id=>a,init=>[fail]}],[{during,{kill,a},[look]}]}",
    ]


def test_a_difference_shows_both_sides() -> None:
    text = str(Difference(({}, [], []), ["sup_started", ("started", "a")], ["sup_started"]))
    lines = [line.split() for line in text.splitlines()]
    assert lines == [["{#{},[],[]}"], [], ["Erlang/OTP", "mcp_actors"], ["sup_started"], ["!", "{started,a}"]]
