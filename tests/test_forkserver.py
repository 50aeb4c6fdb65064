"""A program in a fork runs and ends as in an interpreter of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import pytest

from .forkserver import COLD, begin_script, interpreter, run_python, start_python

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
    "words": "raise SystemExit('no such file')",
    "unclosed file": "file = open('/dev/null')",
    "unclosed file in a cycle": "files = [open('/dev/null')]; files.append(files); del files",
    "exit of a thread": "import _thread, threading; threading.Thread(target=_thread.interrupt_main).start()",
}
MAIN = "import sys; print(__name__, sys.modules['__main__'].__name__, sys.argv, sys.path[0])"


forked = pytest.mark.skipif(COLD, reason="there are no forks here")


def run_all_ways(*arguments: str | Path, folder: Path, **variables: str) -> list[subprocess.CompletedProcess[str]]:
    """Run a program in a new interpreter, in a fork, and as shells do."""
    environment = {**os.environ, "HERE": "é", **variables}
    flags = ("-W", "error")
    return [
        *(
            run_python(*flags, *arguments, cwd=folder, env=environment, timeout=PATIENCE, cold=cold)
            for cold in (True, False)
        ),
        subprocess.run(
            [interpreter(), *flags, *map(str, arguments)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        ),
    ]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_does_the_same_in_a_fork_as_in_a_new_interpreter(program: str, tmp_path: Path) -> None:
    cold, *others = run_all_ways("-c", PROGRAMS[program], folder=tmp_path)
    for forked in others:
        assert (forked.returncode, forked.stdout) == (cold.returncode, cold.stdout)
        assert forked.stderr.splitlines()[-1:] == cold.stderr.splitlines()[-1:]


@pytest.mark.parametrize("encoding", ["ascii", "ascii:replace"])
def test_its_streams_have_the_encoding_that_the_environment_asks_for(encoding: str, tmp_path: Path) -> None:
    code = f"{PROGRAMS['streams']}; print('é', file=sys.stderr)"
    cold, *others = run_all_ways("-c", code, folder=tmp_path, PYTHONIOENCODING=encoding)
    assert [(each.stdout, each.stderr) for each in others] == [(cold.stdout, cold.stderr)] * 2


@pytest.mark.parametrize("arguments", [("-c", MAIN), ("-m", "a_program"), ("a_program.py",)], ids=["-c", "-m", "file"])
def test_it_is_the_main_module_there_too(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "a_program.py").write_text(MAIN)
    cold, *others = run_all_ways(*arguments, "word", folder=tmp_path)
    assert [each.stdout for each in others] == [cold.stdout] * 2


def test_it_imports_from_the_folders_that_the_environment_names(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a_module.py").write_text("print('imported')")
    for each in run_all_ways("-c", "import a_module", folder=tmp_path, PYTHONPATH="elsewhere"):
        assert each.stdout == "imported\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_a_shell_has_closed_is_missing(closed: str, tmp_path: Path) -> None:
    code = "import sys; print(sys.stdin is None, sys.stdout is None, sys.stderr is None, file=open('out', 'w'))"
    (tmp_path / "program.py").write_text(code)
    found = []
    for python in (sys.executable, interpreter()):
        subprocess.run(["sh", "-c", f"{quote(python)} program.py {closed}"], cwd=tmp_path, check=True, timeout=PATIENCE)
        found.append((tmp_path / "out").read_text())
    assert found[0] == found[1]


@contextmanager
def program_of_a_shell(code: str, before: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Let a shell become a program; yield it and the first line of its output."""
    shell = f"{before} exec {quote(interpreter())} -c '{code}'"
    with subprocess.Popen(["sh", "-c", shell], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout is not None
        try:
            yield program, program.stdout.readline()
        finally:
            program.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ignored", [False, True], ids=["heard", "ignored"])
def test_signals_are_passed_on_to_a_fork_unless_they_are_ignored(number: signal.Signals, ignored: bool) -> None:
    code = (
        f"import os, signal; ignored = signal.getsignal({number:d}) == signal.SIG_IGN\n"
        "for each in (1, 2, 15): signal.signal(each, lambda number, _: os._exit(number))\n"
        f"if ignored: signal.signal({number:d}, signal.SIG_IGN)\n"
        "print(ignored, flush=True)\nsignal.pause()"
    )
    with program_of_a_shell(code, f'trap "" {number:d};' if ignored else "") as (program, said):
        assert said == f"{ignored}\n"
        program.send_signal(number)
        ends = number if not ignored else signal.SIGINT if number == signal.SIGTERM else signal.SIGTERM
        program.send_signal(ends)
        assert program.wait(PATIENCE) == ends


def test_a_fork_ends_with_the_process_that_represents_it() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with program_of_a_shell(code) as (program, said):
        assert int(said) != program.pid or COLD
        program.kill()
        assert program.stdout is not None
        assert program.stdout.read() == ""  # the last process that had it open is gone


@forked
def test_a_fork_finds_the_interpreter_that_was_started(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.executable, 'mcp' in sys.modules)"
    run = [
        subprocess.run([interpreter(), *flags, "-c", code], capture_output=True, text=True) for flags in ([], ["-S"])
    ]
    assert [each.stdout for each in run] == [f"{interpreter()} True\n", f"{sys.executable} False\n"]


def test_a_fork_is_killed_if_it_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_python("-c", "import time; time.sleep(600)", cwd=tmp_path, timeout=0.1)


@forked
def test_a_fork_starts_with_the_sdk_and_leads_the_session_that_was_asked_for(tmp_path: Path) -> None:
    code = "import os, sys; print('mcp' in sys.modules, os.getsid(0) == os.getpid())"
    with (tmp_path / "out").open("w") as out:
        program = start_python("-c", code, cwd=tmp_path, stdout=out, stderr=out, start_new_session=True)
        with program:
            assert program.wait(PATIENCE) == 0
    assert (tmp_path / "out").read_text() == "True True\n"
    assert program.poll() == 0


@forked
def test_a_fork_has_imported_what_it_was_asked_to_have_and_no_other_has(tmp_path: Path) -> None:
    code = "import sys; print('ftplib' in sys.modules, 'mcp' in sys.modules)"
    found = [
        run_python("-c", code, cwd=tmp_path, timeout=PATIENCE, imported=modules).stdout for modules in (("ftplib",), ())
    ]
    assert found == ["True True\n", "False True\n"]


def test_an_interpreter_in_a_path_that_no_script_line_can_hold_runs_a_script(tmp_path: Path) -> None:
    """A ``#!`` line holds no blank, and no path of more than 127 bytes."""
    for name in ("plain", "with a blank", "ü" * 100):
        (folder := tmp_path / name).mkdir()
        (python := folder / "python").symlink_to(sys.executable)
        script = folder / "script"
        script.write_text(f"{begin_script(python, '-SE')}import sys\nprint(sys.argv[1:])\n")
        script.chmod(0o700)
        assert subprocess.run([script, "a b"], capture_output=True, text=True, check=True).stdout == "['a b']\n"
