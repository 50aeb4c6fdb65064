"""The commands in a real pseudo-terminal: colours, a bar, a live table, questions and Ctrl-C."""

from __future__ import annotations

import io
import os
import re
import signal
from pathlib import Path
from shlex import join
from typing import Any

import pytest

from .terminal import PATIENCE, is_running, scripted, terminal, wait_for_text, write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

CTRL_C = "\x03"
GREEN = b"\x1b[32m"

SIGNALLED_BY_A_PIPE = """\
import _thread, threading
from mcp_actors.cli import main

def interrupt():
    open("signal").close()
    _thread.interrupt_main()

threading.Thread(target=interrupt, daemon=True).start()
main()
"""
"""The command, which notes a Ctrl-C when the pipe is opened. No system call ends early for it."""

AFTER_A_SHELL = """\
import os, select, termios, tty
from mcp_actors.cli import main

before = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, b"ready")
select.select([0], [], [])
termios.tcsetattr(0, termios.TCSANOW, before)
main()
"""
"""The command, started by a shell after something was typed."""


def test_check_is_in_colour(tmp_path: Path) -> None:
    write(tmp_path, {"a": scripted()})
    with terminal(tmp_path, "check") as shown:
        assert shown.wait() == 0
        assert GREEN in shown.raw
        assert "a  ready     scripted 1.0" in shown.text


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_disabled(tmp_path: Path, variables: dict[str, Any]) -> None:
    write(tmp_path, {"a": scripted(), "b": {"command": "no-such-program"}})
    with terminal(tmp_path, "check", **variables) as shown:
        assert shown.wait() == 1
        assert not re.search(rb"\x1b\[(\d+;)*[34]\d[;m]", shown.raw)
        assert (b"\x1b" in shown.raw) is ("TERM" not in variables)
        assert "a  ready     scripted 1.0" in shown.text


def test_progress_is_a_bar_that_leaves_the_result_alone(tmp_path: Path) -> None:
    write(tmp_path, {"a": scripted("--progress", "3")})
    with terminal(tmp_path, "call", "a", "echo", "text=done") as shown:
        assert shown.wait() == 0
        assert "━" in shown.text
        assert shown.text.endswith("done\n")


def test_ctrl_c_cancels_the_call_at_the_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(tmp_path, {"a": scripted("--log-file", str(log))})
    with terminal(tmp_path, "call", "a", "sleep", "seconds=600") as shown:
        wait_for_text(log, "tools/call sleep")
        shown.wait_idle()  # it may just have written the call; a Ctrl-C in that step ends the connection
        shown.type(CTRL_C)
        assert shown.wait() == 130
        assert shown.text.endswith("cancelled\n")
        assert "Traceback" not in shown.text
    assert "notifications/cancelled" in log.read_text()


def test_watch_is_a_live_table(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    backoff = {"first": 600}
    write(
        tmp_path,
        {"a": scripted("--pid-file", str(pids), restarts={"backoff": backoff}), "b": {"command": "no-such-program"}},
    )
    with terminal(tmp_path, "watch", "--every", "0.1") as shown:
        shown.wait_for(r"a +ready +1 +\d+")
        assert re.search(r"b +failed", shown.text)
        os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)
        shown.wait_for(r"a +backoff")
        shown.type(CTRL_C)
        assert shown.wait() == 130
        assert "Traceback" not in shown.text


def test_watch_shows_connecting_servers_and_errors_on_80_columns(tmp_path: Path) -> None:
    gone, slow = "a-server-of-a-long-name", {"connect_timeout": 1, "restarts": {"backoff": {"first": 600}}}
    write(tmp_path, {"slow": scripted("--never-answer", **slow), gone: {"command": "no-such-program"}})
    with terminal(tmp_path, "watch", columns=80) as shown:
        shown.wait_for(rf"connecting to slow, {gone} …")
        assert "restarts" not in shown.text.partition("connecting to slow")[0]
        shown.wait_for(rf"{gone} +failed +1 ")
        assert re.search(r"server +state +run +pid +for +in flight +queued +restarts", shown.text)
        shown.wait_for(rf"{gone} +failed [^\n]*\n  error: command 'no-such-program' not found; install it")
        shown.type(CTRL_C)
        assert shown.wait() == 130


@pytest.mark.parametrize("words", [["watch"], ["call", "a", "mute"]])
def test_closing_the_terminal_stops_the_servers(tmp_path: Path, words: list[str]) -> None:
    pids = tmp_path / "pids"
    write(tmp_path, {"a": scripted("--pid-file", str(pids), "--ignore-eof", stop_timeout=0.2)})
    with terminal(tmp_path, *words) as shown:
        wait_for_text(pids, "\n")
        shown.close()
        assert shown.process.wait(PATIENCE) in (1, 129)
    assert not is_running(int(pids.read_text()))


