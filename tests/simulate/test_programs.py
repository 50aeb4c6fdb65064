"""Disturbed programs of actors: no message is lost, doubled or out of order. The nightly run has thousands more."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from unittest.mock import patch

import pytest
import trio

from mcp_actors.kernel._envelope import Envelope
from mcp_actors.kernel._mailbox import Mailbox

from . import __main__ as simulate
from .programs import SHAPES, draw, program_failure

SEEDS = 48


def test_no_message_is_lost_doubled_or_out_of_order_however_a_program_is_disturbed() -> None:
    found = [program_failure(seed) for seed in range(SEEDS)]
    assert [each for each in found if each is not None] == []
    assert {draw(seed).name for seed in range(SEEDS)} == {*SHAPES}


def lose(_: Mailbox, __: Envelope) -> bool:
    return True


def double(mailbox: Mailbox, envelope: Envelope) -> bool:
    again = Envelope(envelope.message, is_call=False)
    again.home, again.number, again.context = mailbox, envelope.number, envelope.context
    return returned(mailbox, again) and returned(mailbox, envelope)


def move_to_the_end(mailbox: Mailbox, envelope: Envelope) -> bool:
    envelope.holder = mailbox
    mailbox._queue[envelope] = trio.current_time()
    return True


returned = Mailbox.put_back


@pytest.mark.parametrize(
    ("defect", "seeds", "problem"),
    [
        (lose, (0,), "has lost"),
        (double, (0,), "has handled a message twice"),
        (move_to_the_end, (27, 54, 63, 121), "out of order"),  # few programs have such messages; a new step moves them
    ],
)
def test_a_message_that_returns_wrongly_is_found(defect: object, seeds: Iterable[int], problem: str) -> None:
    with patch.object(Mailbox, "put_back", defect):
        assert any(problem in (program_failure(seed) or "") for seed in seeds)


def test_the_command_disturbs_programs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(simulate, "BATCH", 2)
    monkeypatch.setattr(sys, "argv", ["tests.simulate", "--programs", "--minutes", "0.00001", "--first", "0"])
    assert simulate.main() == 0
    assert capsys.readouterr().out.startswith("2 seeds from 0 in ")
    monkeypatch.setattr(sys, "argv", ["tests.simulate", "--programs", "--seed", "0"])
    assert simulate.main() == 0
    assert "handles" in capsys.readouterr().out
