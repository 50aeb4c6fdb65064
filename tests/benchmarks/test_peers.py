"""The contests work, at least for those whose library is always there; the figures are for ``nox -s bench``."""

from __future__ import annotations

import pytest

from .peers import BRIDGED
from .peers.contest import enter, enter_all, play_rounds


def test_contestants_play_in_turns() -> None:
    with enter_all("calls", ["ServerRef", "mcp.Client"]) as contestants:
        seconds = play_rounds(contestants, 2, 2, 4)
    assert [len(rounds) for rounds in seconds.values()] == [2, 2]
    assert all(0 < each < 60 for rounds in seconds.values() for each in rounds)


def test_programs_on_asyncio_play_too() -> None:
    with enter_all("calls", BRIDGED) as contestants:
        seconds = play_rounds(contestants, 1, 2, 4)
    assert all(0 < rounds[0] < 60 for rounds in seconds.values())


def test_the_longest_steps_of_a_long_answer_are_told() -> None:
    with enter("long_line", "ServerRef") as contestant:
        seconds, steps = contestant.play(100_000)
    assert seconds > steps[0] > steps[1] > 0


@pytest.mark.parametrize(("contest", "arguments"), [("starts", (2, 0.0)), ("recovery", ())])
def test_a_round_gives_its_seconds(contest: str, arguments: tuple[float, ...]) -> None:
    with enter(contest, "ServerRef") as contestant:
        assert 0 < contestant.play(*arguments) < 60


def test_a_peer_that_cannot_play_is_told_of_in_its_own_words() -> None:
    words = r"nobody ended; is the extra `bench` installed\? (.|\n)*KeyError: 'nobody'"
    with pytest.raises(RuntimeError, match=words), enter("calls", "nobody"):
        pass