def test_watch_ends_when_its_terminal_is_closed_and_sighup_is_ignored(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    write(tmp_path, {"a": scripted("--pid-file", str(pids), "--ignore-eof", stop_timeout=0.2)})
    with terminal(tmp_path, "watch", deaf=True) as shown:
        shown.wait_for(r"a +ready")
        shown.close()
        # 1 if it was writing just then.
        assert shown.process.wait(PATIENCE) in (1, 129)
    assert not is_running(int(pids.read_text()))


def test_serve_says_what_it_waits_for(tmp_path: Path) -> None:
    write(tmp_path, {"a": scripted()})
    with terminal(tmp_path, "serve", "--stdio") as shown:
        shown.wait_for("serving one client over stdin; give this command to a program, or press Ctrl-D to end it")
        shown.type("\x04")
        assert shown.process.wait(PATIENCE) == 0


def test_questions_are_asked_and_a_password_is_not_shown(tmp_path: Path) -> None:
    inputs = [
        {"id": "name", "type": "promptString", "description": "Your name"},
        {"id": "key", "type": "promptString", "description": "Your key", "password": True},
    ]
    entry = scripted()
    entry["env"] = {"NAME": "${input:name}", "KEY": "${input:key}"}
    write(tmp_path, {"a": entry}, inputs=inputs)
    with terminal(tmp_path, "call", "a", "env", "name=NAME") as shown:
        # Each text is asked for in the order of their names.
        shown.wait_for("Your key: ")
        shown.type("s3cret\n")
        shown.wait_for("Your name: ")
        shown.type("Ada\n")
        assert shown.wait() == 0
        assert shown.text.endswith("Ada\n")
        assert "s3cret" not in shown.text


def write_question(folder: Path, *, password: bool) -> None:
    """Write a configuration whose only server cannot be started, and takes the answer to a question."""
    question = {"id": "key", "type": "promptString", "description": "Your key", "password": password}
    write(folder, {"a": {"command": "no-such-program", "args": ["${input:key}"]}}, inputs=[question])


@pytest.mark.parametrize("password", [True, False])
@pytest.mark.parametrize(("keys", "code"), [("\x04", 1), ("\n", 1), (CTRL_C, 130)])
def test_a_question_need_not_be_answered(tmp_path: Path, password: bool, keys: str, code: int) -> None:
    write_question(tmp_path, password=password)
    with terminal(tmp_path, "check") as shown:
        shown.wait_for("Your key: ")
        shown.type(keys)
        assert shown.wait() == code
        said = "cancelled" if code == 130 else "a  invalid   .mcp.json: mcpServers.a: input 'key' was not answered"
        assert shown.text.replace("^C", "").startswith(f"Your key: \n{said}")


@pytest.mark.parametrize(
    ("question", "password", "found"),
    [("Your key: ", False, False), ("Your key: ", True, False), ("[y/N] ", False, True)],
)
def test_ctrl_c_ends_a_question_even_just_before_it_is_read(
    tmp_path: Path, question: str, password: bool, found: bool
) -> None:
    """Python has noted such a signal, and the read has not seen it."""
    write_question(tmp_path, password=password)
    os.mkfifo(tmp_path / "signal")
    with terminal(tmp_path, "check", found=found, program=("-c", SIGNALLED_BY_A_PIPE)) as shown:
        shown.wait_for(re.escape(question))
        shown.wait_idle()
        (tmp_path / "signal").write_text("")
        assert shown.wait() == 130
        assert shown.text.endswith(f"{question}\ncancelled\n")


@pytest.mark.parametrize("password", [True, False])
def test_a_question_is_on_the_terminal_if_only_the_input_is(tmp_path: Path, password: bool) -> None:
    """A script that came through a pipe has it as ``mcp-actors check </dev/tty 2>errors``."""
    write_question(tmp_path, password=password)
    program = "-c", "import os; from mcp_actors.cli import main; os.dup2(os.open('/dev/tty', os.O_RDONLY), 0); main()"
    with terminal(tmp_path, "check", elsewhere=["stderr"], program=program) as shown:
        shown.wait_for("Your key: ")
        shown.type("s3cret\n")
        assert shown.wait() == 1
        assert "command 'no-such-program' not found" in shown.text


def test_lines_that_were_typed_while_a_shell_read_the_keys_answer_one_question_each(tmp_path: Path) -> None:
    """Linux returns all of them by one read: the shell had switched the terminal to single keys."""
    server = scripted()
    server["env"] = {"FIRST": "${input:first}", "SECOND": "${input:second}"}
    write(tmp_path, {"a": server}, inputs=[{"id": name, "type": "promptString"} for name in ("first", "second")])
    with terminal(tmp_path, "call", "a", "env", "name=SECOND", program=("-c", AFTER_A_SHELL)) as shown:
        shown.wait_for("ready")
        shown.type("Ada\nLovelace\n")
        assert shown.wait() == 0
        assert "first: second: " in shown.text  # by their names, as they have no description
        assert shown.text.endswith("Lovelace\n")


def test_only_inputs_of_the_named_server_are_asked_for_and_a_question_cannot_act_on_the_terminal(
    tmp_path: Path,
) -> None:
    inputs = [
        {"id": "other", "type": "promptString", "description": "Not this"},
        {"id": "name", "type": "promptString", "description": "Your\x1b]0;owned\x07\x1b[2J name"},
    ]
    wanted, other = scripted(), scripted()
    wanted |= {"env": {"NAME": "${input:name}"}, "disabled": True}
    other["env"] = {"OTHER": "${input:other}"}
    write(tmp_path, {"wanted": wanted, "other": other}, inputs=inputs)
    with terminal(tmp_path, "call", "wanted", "env", "name=NAME") as shown:
        shown.wait_for("Your name: ")
        shown.type("Ada\n")
        assert shown.wait() == 0
        assert shown.text.endswith("Ada\n")
        assert "Not this" not in shown.text
        assert b"owned" not in shown.raw


def test_text_of_a_server_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    write(tmp_path, {"a": scripted("--name", "evil\x1b]0;owned\x07\x1b[2Jname")})
    words = "text=red\x1b[31m \x1b]0;owned\x07and\ttext\n[bold]two\u202e"
    with terminal(tmp_path, "call", "a", "echo", words) as shown:
        assert shown.wait() == 0
        assert shown.raw.decode().endswith("red and text\r\n[bold]two\r\n")
        assert b"owned" not in shown.raw
    with terminal(tmp_path, "call", "a", "echo", words, "--json") as shown:
        assert shown.wait() == 0
        assert b"\x1b" not in shown.raw.partition(b"{")[2]
        assert "\\u202e" in shown.text
    with terminal(tmp_path, "check") as shown:
        assert shown.wait() == 0
        assert "evilname 1.0" in shown.text
        assert b"owned" not in shown.raw


def test_check_shows_which_servers_it_connects_to(tmp_path: Path) -> None:
    write(tmp_path, {"quick": scripted(), "slow": scripted("--never-answer", connect_timeout=1)})
    with terminal(tmp_path, "check") as shown:
        shown.wait_for("connecting to quick, slow …")
        assert shown.wait() == 1
        assert "timed out after 1 s" in shown.text
        # The line is erased at the end.
        assert b"\x1b[2K" in shown.raw.partition("slow …".encode())[2]


def test_check_shows_each_result_above_the_names_of_the_servers_that_it_waits_for(tmp_path: Path) -> None:
    go = tmp_path / "go"
    words = join((scripted()["command"], *scripted()["args"]))
    entry = {"command": "sh", "args": ["-c", f"while [ ! -e '{go}' ]; do sleep 0.01; done; exec {words}"]}
    many = {f"slow-{number}": {**scripted(), **entry} for number in range(4)}
    write(tmp_path, {"quick": scripted(), **many})
    with terminal(tmp_path, "check", columns=40) as shown:
        shown.wait_for(r"quick   ready [^$]*connecting to slow-0, slow-1, slow-2,\s+slow-3 …")
        quick, *_, first, second = shown.screen
        assert quick == "quick   ready     scripted 1.0,"
        assert (first, second) == ("connecting to slow-0, slow-1, slow-2,", "slow-3 …")
        go.touch()
        assert shown.wait() == 0
        begins = [line.split()[0] for line in shown.screen if " ready " in line]
        assert (begins[0], sorted(begins[1:])) == ("quick", sorted(many))
        assert "connecting" not in "".join(shown.screen)
        assert "rich." not in shown.text


def test_a_text_that_waits_is_removed_from_a_terminal() -> None:
    """Otherwise the cursor of the shell stays hidden."""
    from rich.console import Console

    from mcp_actors.cli._output import Output

    output = Output()
    output.messages = Console(file=io.StringIO(), force_terminal=True)
    with output.waiting("slow …"):
        assert output._waits is not None
    assert output._waits is None
