"""Which answer to the question for the tools counts: pure rules."""

from __future__ import annotations

from mcp_actors.servers.tools._freshness import PATIENCE, Currency


def test_the_first_answer_is_the_newest() -> None:
    currency = Currency()
    ticket = currency.begin()
    assert currency.judge(ticket, 0.0) == "newest"
    currency.show(ticket, 0.0)
    assert currency.stale_since is None


def test_an_answer_that_a_notice_has_overtaken_leaves_what_is_shown_out_of_date() -> None:
    """A-20."""
    currency = Currency()
    ticket = currency.begin()
    currency.mark_stale(1.0)
    currency.mark_stale(2.0)
    assert currency.judge(ticket, 2.0) == "overtaken"
    assert currency.stale_since == 1.0
    assert currency.judge(currency.begin(), 2.0) == "newest"


def test_patience_begins_anew_with_what_is_shown_although_it_was_overtaken() -> None:
    """A-20: so that one of many is shown, and not each after the first."""
    currency = Currency()
    ticket = currency.begin()
    currency.mark_stale(0.0)
    assert currency.judge(ticket, PATIENCE - 0.1) == "overtaken"
    assert currency.judge(ticket, PATIENCE) == "newest"
    currency.show(ticket, PATIENCE)
    assert currency.stale_since == PATIENCE
    late = currency.begin()
    currency.mark_stale(PATIENCE + 1)
    assert currency.judge(late, PATIENCE + 1) == "overtaken"


def test_answers_that_have_crossed_do_not_replace_each_other() -> None:
    """A-20: whichever was asked for first, nobody knows which was read first."""
    for first, second in ((0, 1), (1, 0)):
        currency = Currency()
        tickets = [currency.begin(), currency.begin()]
        currency.show(tickets[first], 0.0)
        assert currency.judge(tickets[second], 0.0) == "crossed"
        assert currency.judge(currency.begin(), 0.0) == "newest"
