"""Several failures that leave as one."""

from __future__ import annotations

from mcp_actors._collapse import caused_by, first_of


def test_the_first_of_several_failures_carries_the_others_as_notes() -> None:
    first = ValueError("first")
    assert first_of([first, KeyError("second"), OSError("third")]) is first
    assert first.__notes__ == ["also: 'second'", "also: third"]


def test_a_single_failure_gets_no_notes() -> None:
    only = ValueError("only")
    assert first_of([only]) is only
    assert not hasattr(only, "__notes__")


def test_an_error_that_is_given_its_cause_looks_as_if_it_was_raised_from_it() -> None:
    cause = ValueError("why")
    given = caused_by(KeyError("what"), cause)
    assert given.__cause__ is cause
    assert given.__suppress_context__
