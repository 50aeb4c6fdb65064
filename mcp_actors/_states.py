"""The states that somebody waits for are states that there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check_states(owner: str, wanted: Iterable[str], known: tuple[str, ...]) -> None:
    """Refuse to wait for what never comes.

    Args:
        owner: whose states they are, for the message: ``"actor 'a'"``.
        wanted: what is waited for.
        known: all states that there are.

    Raises:
        ValueError: nothing is wanted, or something that is no state.
    """
    wanted = tuple(wanted)
    if not wanted:
        raise ValueError(f"{owner}: wait_state() was given no state, and would wait for ever; give {_either(known)}")
    for state in wanted:
        if state not in known:
            near = difflib.get_close_matches(str(state), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"give {_either(known)}"
            raise ValueError(f"{owner}: there is no state {state!r}; {hint}")


def _either(known: tuple[str, ...]) -> str:
    return f"one of {', '.join(map(repr, known))}"
