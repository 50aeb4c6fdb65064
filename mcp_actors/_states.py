"""Check the names of states to wait for."""

from __future__ import annotations

from collections.abc import Iterable

from ._misuse import nearest


def check_states(owner: str, wanted: Iterable[str], known: tuple[str, ...]) -> None:
    """Raise an error unless all states exist.

    Args:
        owner: the subject of the error: ``"actor 'a'"``.
        wanted: the states to wait for.
        known: all states of the owner.

    Raises:
        ValueError: no state is given, or an unknown one.
    """
    wanted = tuple(wanted)
    if not wanted:
        raise ValueError(f"{owner}: wait_state() was called without a state; give {_either(known)}")
    for state in wanted:
        if state not in known:
            near = nearest(str(state), known)
            hint = f"did you mean {near[0]!r}?" if near else f"give {_either(known)}"
            raise ValueError(f"{owner}: there is no state {state!r}; {hint}")


def _either(known: tuple[str, ...]) -> str:
    return f"one of {', '.join(map(repr, known))}"
