"""A program in a fork runs and ends as in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .forkserver import COLD, run_python, start_python

PATIENCE = 60.0

PROGRAMS = {
    "output": "import sys; print('out'); print('err', file=sys.stderr)",
    "exit code": "raise SystemExit(3)",
    "exception": "import atexit; atexit.register(print, 'at exit'); 1 / 0",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "Ctrl-C": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "thread": "import threading, time; threading.Thread(target=lambda: [time.sleep(0.1), print('done')]).start()",
    "environment": "import os; print(os.environ['HERE'], os.getcwd(), len(os.environ))",
    "descriptors": "import os; print([number for number in range(3, 200) if os.path.exists(f'/dev/fd/{number}')][1:])",
    "streams": "import sys; print([(s.encoding, s.errors, s.line_buffering) for s in (sys.stdin, sys.stdout)])",
    "input": "import sys; print(repr(sys.stdin.read()))",
    "warning": "import warnings; warnings.warn('careful')",
}
MAIN = "import sys; print(__name__, sys.modules['__main__'].__name__, sys.argv, sys.path[0])"


def run_both_ways(*arguments: str | Path, folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run a program in a new interpreter, and in a fork."""
    environment = {**os.environ, "HERE": "é"}
    return [
        run_python("-W", "error", *arguments, cwd=folder, env=environment, timeout=PATIENCE, cold=cold)
        for cold in (True, False)
    ]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_does_the_same_in_a_fork_as_in_a_new_interpreter(program: str, tmp_path: Path) -> None:
    cold, forked = run_both_ways("-c", PROGRAMS[program], folder=tmp_path)
    assert (forked.returncode, forked.stdout) == (cold.returncode, cold.stdout)
    assert forked.stderr.splitlines()[-1:] == cold.stderr.splitlines()[-1:]


@pytest.mark.parametrize("arguments", [("-c", MAIN), ("-m", "a_program"), ("a_program.py",)], ids=["-c", "-m", "file"])
def test_it_is_the_main_module_there_too(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "a_program.py").write_text(MAIN)
    cold, forked = run_both_ways(*arguments, "word", folder=tmp_path)
    assert forked.stdout == cold.stdout


def test_a_fork_is_killed_if_it_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_python("-c", "import time; time.sleep(600)", cwd=tmp_path, timeout=0.1)


@pytest.mark.skipif(COLD, reason="there are no forks here")
def test_a_fork_starts_with_the_sdk_and_leads_the_session_that_was_asked_for(tmp_path: Path) -> None:
    code = "import os, sys; print('mcp' in sys.modules, os.getsid(0) == os.getpid())"
    with (tmp_path / "out").open("w") as out:
        program = start_python("-c", code, cwd=tmp_path, stdout=out, stderr=out, start_new_session=True)
        with program:
            assert program.wait(PATIENCE) == 0
    assert (tmp_path / "out").read_text() == "True True\n"
    assert program.poll() == 0
