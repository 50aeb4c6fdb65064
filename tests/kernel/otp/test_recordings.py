"""The supervisor produces the event sequences that Erlang/OTP's produced."""

from __future__ import annotations

from pathlib import Path

import pytest

from .ours import run_program
from .terms import Recording, parse_recordings, parse_term, render_term

RECORDINGS = [
    recording
    for file in sorted(Path(__file__).parent.glob("*.txt"))
    for recording in parse_recordings(file.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_events_are_those_of_otp(recording: Recording) -> None:
    assert run_program(recording.program) == recording.events


def test_every_recording_is_read() -> None:
    assert len(RECORDINGS) == 20 + 54 + 17 + 37
    assert all(recording.events for recording in RECORDINGS)


def test_term_is_parsed_and_rendered() -> None:
    term = ({"a": [1, -2], "b": {}}, [{"id": "a"}], ["stop_sup", ("exit", "a", ("shutdown", "x")), []])
    assert parse_term(render_term(term)) == term
    assert parse_term('{"1, {x}", []}.') == ("1, {x}", [])
