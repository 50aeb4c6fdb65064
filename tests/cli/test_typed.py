"""Servers that are typed: a URL, or a command after ``--``; their resources and prompts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from ..forkserver import interpreter
from ..servers.faults.http_faults import faulty_server
from ..servers.scripted_server import command
from ..source import EXAMPLES
from .conftest import Run
from .terminal import next_changes, started

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

NOTES = str(EXAMPLES / "servers" / "notes.py")


def notes() -> tuple[str, ...]:
    """Return the words of a command line for a server with notes."""
    return ("--", interpreter(), NOTES)


def test_a_command_is_typed_after_two_dashes(run: Run) -> None:
    """No file is needed, and what was typed is never asked about."""
    program, arguments = command()
    done = run("call", "echo", "text=here", "--", program, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")


def test_a_url_is_a_server(run: Run) -> None:
    with faulty_server() as running:
        done = run("tools", running.url())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"127.0.0.1-{running.url().split(':')[2].partition('/')[0]} ")


def test_a_url_of_no_server_says_so(run: Run) -> None:
    done = run("check", "http://127.0.0.1:9/mcp")
    assert done.returncode == 1
    assert "server '127.0.0.1-9': could not connect to http://127.0.0.1:9/mcp (connection refused)" in done.stdout


def test_a_typed_server_is_watched(tmp_path: Path) -> None:
    program, arguments = command()
    with started(tmp_path, "watch", "--json", "--", program, *arguments) as watching:
        assert [new for _, new in next_changes(watching, 2)] == ["connecting", "ready"]


def test_names_of_a_file_are_not_watched_together_with_what_was_typed(run: Run) -> None:
    done = run("watch", "time", "http://127.0.0.1:9/mcp")
    assert done.returncode == 2
    assert done.stderr.startswith("error: watch follows either a file or what is typed; ")


def test_resources_and_templates_are_listed(run: Run) -> None:
    done = run("resources", *notes())
    assert (done.returncode, done.stderr) == (0, "")
    assert " shopping note:///shopping\n    Read the shopping list.\n" in done.stdout
    assert " read note:///{page}\n    Read any page.\n" in done.stdout


def test_a_resource_is_read(run: Run) -> None:
    done = run("read", "note:///shopping", *notes())
    assert (done.returncode, done.stdout, done.stderr) == (0, "eggs\n", "")
    [content] = json.loads(run("read", "note:///shopping", "--json", *notes()).stdout)["contents"]
    assert content["text"] == "eggs"


def test_a_resource_that_is_not_there_is_an_error(run: Run) -> None:
    done = run("read", "note:///nothing", *notes())
    assert done.returncode == 1
    assert "answered with an error: " in done.stderr


def test_prompts_are_listed_and_filled_in(run: Run) -> None:
    listed = json.loads(run("prompts", "--json", *notes()).stdout)
    assert [(each["name"], each["arguments"]) for each in listed] == [("plan", [{"name": "meal", "required": True}])]
    assert "plan (meal)" in run("prompts", *notes()).stdout
    done = run("prompt", "plan", "meal=lunch", *notes())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "user: Plan lunch with what is on note:///shopping.\n"


def test_a_server_without_resources_lists_none(run: Run) -> None:
    program, arguments = command()
    done = run("resources", "--json", "--", program, *arguments)
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, [], "")


ONE_LIST = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    about = {"capabilities": {"resources": {}}, "serverInfo": {"name": "a", "version": "1"}}
    answers = {"initialize": {"protocolVersion": "2025-06-18", **about}, sys.argv[1]: json.loads(sys.argv[2])}
    found = answers.get(asked["method"])
    answer = {"error": {"code": -32601, "message": "not here"}} if found is None else {"result": found}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


@pytest.mark.parametrize(
    ("method", "found"),
    [
        ("resources/list", {"resources": [{"uri": "note:///a", "name": "a"}]}),
        ("resources/templates/list", {"resourceTemplates": [{"uriTemplate": "note:///{name}", "name": "a"}]}),
    ],
)
def test_a_list_that_a_server_does_not_have_hides_no_other(run: Run, method: str, found: dict[str, Any]) -> None:
    """D-40: at the command line, too."""
    done = run("resources", "--json", "--", sys.executable, "-I", "-S", "-c", ONE_LIST, method, json.dumps(found))
    assert (done.returncode, [each["name"] for each in json.loads(done.stdout)], done.stderr) == (0, ["a"], "")


@pytest.mark.parametrize("words", [["tools", "--"], ["--", "x"]])
def test_a_command_that_is_missing_is_explained(run: Run, words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr == "error: a server's command follows '--': mcp-actors tools -- npx -y some-server\n"


TYPED: Final = {
    "tools": "list list-tools ls describe",
    "call": "run",
    "check": "inspect test",
    "logs": "log tail",
    "status": "ps info",
    "restart": "reconnect",
    "stop": "kill shutdown down",
    "start": "up",
    "reload": "refresh",
    "read": "get",
    "login": "auth",
    "config show": "show print",
    "config convert": "convert export",
    "config attach": "import install detach",
    "pins approve": "approve trust",
    "pins reject": "reject",
    "pins show": "diff",
    "completion": "completions autocomplete",
}
"""Commands, and words that people type for them."""


@pytest.mark.parametrize(
    ("word", "command"), [(word, command) for command, others in TYPED.items() for word in others.split()]
)
def test_a_word_that_people_type_suggests_a_command(run: Run, word: str, command: str) -> None:
    done = run(word)
    assert done.returncode == 2
    assert f"error: there is no command {word!r}; did you mean {command!r}?" in done.stderr
