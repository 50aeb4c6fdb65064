"""The supervisor produces the event sequences that Erlang/OTP's produced."""

from __future__ import annotations

from pathlib import Path

import pytest

from .ours import run_program
from .terms import Recording, parse_recordings, parse_term, render_term

HERE = Path(__file__).parent


def read(*files: Path) -> list[Recording]:
    return [recording for file in files for recording in parse_recordings(file.read_text(encoding="utf-8"))]


DIFFERENCES = HERE / "differences.txt"
RECORDINGS = read(*sorted(set(HERE.glob("*.txt")) - {DIFFERENCES}))
DIFFERENT = read(DIFFERENCES)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_events_are_those_of_otp(recording: Recording) -> None:
    assert run_program(recording.program) == recording.events


@pytest.mark.parametrize(
    ("otp", "ours"), [*zip(DIFFERENT[::2], DIFFERENT[1::2], strict=True)], ids=lambda recording: recording.name
)
def test_differences_are_those_that_are_documented(otp: Recording, ours: Recording) -> None:
    assert (otp.name, ours.name) == (f"{otp.name[:-6]} (OTP)", f"{otp.name[:-6]} (here)")
    assert otp.program == ours.program
    assert run_program(ours.program) == ours.events != otp.events


def test_every_recording_is_read() -> None:
    assert len(RECORDINGS) == 20 + 54 + 23 + 37
    assert len(DIFFERENT) == 2 * 6
    assert all(recording.events for recording in RECORDINGS + DIFFERENT)


def test_term_is_parsed_and_rendered() -> None:
    term = ({"a": [1, -2], "b": {}}, [{"id": "a"}], ["stop_sup", ("exit", "a", ("shutdown", "x")), []])
    assert parse_term(render_term(term)) == term
    assert parse_term('{"1, {x}", []}.') == ("1, {x}", [])
