"""One tool and its call: signatures, arguments as JSON, public names, limits of time, files, stderr and crashes."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..messages import Said
from .conftest import Run
from .showcase import FORECAST, FORGED, PICTURE
from .terminal import PATIENCE, program, scripted, terminal, write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

SHOWCASE = (sys.executable, "-S", "-E", "-X", "utf8", str(Path(__file__).with_name("showcase.py")))
SIZE = "12 296 bytes"


def showcase(*words: str) -> dict[str, Any]:
    """Return the entry of the server with all kinds of tools."""
    command, *arguments = (*SHOWCASE, *words)
    return {"command": command, "args": arguments, "mcp_actors": {"protocol": "legacy"}}


@pytest.fixture(autouse=True)
def weather(tmp_path: Path) -> Path:
    """Configure one server, and return the log of what it gets."""
    write(tmp_path, {"weather": showcase("--log", str(tmp_path / "log"))})
    return tmp_path / "log"


def left_in(folder: Path) -> set[str]:
    """Return the names of all files but those that the tests have made themselves."""
    return {path.name for path in folder.iterdir()} - {"log", ".mcp.json"}


class TestSignature:
    @pytest.mark.parametrize(
        "words",
        [["weather/forecast"], ["weather", "forecast"], ["mcp__weather__forecast"], ["forecast", "--", *SHOWCASE]],
    )
    def test_one_tool_is_shown_with_its_arguments(self, run: Run, words: list[str]) -> None:
        done = run("tools", *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            'forecast(city: str, units: "metric"|"imperial" = "metric")',
            "    Forecast the weather.",
            "",
            "    For days.",
            "",
            "    city   Its name. (minLength 1, maxLength 80)",
            "    units  Of all numbers.",
        ]

    def test_every_kind_of_schema_has_a_type(self, run: Run) -> None:
        assert run("tools", "weather/search").stdout.splitlines() == [
            "search(",
            "    tags: list[str],",
            '    order: "asc"|"desc",',
            "    node: {child?: {child?: {child?: {child?: …}}}} = …,",
            "    rows: {first: int} = …,",
            "    note: str | None = None,",
            "    version: 2 = …,",
            "    exact: bool = True,",
            "    either: int | str = …,",
            "    labels: dict[str, float] = …,",
            "    far: any = …,",
            "    lost: any = …,",
            "    **others: int,",
            ")",
            "",
            "    rows  Which.",
            "    note  (maxLength 9)",
        ]

    def test_a_tool_without_properties_has_no_arguments(self, run: Run) -> None:
        assert run("tools", "weather/nothing").stdout == "nothing()\n"

    def test_hostile_schemas_are_bounded_and_cannot_act_on_a_terminal(self, tmp_path: Path) -> None:
        with terminal(tmp_path, "tools", "weather/hostile") as shown:
            assert shown.wait() == 0
        assert b"\x1b[2J" not in shown.raw
        assert "\u202e" not in shown.text
        assert not [line for line in shown.text.splitlines() if line.startswith("FORGED")]
        assert "deep: list[list[list[list[…]]]] = …," in shown.text
        assert "wide: 0|1|2|3|4|5|6|7|8|9|10|11|… = …," in shown.text

    def test_json_is_the_tool_as_mcp_has_it(self, run: Run) -> None:
        tool = json.loads(run("tools", "weather/forecast", "--json").stdout)
        assert (tool["name"], tool["inputSchema"]) == ("forecast", FORECAST)

    def test_a_name_with_a_slash_is_a_server_if_there_is_one(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"git/hub": showcase(), "git": scripted()})
        assert run("tools", "git/hub").stdout.startswith("git_hub forecast(")
        assert run("tools", "git/hub/nothing").stdout == "nothing()\n"
        assert run("tools", "git/echo").stdout.startswith("echo(text: str)\n")
        assert "git echo(text)\n" in run("tools", "git", "git/hub").stdout

    @pytest.mark.parametrize(
        ("words", "row"),
        [
            (["weather/forcast"], "a tool that is not there"),
            (["wether/forecast"], "a server that is not there"),
            (["weather/forecast", "x"], "words after a tool"),
        ],
    )
    def test_a_wrong_name_is_explained(self, tmp_path: Path, run: Run, said: Said, words: list[str], row: str) -> None:
        done = run("tools", *words)
        assert (done.returncode, done.stdout) == (2, "")
        said(row, done.stderr, folder=tmp_path)

    @pytest.mark.parametrize("words", ["tools", "tools --json", "tools a/hostile", "tools a/hostile --json"])
    def test_credentials_in_schemas_and_names_of_arguments_are_masked(
        self, tmp_path: Path, run: Run, words: str
    ) -> None:
        """B-18: as in descriptions."""
        write(tmp_path, {"a": {**showcase(), "env": {"KEY": FORGED, "OTHER": "imperial"}}})
        done = run(*words.split())
        assert (done.returncode, done.stderr) == (0, "")
        assert "<env.KEY>" in done.stdout
        assert ("FORGED" in done.stdout, "imperial" in done.stdout) == (False, False)


class TestArguments:
    GIVEN = '{"city": "Oslo", "units": "imperial"}'

    @pytest.mark.parametrize("tool", [["weather", "forecast"], ["weather/forecast"], ["mcp__weather__forecast"]])
    @pytest.mark.parametrize("words", [[GIVEN], ["@args.json"], ["-"], ["city=Oslo", "units=imperial"]])
    def test_they_are_words_or_json_from_anywhere(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tool: list[str], words: list[str]
    ) -> None:
        (tmp_path / "args.json").write_text(self.GIVEN)
        monkeypatch.setattr("sys.stdin", io.StringIO(self.GIVEN))
        done = run("call", *tool, *words)
        assert (done.returncode, json.loads(done.stdout)) == (0, json.loads(self.GIVEN))

    def test_what_a_signature_shows_can_be_typed(self, run: Run) -> None:
        expected = {"tags": ["a"], "order": "asc", "exact": True, "version": 2, "labels": {}, "more": 3}
        words = ["tags=a", "order=asc", "exact=True", "version=2", "labels={}", "more=3"]
        assert json.loads(run("call", "weather", "search", *words).stdout) == expected

    @pytest.mark.parametrize(
        ("words", "code", "row"),
        [
            (["city=Oslo", "{}"], 2, "JSON and words"),
            (["{}", "{}"], 2, "JSON and words"),
            (["@args.json", "city=Oslo"], 2, "JSON and words"),
            (["{city:", "Oslo}"], 2, "JSON that the shell has split"),
            (["@args.json"], 2, "a file of arguments that is empty"),
            (["@nowhere.json"], 1, "a file of arguments that is missing"),
            (["@log"], 2, "a file of arguments that is not JSON"),
            (["-"], 2, "standard input that is not an object"),
            (["{"], 2, "JSON that is not complete"),
            (["--args", "{}"], 2, "an option that is no option"),
        ],
    )
    def test_a_wrong_form_is_refused_before_anything_is_sent(
        self,
        weather: Path,
        run: Run,
        monkeypatch: pytest.MonkeyPatch,
        said: Said,
        words: list[str],
        code: int,
        row: str,
    ) -> None:
        weather.write_text("x")
        weather.with_name("args.json").touch()
        monkeypatch.setattr("sys.stdin", io.StringIO("[]"))
        done = run("call", "weather", "forecast", *words)
        assert (done.returncode, done.stdout) == (code, "")
        said(row, done.stderr)
        assert weather.read_text() == "x"

    def test_a_call_without_a_tool_says_how_to_name_one(self, run: Run, said: Said) -> None:
        for words in (["weather"], ["weather", "city=Oslo"]):
            done = run("call", *words)
            assert done.returncode == 2
            said("a call without a tool", done.stderr)

    def test_a_public_name_that_two_servers_may_have_is_found(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted(), "a__b": showcase(), "c": {"command": "no-such-program"}})
        [tool] = [each for each in json.loads(run("tools", "a__b", "--json").stdout) if each["name"] == "nothing"]
        assert run("call", tool["public_name"]).stdout == "{}\n"
        assert run("call", "mcp__a__echo", "text=x").stdout == "x\n"


class TestTimeout:
    def test_it_is_for_the_call(self, tmp_path: Path, run: Run, said: Said) -> None:
        write(tmp_path, {"a": scripted(request_timeout=600)})
        done = run("call", "a", "mute", "--timeout", "0.2")
        assert done.returncode == 1
        said("--timeout expired", done.stderr)

    def test_without_it_the_error_names_it(self, tmp_path: Path, run: Run, said: Said) -> None:
        write(tmp_path, {"a": scripted(request_timeout=0.2)})
        done = run("call", "a", "mute")
        assert done.returncode == 1
        said("request_timeout expired", done.stderr)

    @pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
    def test_it_is_a_positive_number(self, run: Run, said: Said, seconds: str) -> None:
        done = run("call", "weather", "forecast", "--timeout", seconds)
        assert done.returncode == 2
        said("--timeout not positive", done.stderr, seconds=float(seconds))


class TestBinary:
    READ = ("read", "weather", "map://oslo")
    CALL = ("call", "weather", "picture")

    @pytest.mark.parametrize("words", [READ, CALL])
    def test_a_terminal_gets_its_type_and_size(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        with terminal(tmp_path, *words) as shown:
            assert shown.wait() == 0
        assert shown.text.endswith(f"image/png, {SIZE}; save it with --output FILE\n")
        assert b"\x89PNG" not in shown.raw

    @pytest.mark.parametrize("words", [READ, CALL])
    def test_a_pipe_gets_the_data(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        line = [*program(), *words, "--config", ".mcp.json"]
        assert subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=PATIENCE, check=True).stdout == PICTURE

    def test_a_pipe_gets_a_line_for_data_between_texts(self, run: Run) -> None:
        assert run("call", "weather", "mixed").stdout == f"a chart:\nimage/png, {SIZE}; save it with --output FILE\n"

    @pytest.mark.parametrize("words", [READ, CALL])
    def test_it_is_saved(self, tmp_path: Path, run: Run, words: tuple[str, ...]) -> None:
        umask = os.umask(0o027)
        try:
            done = run(*words, "--output", "map.png")
        finally:
            os.umask(umask)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", f"saved map.png (image/png, {SIZE})\n")
        assert (tmp_path / "map.png").read_bytes() == PICTURE
        assert stat.S_IMODE((tmp_path / "map.png").stat().st_mode) == 0o640
        assert left_in(tmp_path) == {"map.png"}

    def test_an_old_file_keeps_its_mode_and_a_link_its_target(self, tmp_path: Path, run: Run) -> None:
        (tmp_path / "old.png").write_bytes(b"old")
        (tmp_path / "old.png").chmod(0o604)
        (tmp_path / "link.png").symlink_to("old.png")
        assert run(*self.CALL, "--output", "link.png").returncode == 0
        assert (tmp_path / "link.png").is_symlink()
        assert (tmp_path / "old.png").read_bytes() == PICTURE
        assert stat.S_IMODE((tmp_path / "old.png").stat().st_mode) == 0o604

    def test_several_have_numbers_and_texts_are_printed(self, tmp_path: Path, run: Run) -> None:
        done = run("call", "weather", "gallery", "--output", "a.png")
        assert done.stderr == f"saved a-1.png (image/png, {SIZE})\nsaved a-2.png (image/png, 3 bytes)\n"
        assert (tmp_path / "a-2.png").read_bytes() == b"two"
        assert run("call", "weather", "mixed", "--output", "b.png").stdout == "a chart:\n"
        assert left_in(tmp_path) == {"a-1.png", "a-2.png", "b.png"}

    def test_a_text_is_saved_too(self, tmp_path: Path, run: Run) -> None:
        done = run("read", "weather", "map://text", "--output", "map.txt")
        assert (done.stdout, done.stderr) == ("", "saved map.txt (text, 6 bytes)\n")
        assert (tmp_path / "map.txt").read_text() == "a map\n"

    def test_json_is_printed_and_the_file_saved(self, tmp_path: Path, run: Run) -> None:
        done = run(*self.CALL, "--json", "--output", "map.png")
        assert json.loads(done.stdout)["content"][0]["mimeType"] == "image/png"
        assert left_in(tmp_path) == {"map.png"}

    def test_nothing_is_saved_of_a_tool_that_fails_or_sends_no_base64(
        self, tmp_path: Path, run: Run, said: Said
    ) -> None:
        (tmp_path / "a.png").write_bytes(b"old")
        assert run("call", "weather", "fails", "--output", "a.png").returncode == 1
        done = run("call", "weather", "broken", "--output", "a.png")
        assert done.returncode == 1
        said("data that is not base64", done.stderr)
        assert (tmp_path / "a.png").read_bytes() == b"old"
        assert left_in(tmp_path) == {"a.png"}

    @pytest.mark.parametrize(
        ("file", "code", "row"),
        [
            ("none/a.png", 1, "--output in a folder that is missing"),
            ("log/a.png", 1, "--output in a file"),
            (".", 2, "--output that is a folder"),
            ("/dev/null", 2, "--output that is a device"),
        ],
    )
    @pytest.mark.parametrize("words", [READ, CALL])
    def test_a_file_that_cannot_be_written_is_refused_before_anything_is_sent(
        self,
        tmp_path: Path,
        weather: Path,
        run: Run,
        said: Said,
        words: tuple[str, ...],
        file: str,
        code: int,
        row: str,
    ) -> None:
        weather.write_text("x")
        done = run(*words, "--output", file)
        assert (done.returncode, done.stdout) == (code, "")
        said(row, done.stderr, folder=tmp_path)
        assert weather.read_text() == "x"

    def test_a_full_disk_leaves_the_old_file(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, said: Said
    ) -> None:
        (tmp_path / "a.png").write_bytes(b"old")

        def full(descriptor: int) -> None:
            if os.fstat(descriptor).st_size == len(PICTURE):
                raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        done = run(*self.CALL, "--output", "a.png")
        monkeypatch.undo()
        assert done.returncode == 1
        said("--output on a full disk", done.stderr, folder=tmp_path)
        assert (tmp_path / "a.png").read_bytes() == b"old"
        assert left_in(tmp_path) == {"a.png"}


class TestStderr:
    def test_it_is_shown_as_plain_text_and_named_where_several_servers_are(self, tmp_path: Path, run: Run) -> None:
        assert run("call", "weather", "nothing", "-v").stderr == "warming up\n"
        write(tmp_path, {"a": showcase(), "b": showcase()})
        done = run("check", "--verbose")
        assert sorted(done.stderr.splitlines()) == ["a: warming up", "b: warming up"]
        assert run("call", "a", "nothing").stderr == ""

    def test_credentials_in_it_are_masked(self, tmp_path: Path, run: Run) -> None:
        entry = scripted("--stderr", "key is s3cret-s3cret\n")
        write(tmp_path, {"a": {**entry, "env": {"API_KEY": "s3cret-s3cret"}}})
        done = run("call", "a", "echo", "text=x", "-v")
        assert done.stderr.startswith("key is ")
        assert "s3cret" not in done.stderr

    def test_the_last_lines_of_a_server_that_crashes_are_shown(self, run: Run, said: Said) -> None:
        done = run("call", "weather", "crash")
        assert (done.returncode, done.stdout) == (1, "")
        said("a crash during a call", done.stderr)

    def test_progress_is_a_line_where_no_terminal_is(self, run: Run) -> None:
        assert run("call", "weather", "forecast", "city=Oslo").stderr == "progress: 1 of 4 map\n"


EIGHT = {
    "tools weather": "weather forecast([units], city)",
    "tools weather/forecast": "forecast(city: str",
    "call weather forecast city=Oslo": '{"city": "Oslo"}',
    'call weather forecast {"city":"Oslo"}': '{"city": "Oslo"}',
    "resources weather": "weather map map://oslo",
    "read weather map://text": "a map",
    "prompts weather": "weather plan (city)",
    "prompt weather plan city=Oslo": "user: Plan a day in Oslo.",
}


@pytest.mark.parametrize("line", EIGHT)
def test_eight_tasks_need_as_few_words_as_they_have_parts(run: Run, line: str) -> None:
    """A command, a server, and for each thing that is named or given one word."""
    done = run(*line.split())
    assert done.returncode == 0
    assert EIGHT[line] in done.stdout
    assert len(line.split()) <= 4
