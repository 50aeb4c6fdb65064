"""How a server is reached: what is kept, what is refused and how, and what is never shown."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import attrs
import pytest

from mcp_actors import ConfigError, InProcess, Stdio
from mcp_actors.config import Secret

from ..messages import Said


def refusal(make: Any, *args: Any, **kwargs: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        make(*args, **kwargs)
    assert caught.value.source == make.__name__
    assert str(caught.value).startswith(f"{make.__name__}: ")
    return caught.value


class TestStdio:
    def test_a_command_is_enough(self) -> None:
        stdio = Stdio("mcp-server-time")
        assert (stdio.command, stdio.args, dict(stdio.env), stdio.env_from) == ("mcp-server-time", (), {}, ())
        assert (stdio.cwd, stdio.max_line_bytes) == (None, 64 * 1024 * 1024)

    def test_paths_may_be_given_as_paths_and_may_be_relative(self) -> None:
        stdio = Stdio(Path("bin/server"), cwd=Path("work"))
        assert (stdio.command, stdio.cwd) == ("bin/server", "work")

    def test_arguments_become_a_tuple(self) -> None:
        given = ["--root", "/x"]
        stdio = Stdio("server", given, env_from=["HOME"])
        given.append("--force")
        assert (stdio.args, stdio.env_from) == (("--root", "/x"), ("HOME",))

    def test_env_is_a_copy_that_cannot_be_changed(self) -> None:
        given = {"A": "1"}
        stdio = Stdio("server", env=given)
        given["A"] = "2"
        assert stdio.env == {"A": "1"}
        with pytest.raises(TypeError):
            stdio.env["A"] = "3"  # type: ignore[index]  # that it refuses is what is tested

    def test_env_values_may_be_texts_secrets_and_functions(self) -> None:
        async def token() -> str:
            return "x"

        stdio = Stdio("server", env={"A": "${A}", "B": Secret("b"), "C": lambda: "c", "D": token})
        assert list(stdio.env) == ["A", "B", "C", "D"]
        assert stdio.env["D"] is token

    def test_it_is_frozen_hashable_copyable_and_equal_to_what_was_configured_alike(self) -> None:
        stdio = Stdio("server", ["a"], env={"A": "1", "B": Secret("b")})
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            stdio.command = "other"  # type: ignore[misc]  # that it refuses is what is tested
        same = Stdio("server", ("a",), env={"B": Secret("b"), "A": "1"})
        assert {stdio: 1}[same] == 1
        assert stdio != Stdio("server", ["a"], env={"A": "1", "B": Secret("c")})
        assert copy.deepcopy(stdio) == stdio
        plain = attrs.evolve(stdio, env={"A": "1"})
        assert pickle.loads(pickle.dumps(plain)) == plain

    @pytest.mark.parametrize(
        ("command", "problem"),
        [
            ("", "command is empty"),
            (" ", "command is empty"),
            ("a\0b", "command contains a NUL character"),
            ("a\ud800", "command contains a character that"),
            (None, "command is None"),
            (b"server", "command is a bytes"),
            (["server", "--x"], "command is a list"),
        ],
    )
    def test_an_invalid_command_is_refused(self, command: object, problem: str, said: Said) -> None:
        error = refusal(Stdio, command)
        said(problem, str(error))
        assert error.path == "command"

    def test_an_invalid_directory_is_refused(self, said: Said) -> None:
        said("cwd is empty", str(refusal(Stdio, "server", cwd="")))
        said("cwd is an int", str(refusal(Stdio, "server", cwd=3)))

    @pytest.mark.parametrize(
        ("args", "problem"),
        [
            ("--verbose", "did you mean args=('--verbose',)"),
            ("--root /x", "did you mean args=('--root', '/x')"),
            ("--token abc", "did you mean args=('--token', '…')"),
            (b"x", "args is a bytes"),
            (5, "args is an int"),
            ({"a": "b"}, "args is a dict"),
            (["--port", 8080], "args[1] is an int"),
            (["--root", Path("/x")], "args[1] is a PosixPath"),
            (["a\0b"], "args[0] contains a NUL character"),
            (["a\ud800"], "args[0] contains a character that"),
        ],
    )
    def test_invalid_arguments_are_refused(self, args: object, problem: str, said: Said) -> None:
        error = refusal(Stdio, "server", args)
        said(problem, str(error))
        assert error.path == "args"

    @pytest.mark.parametrize(
        ("env", "problem", "path"),
        [
            (["A=1"], "env is a list", "env"),
            (None, "env is None", "env"),
            (
                {"PORT": 8080},
                "env['PORT'] is an int",
                "env.PORT",
            ),
            ({"A": None}, "env['A'] is None", "env.A"),
            ({"A": "hunter2\0"}, "env['A']: the value contains a NUL character", "env.A"),
            ({"A": "\ud800hunter2"}, "env['A']: the value contains a character that", "env.A"),
            ({"A": Secret("hunter2\0")}, "env['A']: the value contains a NUL character", "env.A"),
        ],
    )
    def test_an_invalid_env_is_refused_without_its_values(
        self, env: object, problem: str, path: str, said: Said
    ) -> None:
        error = refusal(Stdio, "server", env=env)
        said(problem, str(error))
        assert error.path == path

    @pytest.mark.parametrize(
        ("name", "shown"), [("", "''"), ("A=hunter2", "'A=…'"), ("A\0", r"'A\x00'"), (3, "3")], ids=str
    )
    def test_an_invalid_name_of_a_variable_is_refused(self, name: Any, shown: str, said: Said) -> None:
        error = refusal(Stdio, "server", env={name: "hunter2"})
        said("invalid name of a variable", str(error), name=shown)

    def test_a_value_in_env_from_is_refused_without_being_shown(self) -> None:
        error = refusal(Stdio, "server", env_from=["TOKEN=hunter2"])
        assert str(error).startswith("Stdio: env_from contains 'TOKEN=…', which ")
        assert error.path == "env_from"

    def test_one_plain_str_for_env_from_is_refused(self, said: Said) -> None:
        said("env_from is a single str", str(refusal(Stdio, "server", env_from="HOME")))

    def test_a_variable_both_set_and_passed_on_is_refused_naming_both_options(self, said: Said) -> None:
        """S4-26: contradictory options are refused, both named."""
        error = refusal(Stdio, "server", env={"TOKEN": "x"}, env_from=["HOME", "TOKEN"])
        said("a variable in env and in env_from", str(error))

    @pytest.mark.parametrize("size", [0, -1, True, 1.5, None])
    def test_the_longest_line_is_a_whole_number_of_bytes(self, size: object) -> None:
        error = refusal(Stdio, "server", max_line_bytes=size)
        assert str(error).startswith(f"Stdio: max_line_bytes={size} is not valid; give a number of bytes")

    def test_repr_shows_the_names_of_env_and_no_value(self) -> None:
        stdio = Stdio("server", ["-v"], env={"TOKEN": "hunter2", "F": lambda: "hunter2"})
        assert repr(stdio) == "Stdio('server', args=('-v',), env={'TOKEN': …, 'F': …})"
        assert repr(stdio.env) == "{'TOKEN': …, 'F': …}"

    def test_its_signature_shows_names_types_and_defaults(self) -> None:
        parameters = inspect.signature(Stdio).parameters
        assert list(parameters) == [
            "command",
            "args",
            "env",
            "env_from",
            "cwd",
            "max_line_bytes",
            "sandbox",
            "trust_outcomes",
        ]
        assert parameters["args"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert parameters["env"].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters["env"].annotation == "Mapping[str, ConfigValue]"


class TestInProcess:
    def test_any_object_may_be_the_server_and_its_repr_is_not_shown(self) -> None:
        class Server:
            def __repr__(self) -> str:
                return "hunter2"

        assert repr(InProcess(Server())) == "InProcess(server=<Server>)"

    def test_it_is_equal_by_the_identity_of_the_server(self) -> None:
        one: list[int] = []
        other: list[int] = []
        assert {InProcess(one): 1}[InProcess(one)] == 1
        assert InProcess(one) != InProcess(other)

    @pytest.mark.parametrize(("server", "shown"), [(None, "None"), ("mcp-server-time", "a str")])
    def test_a_name_is_not_a_server(self, server: object, shown: str, said: Said) -> None:
        error = refusal(InProcess, server)
        said("InProcess without a server object", str(error), kind=shown)
        assert error.path == "server"
