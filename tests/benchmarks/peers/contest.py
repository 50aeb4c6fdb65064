"""The contests: each peer in a process of its own, a round of one after a round of the other.

Rounds are short and many, and every round is compared with its neighbours, so that other load of the machine affects
all peers alike.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final

from ...node.packages import node, program
from ..measuring import ROOT, TIMEOUT
from . import quick_server

TYPESCRIPT: Final = "TypeScript SDK on Node"
"""The peer that is not in `clients`."""


class Contestant:
    """A peer that takes part in a contest: a process that plays a round on request.

    Attributes:
        pid: the process, which prints its id when it is ready. It may be another one than was started.
    """

    def __init__(self, name: str, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self._name = name
        self._process = process
        self._errors = errors
        self.pid: int = self.hear()

    def play(self, *arguments: object) -> Any:
        """Play a round; return what it measured."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        return self.hear()

    def hear(self) -> Any:
        """Wait for the next thing it says.

        Raises:
            RuntimeError: it ended instead.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(
                f"{self._name} ended; is the extra `bench` installed? Its last words:\n{self._errors.read()}"
            )
        return json.loads(line)


def command(contest: str, peer: str) -> list[str]:
    """Return the command line of the process of a peer."""
    if peer != TYPESCRIPT:
        return [sys.executable, "-m", "tests.benchmarks.peers.process", contest, peer]
    sdk = program("@modelcontextprotocol/client", "dist")
    return [str(node()), str(Path(__file__).with_name("typescript_client.mjs")), str(sdk), *quick_server.command()]


@contextmanager
def enter(contest: str, peer: str, *, under: Sequence[str] = ()) -> Iterator[Contestant]:
    """Start the process of a peer, and end it; `under` is the command of a program that runs it."""
    pipe, arguments = subprocess.PIPE, [*under, *command(contest, peer)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(arguments, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process,
    ):
        yield Contestant(peer, process, errors)
        process.communicate(timeout=TIMEOUT)


@contextmanager
def enter_all(contest: str, peers: Sequence[str]) -> Iterator[dict[str, Contestant]]:
    """Start the processes of some peers, and end them."""
    with ExitStack() as stack:
        yield {peer: stack.enter_context(enter(contest, peer)) for peer in peers}


def play_rounds(contestants: dict[str, Contestant], rounds: int, *arguments: object) -> dict[str, list[Any]]:
    """Let all play in turns, each round another one first; return what each measured, by round."""
    measured: dict[str, list[Any]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            measured[name].append(contestants[name].play(*arguments))
    return measured
