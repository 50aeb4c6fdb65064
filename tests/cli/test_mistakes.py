"""A command line with a mistake of a first day is answered with the one that was meant."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ..forkserver import interpreter
from ..messages import Said
from ..servers.scripted_server import command
from ..source import EXAMPLES
from .conftest import Run

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

KITCHEN = str(EXAMPLES / "servers" / "kitchen.py")
NOTES = str(EXAMPLES / "servers" / "notes.py")


def notes() -> tuple[str, ...]:
    """Return the words of a command line for a server with notes."""
    return ("--", interpreter(), NOTES)


@pytest.fixture
def kitchen(tmp_path: Path) -> None:
    """Configure one server, with a tool that has two arguments."""
    entry = {"command": interpreter(), "args": [KITCHEN]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"kitchen": entry}}))


class TestWordsThatAreMissing:
    @pytest.mark.parametrize(
        ("words", "row"),
        [
            (["call"], "call without a server"),
            (["read"], "read without a server"),
            (["read", "ghost"], "read without a resource"),
            (["read", "note://shopping"], "read without a server, of a resource"),
            (["read", "--config", "x.json", "ghost"], "read without a resource, of a file"),
            (["prompt", "kitchen"], "prompt without a name"),
            (["login"], "login without a server"),
            (["pins", "approve"], "pins approve without a tool"),
            (["pins", "reject"], "pins reject without a tool"),
            (["config", "convert"], "config convert without a format"),
            (["completion"], "completion without a shell"),
            (["check", "--config"], "option without its value"),
            (["tools", "-c"], "short option without its value"),
            (["call", "a", "b", "--timeout"], "option without its seconds"),
            (["serve", "--config", "a.json", "--http"], "option without its address"),
            (["attach"], "option that is needed"),
        ],
    )
    def test_the_error_has_an_example_and_the_choices(self, run: Run, words: list[str], row: str, said: Said) -> None:
        done = run(*words)
        assert (done.returncode, done.stdout) == (2, "")
        said(row, done.stderr)


class TestUnknownWords:
    @pytest.mark.parametrize(
        ("words", "row"),
        [
            (["servers"], "unknown command"),
            (["-"], "dash as a command"),
            (["chek"], "misspelled command"),
            (["config", "write"], "unknown command of a group"),
            (["check", "--timeout", "5"], "unknown option"),
            (["check", "--verbos"], "misspelled option"),
            (["check", "-xy"], "unknown short options"),
            (["logs", "--follow", "time"], "logs that follow"),
            (["logs", "time", "--tail", "20"], "logs of a length"),
            (["watch", "-n", "2"], "option of another watch"),
            (["ui", "--port", "8080"], "port of a page"),
            (["restart", "--all"], "option for all servers"),
            (["graph", "--output", "tree.svg"], "option for a file"),
            (["tools", "--server", "time"], "option for a server"),
            (["pins", "approve", "--server", "time"], "option for a server, like another one"),
            (["serve", "-c", "a.json", "--stdio", "--server", "time"], "option for a server to serve"),
            (["attach", "-c", "a.json", "--server", "time"], "option for a server to attach to"),
            (["check", "https://example.com/mcp", "--header", "X-Team: a"], "option for a header"),
            (["call", "https://example.com/mcp", "a", "-H", "X-Team: a"], "option for a header of a call"),
            (["call", "a", "b", "--timezone", "UTC"], "argument of a tool as an option"),
            (["call", "a", "b", "--timeout", "5s"], "seconds with a unit"),
            (["serve", "-c", "a.json", "--idle", "5m"], "minutes with a unit"),
        ],
    )
    def test_the_error_lists_the_known_ones(self, run: Run, words: list[str], row: str, said: Said) -> None:
        done = run(*words)
        assert (done.returncode, done.stdout) == (2, "")
        said(row, done.stderr)

    @pytest.mark.parametrize(
        ("command", "option", "meant"),
        [
            ("logs", "--follow", "-f"),
            ("logs", "--tail", "--lines"),
            ("logs", "--tail", "-n"),
            ("watch", "--interval", "-n"),
            ("ui", "--port", "--host"),
            ("ui", "--port", "-p"),
            ("check", "--all", "-a"),
            ("check", "--output", "--out"),
            ("check", "--output", "-o"),
            ("serve", "--server", "--servers"),
            ("tools", "--server", "--servers"),
            ("check", "--header", "--headers"),
            ("check", "--header", "-H"),
        ],
    )
    def test_other_names_of_an_option_have_the_same_remedy(
        self, run: Run, command: str, option: str, meant: str
    ) -> None:
        known, other = (run(command, each, "x").stderr.partition("; ") for each in (option, meant))
        assert "the options are" not in known[2]
        assert other[2] == known[2] != ""

    def test_a_command_without_two_dashes_is_shown_with_them(self, run: Run, said: Said) -> None:
        done = run("check", "npx", "-y", "@scope/server")
        assert done.returncode == 2
        said("command of a server without two dashes", done.stderr)

    @pytest.mark.parametrize("program", ["bunx", "deno", "docker", "node", "npm", "python", "python3", "uv", "uvx"])
    def test_each_program_that_runs_servers_is_recognized(self, run: Run, program: str) -> None:
        done = run("check", program, "-y", "some-server")
        assert f"mcp-actors check -- {program} -y some-server" in done.stderr


class TestNamesOfAGateway:
    @pytest.mark.parametrize(
        ("option", "given", "row"),
        [
            ("--host-name", "https://gw.example.com/mcp", "--host-name with a URL"),
            ("--host-name", "gw.example.com:8443", "--host-name with a port"),
            ("--host-name", "*.example.com", "--host-name with a star"),
            ("--host-name", "[2001:db8::1]:8443", "--host-name with an address and a port"),
            ("--origin", "https://App.example.com/", "--origin with a path"),
            ("--origin", "app.example.com:3000", "--origin without a scheme"),
        ],
    )
    def test_what_no_client_sends_is_refused_before_anything_is_opened(
        self, run: Run, option: str, given: str, row: str, said: Said
    ) -> None:
        done = run("serve", "--config", "gone.json", "--http", "127.0.0.1:0", option, given)
        assert (done.returncode, done.stdout) == (2, "")
        said(row, done.stderr)

    @pytest.mark.parametrize(
        "given", ["GW.example.com", "2001:db8::1", "192.0.2.1", "http://[::1]:3000", "vscode-webview://1a-b", "null"]
    )
    def test_what_clients_send_is_taken(self, given: str) -> None:
        from mcp_actors.cli._http import HttpOptions, _check_names

        is_origin = "//" in given or given == "null"
        _check_names(
            HttpOptions("127.0.0.1:0", None, False, [] if is_origin else [given], [given] if is_origin else [])
        )


@pytest.mark.usefixtures("kitchen")
class TestNamesThatAreNoServers:
    @pytest.mark.parametrize(
        ("words", "row"),
        [
            (["check", "other.json"], "file in the place of a server"),
            (["check", "serve.py"], "script in the place of a server"),
            (["check", "localhost:8000/mcp"], "local URL without a scheme in the place of a server"),
            (["tools", "example.com/mcp"], "URL without a scheme in the place of a server"),
            (["call", "localhost:8000/mcp", "cook"], "URL without a scheme in a call"),
            (["check", "ghost.json"], "file that does not exist in the place of a server"),
            (["call", "cook", "dish=soup"], "tool without its server"),
            (["call", "kitchens", "dish=soup"], "misspelled server without a tool"),
            (["call", "cook", "soup"], "word that is no server"),
            (["check", "kitchen,other"], "servers with a comma"),
            (["tools", "kitchen", "cook", "dish=soup"], "tools with the arguments of a call"),
            (["prompts", "kitchen", "plan"], "prompts with a prompt"),
            (["resources", "kitchen", "note://a"], "resources with a resource"),
            (["pins", "approve", "kitchen", "cook"], "pins with a tool after its server"),
        ],
    )
    def test_the_error_shows_how_to_name_them(
        self, tmp_path: Path, run: Run, words: list[str], row: str, said: Said
    ) -> None:
        (tmp_path / "other.json").touch()
        (tmp_path / "serve.py").touch()
        done = run(*words)
        assert (done.returncode, done.stdout) == (2, "")
        said(row, done.stderr, folder=tmp_path, python=sys.executable)


@pytest.mark.parametrize("words", [["check"], ["tools"], ["call", "cook"], ["watch"]])
def test_an_address_is_named_also_without_a_file(run: Run, words: list[str], said: Said) -> None:
    done = run(words[0], "localhost:8000/mcp", *words[1:])
    assert (done.returncode, done.stdout) == (2, "")
    said("local URL without a scheme in the place of a server", done.stderr)


@pytest.mark.usefixtures("kitchen")
@pytest.mark.parametrize("mark", ["/", ".", ":"])
def test_a_tool_follows_its_server_after_any_usual_mark(run: Run, mark: str) -> None:
    assert "dish" in run("tools", f"kitchen{mark}cook").stdout


@pytest.mark.usefixtures("kitchen")
class TestArgumentsOfTools:
    @pytest.mark.parametrize(
        ("words", "row"),
        [
            (["soup"], "argument without a key"),
            (["dish", "=", "soup"], "argument with spaces"),
            (["colour=red"], "argument that the tool does not have"),
        ],
    )
    def test_the_error_lists_the_arguments(self, run: Run, words: list[str], row: str, said: Said) -> None:
        done = run("call", "kitchen", "cook", *words)
        assert (done.returncode, done.stdout) == (2, "")
        said(row, done.stderr)

    def test_a_tool_after_the_command_of_a_server_is_shown_before_it(self, run: Run, said: Said) -> None:
        done = run("call", "--", "kitchen", "--gas", "cook", "dish=soup")
        assert (done.returncode, done.stdout) == (2, "")
        said("tool after the command of a server", done.stderr)


class TestNamesThatAServerDoesNotKnow:
    @pytest.mark.parametrize(
        ("words", "row"),
        [
            (["read", "note:///nothing"], "resource that does not exist"),
            (["prompt", "nothing"], "prompt that does not exist"),
        ],
    )
    def test_the_error_says_where_they_are_listed(self, run: Run, words: list[str], row: str, said: Said) -> None:
        done = run(*words, *notes())
        assert (done.returncode, done.stdout) == (1, "")
        said(row, done.stderr, server=Path(interpreter()).name)

    def test_an_argument_that_a_prompt_requires_is_named_before_it_is_asked_for(self, run: Run, said: Said) -> None:
        done = run("prompt", "plan", *notes())
        assert (done.returncode, done.stdout) == (2, "")
        said("prompt without its argument", done.stderr, server=Path(interpreter()).name)
        for word, row in (
            ("lunch", "value of a prompt without its key"),
            ("meals=lunch", "misspelled argument of a prompt"),
            ("day=Monday", "argument that a prompt does not have"),
        ):
            done = run("prompt", "plan", word, *notes())
            assert done.returncode == 2
            said(row, done.stderr, server=Path(interpreter()).name)
        assert run("prompt", "plan", "meal=lunch", *notes()).returncode == 0

    @pytest.mark.usefixtures("kitchen")
    def test_a_server_of_a_file_is_named_there(self, run: Run) -> None:
        done = run("read", "kitchen", "note:///nothing")
        assert done.stderr.endswith("; mcp-actors resources kitchen lists what it has\n")

    @pytest.mark.usefixtures("kitchen")
    def test_a_program_of_a_server_is_shown_behind_two_dashes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, said: Said
    ) -> None:
        (tmp_path / "mcp-server-time").touch(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        said("program in the place of a server", run("tools", "mcp-server-time").stderr, folder=tmp_path)
        done = run("tools", "mcp-server-time", "--local-timezone", "UTC")
        said("program in the place of a server, with an option", done.stderr)

    def test_a_server_that_has_none_is_named_and_a_prompt_that_it_has_not(self, run: Run, said: Said) -> None:
        kitchen = ("--", interpreter(), KITCHEN)
        for kind, row in (("prompts", "no prompts"), ("resources", "no resources")):
            done = run(kind, *kitchen)
            assert (done.returncode, done.stdout) == (0, "")
            said(row, done.stderr, server=Path(interpreter()).name)
            assert run(kind, "--json", *kitchen).stdout == "[]\n"
        said("prompt of a server without any", run("prompt", "plan", *kitchen).stderr, server=Path(interpreter()).name)

    def test_the_command_of_a_server_that_has_two_dashes_is_not_given_them_again(self, run: Run) -> None:
        done = run("check", "--timeout", "5", "--", "npx", "-y", "@scope/server")
        assert done.returncode == 2
        assert done.stderr.startswith("error: Unknown option: --timeout; the options are: ")

    def test_what_lists_them_does_list_them(self, run: Run) -> None:
        assert "note:///shopping" in run("resources", *notes()).stdout
        assert " plan " in run("prompts", *notes()).stdout


def test_the_commands_that_errors_show_work(tmp_path: Path, run: Run) -> None:
    program, arguments = command()
    (tmp_path / "other.json").write_text(json.dumps({"mcpServers": {"a": {"command": program, "args": arguments}}}))
    assert run("check", "--config", "other.json").returncode == 0
    assert run("call", "echo", "text=here", "--", program, *arguments).stdout == "here\n"


def test_a_gateway_at_a_port_needs_a_valid_one_and_the_secret_of_a_file(tmp_path: Path) -> None:
    from mcp_actors.cli._gateway import _network
    from mcp_actors.cli._output import Misuse

    (file := tmp_path / "secret").write_text("a secret of more than thirty-two characters")
    file.chmod(0o600)
    network = _network("127.0.0.1:8080", str(file))
    assert network is not None
    assert (network.host, network.port) == ("127.0.0.1", 8080)
    with pytest.raises(Misuse, match="--socket "):
        _network("127.0.0.1:99999", str(file))
