"""Run programs on Erlang/OTP's supervisor, many at a time in one ``erl`` process without a network."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .terms import Program, Term, parse_term, render_term

SOURCE: Final = Path(__file__).with_name("otp_programs.erl")
PATIENCE: Final = 120.0
"""Seconds until a program that has no recording has failed. It takes milliseconds, or as long as it sleeps."""


def missing() -> str | None:
    """Return why programs cannot be run on OTP here; None if they can."""
    for command in ("erl", "erlc"):
        if shutil.which(command) is None:
            return f"{command} not found; install Erlang/OTP 25 or later (Debian: erlang-base)"
    return None


class Otp:
    """A running ``erl``, which runs programs side by side."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._waiting: dict[int, Future[list[Term]]] = {}
        self._number = 0

    def submit(self, program: Program) -> Future[list[Term]]:
        """Begin to run a program. The future is the recording."""
        assert self._process.stdin is not None
        self._number += 1
        future = self._waiting[self._number] = Future[list[Term]]()
        self._process.stdin.write(render_term((self._number, program)) + ".\n")
        self._process.stdin.flush()
        return future

    def read(self) -> None:
        """Read recordings until the process ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, events = parse_term(line)
            self._waiting.pop(number).set_result(events)


@contextmanager
def open_otp() -> Iterator[Otp]:
    """Run Erlang around a block."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["erlc", "-o", folder, str(SOURCE)], check=True)
        command = ["erl", "-noshell", "-pa", folder, "-kernel", "logger_level", "none", "-s", "otp_programs", "main"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            otp = Otp(process)
            reader = threading.Thread(target=otp.read, daemon=True)
            reader.start()
            try:
                yield otp
            finally:
                process.stdin.close()
                reader.join()
