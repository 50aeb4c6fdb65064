"""Our supervisor produces the event sequences that Erlang/OTP's produced."""

from __future__ import annotations

from pathlib import Path

import pytest

from .otp import Scenario, parse_scenarios, parse_term, replay

HERE = Path(__file__).parent
RECORDED = parse_scenarios((HERE / "otp_traces.txt").read_text())
EXPECTED = parse_scenarios((HERE / "otp_expected.txt").read_text())


@pytest.mark.parametrize("scenario", RECORDED + EXPECTED, ids=lambda scenario: scenario.name)
def test_events_are_those_of_otp(scenario: Scenario) -> None:
    assert replay(scenario) == scenario.events


def test_every_scenario_is_read() -> None:
    assert (len(RECORDED), len(EXPECTED)) == (20, 54)
    assert all(scenario.events for scenario in RECORDED + EXPECTED)


def test_a_term_is_parsed() -> None:
    text = '{"1, {x}", {#{a=>[1,-2],b=>#{}},[#{id=>a}],[stop_sup,{exit,a,{shutdown,x}},[]]}}.'
    assert parse_term(text) == (
        "1, {x}",
        ({"a": [1, -2], "b": {}}, [{"id": "a"}], ["stop_sup", ("exit", "a", ("shutdown", "x")), []]),
    )
