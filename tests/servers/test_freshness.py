"""The rules that decide which tools/list response is shown."""

from __future__ import annotations

from mcp_actors.servers._catalog import STALE_GRACE, Freshness


def test_the_first_answer_is_the_newest() -> None:
    freshness = Freshness()
    ticket = freshness.begin()
    assert freshness.judge(ticket, 0.0) == "newest"
    freshness.show(ticket, 0.0)
    assert freshness.stale_since is None


def test_an_answer_that_a_notice_has_overtaken_leaves_what_is_shown_out_of_date() -> None:
    """A-20."""
    freshness = Freshness()
    ticket = freshness.begin()
    freshness.mark_stale(1.0)
    freshness.mark_stale(2.0)
    assert freshness.judge(ticket, 2.0) == "overtaken"
    assert freshness.stale_since == 1.0
    assert freshness.judge(freshness.begin(), 2.0) == "newest"


def test_patience_begins_anew_with_what_is_shown_although_it_was_overtaken() -> None:
    """A-20: so that one of many is shown, and not each after the first."""
    freshness = Freshness()
    ticket = freshness.begin()
    freshness.mark_stale(0.0)
    assert freshness.judge(ticket, STALE_GRACE - 0.1) == "overtaken"
    assert freshness.judge(ticket, STALE_GRACE) == "newest"
    freshness.show(ticket, STALE_GRACE)
    assert freshness.stale_since == STALE_GRACE
    late = freshness.begin()
    freshness.mark_stale(STALE_GRACE + 1)
    assert freshness.judge(late, STALE_GRACE + 1) == "overtaken"


def test_answers_that_have_crossed_do_not_replace_each_other() -> None:
    """A-20: it is unknown which of the two the server read first."""
    for first, second in ((0, 1), (1, 0)):
        freshness = Freshness()
        tickets = [freshness.begin(), freshness.begin()]
        freshness.show(tickets[first], 0.0)
        assert freshness.judge(tickets[second], 0.0) == "crossed"
        assert freshness.judge(freshness.begin(), 0.0) == "newest"
