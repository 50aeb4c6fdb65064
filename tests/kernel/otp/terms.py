"""Erlang terms, and the programs and recordings that consist of them.

Atoms and strings are str, tuples are tuples, lists are lists and maps are dicts.

A program is a tuple of the root's flags, its child specs and a list of actions. What a spec can have beyond OTP's keys:

- ``init``: what each start does, one after the other; later ones are ``ok``. ``fail``, ``ignore``, or ``wait``: the
  start passes the gate (see ``during``);
- ``stop``: what the child does when it is asked to stop. ``hang`` ignores that until it is killed; ``asked`` records it
  and passes the gate;
- ``flags`` and ``children`` of a spec whose ``type`` is ``supervisor``.

Ids are unique in the whole tree. The actions:

- ``{kill,Id}``, ``{exit,Id,Reason}``: a worker is killed from outside, or ends by itself.
- ``{start_child,Spec}``, ``{stop_child,Id}``, ``{restart_child,Id}``, ``{delete_child,Id}``: a call to the root.
- ``{on,Sup,Call}``: the same call to another supervisor.
- ``look``: record the children of all supervisors that run, and their counts.
- ``{together,[Action]}``: all are noticed, in this order, before any has an effect; then the deepest supervisor goes on
  first.
- ``{at_once,[Action]}``: all happen in one step, and are noticed in any order.
- ``{during,Action,[Action]}``: the gate is closed. The first child to reach it waits there, and its supervisor waits
  for the child. Meanwhile the second actions happen, if they are on the same supervisor, which is not itself
  starting, and not on that child; then the gate opens.
- ``{sleep,Ms}``: restarts age.
- ``stop_sup``: stop the root, as after the last action.

After each action, everything that it leads to happens before the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from attrs import frozen

Term = Any
Program = tuple[dict[str, Term], list[dict[str, Term]], list[Term]]
"""The root's flags, its child specs, and the actions."""

TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|#\{|=>|[{}\[\],.]|-?\d+|[a-z]\w*)')
CLOSING = {"{": "}", "[": "]", "#{": "}"}


def parse_term(text: str) -> Term:
    """Parse one Erlang term, with or without the dot at its end."""
    tokens = iter(TOKEN.findall(text))
    return _term(next(tokens), tokens)


def _term(token: str, tokens: Iterator[str]) -> Term:
    if token not in CLOSING:
        return int(token) if token.lstrip("-").isdigit() else token.strip('"')
    items: list[Term] = []
    while (part := next(tokens)) != CLOSING[token]:
        if part not in (",", "=>"):
            items.append(_term(part, tokens))
    if token == "#{":
        return dict(zip(items[::2], items[1::2], strict=True))
    return tuple(items) if token == "{" else items


def render_term(term: Term) -> str:
    """Return the text of a term that has no strings."""
    match term:
        case dict():
            return "#{" + ",".join(f"{key}=>{render_term(value)}" for key, value in term.items()) + "}"
        case tuple():
            return "{" + ",".join(map(render_term, term)) + "}"
        case list():
            return "[" + ",".join(map(render_term, term)) + "]"
    return str(term)


@frozen
class Recording:
    """A program, and what happened when it ran."""

    name: str
    program: Program
    events: list[Term]

    def __str__(self) -> str:
        lines = [f'{{"{self.name}", {render_term(self.program)}}}.', self.name]
        return "\n".join([*lines, *(f"    {render_term(event)}" for event in self.events)])


def parse_recordings(text: str) -> list[Recording]:
    """Parse a file of recordings: blocks of a name and a program, the name once more, and the events."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        if not block.startswith('{"'):
            continue
        head, _, *lines = block.strip().splitlines()
        name, program = parse_term(head)
        found.append(Recording(name, program, [parse_term(line) for line in lines]))
    return found
