"""How a server is reached: what is kept, what is refused and how, and what is never shown."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import attrs
import pytest

from mcp_actors import ConfigError, InProcess, Secret, ServerConfig, Socket, Stdio, load_config
from mcp_actors.config import dump_config, parse_address
from mcp_actors.config._template import resolved, variables_of

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
            (["server", "--x"], "command is a list of words"),
            ([], "command is a list"),
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

        assert repr(InProcess(Server())) == "InProcess(server=<Server>)"  # type: ignore[arg-type]  # not a server of the SDK

    def test_it_is_equal_by_the_identity_of_the_server(self) -> None:
        one: list[int] = []
        other: list[int] = []
        assert {InProcess(one): 1}[InProcess(one)] == 1  # type: ignore[arg-type]  # not a server of the SDK
        assert InProcess(one) != InProcess(other)  # type: ignore[arg-type]  # not a server of the SDK

    @pytest.mark.parametrize(("server", "shown"), [(None, "None"), ("mcp-server-time", "a str")])
    def test_a_name_is_not_a_server(self, server: object, shown: str, said: Said) -> None:
        error = refusal(InProcess, server)
        said("InProcess without a server object", str(error), kind=shown)
        assert error.path == "server"


SECRET = "a secret of both sides"


class TestSocket:
    @pytest.mark.parametrize(
        ("address", "parsed"),
        [
            ("/run/x.sock", "/run/x.sock"),
            ("localhost:7000", ("localhost", 7000)),
            ("10.0.0.5:1", ("10.0.0.5", 1)),
            ("[::1]:7000", ("::1", 7000)),
            ("[fe80::1%eth0]:65535", ("fe80::1%eth0", 65535)),
        ],
    )
    def test_an_address_is_a_path_or_a_host_and_a_port(self, address: str, parsed: object) -> None:
        assert parse_address(address) == parsed
        assert Socket(address, secret=SECRET).address == address

    def test_a_path_may_begin_at_the_home_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/me")
        assert parse_address("~/x.sock") == "/home/me/x.sock"

    @pytest.mark.parametrize(
        "address", ["", "x.sock", "host", "host:", ":7000", "::1:7000", "host:65536", "user@host:1", "/x\0", "a b:1"]
    )
    def test_another_address_is_refused(self, address: str) -> None:
        error = refusal(Socket, address, secret=SECRET)
        assert error.path == "address"
        assert "is neither a path nor a host and a port; write '/run/x.sock', 'host:port'" in str(error)

    def test_an_address_of_another_type_is_refused(self) -> None:
        assert "address is a tuple; give a path, 'host:port', or an async function" in str(refusal(Socket, ("h", 1)))

    def test_a_host_needs_a_secret_and_a_path_does_not(self) -> None:
        assert Socket("/run/x.sock").secret is None
        error = refusal(Socket, "host:7000")
        assert str(error) == (
            "Socket: address 'host:7000' is on a network, and there is no secret; set secret or secret_file to that of "
            "the gateway's --secret-file"
        )

    def test_a_function_may_return_either_so_it_is_checked_at_the_connect(self) -> None:
        async def address() -> str:
            return "host:7000"

        assert repr(Socket(address)) == "Socket(<address>)"
        assert Socket(address).display_address.endswith("<locals>.address>")

    def test_two_secrets_are_refused(self) -> None:
        error = refusal(Socket, "host:7000", secret=SECRET, secret_file="/x")
        assert "secret and secret_file are both given; remove one of them" in str(error)

    @pytest.mark.parametrize("secret", ["short", Secret("hunter2")])
    def test_a_short_secret_is_refused_without_being_shown(self, secret: str | Secret) -> None:
        error = refusal(Socket, "host:7000", secret=secret)
        assert "the secret has fewer than 16 characters; make one with: openssl rand -hex 32" in str(error)
        assert "hunter2" not in str(error)

    def test_a_secret_of_another_type_is_refused(self) -> None:
        assert "secret is a bytes; give a str, a Secret, or a function" in str(refusal(Socket, "h:1", secret=b"x" * 32))

    def test_a_variable_is_checked_at_the_connect(self) -> None:
        assert Socket("host:7000", secret="${S}").secret == "${S}"

    @pytest.mark.parametrize("server", ["", "a b", "n" * 65, 7])
    def test_a_name_that_no_server_has_is_refused(self, server: object) -> None:
        assert refusal(Socket, "/x", server=server).path == "server"

    def test_its_repr_does_not_show_the_secret(self) -> None:
        shown = repr(Socket("host:7000", secret=SECRET, server="docs"))
        assert shown == "Socket('host:7000', server='docs', secret=…)"

    def test_a_secret_that_is_a_secret_cannot_be_pickled(self) -> None:
        with pytest.raises(TypeError, match="a Secret cannot be pickled"):
            pickle.dumps(Socket("host:7000", secret=Secret(SECRET)))

    def test_its_signature_shows_names_types_and_defaults(self) -> None:
        names = ["address", "server", "secret", "secret_file", "max_line_bytes"]
        assert list(inspect.signature(Socket).parameters) == names


class TestSocketInFiles:
    def test_an_entry_with_a_socket(self) -> None:
        entry = {"type": "socket", "socket": "h:7000", "server": "docs", "secret_file": "~/s", "mcp_actors": {}}
        [config] = load_config({"mcpServers": {"a": entry}}).servers
        assert config.transport == Socket("h:7000", server="docs", secret_file="~/s")

    def test_variables_are_resolved_at_each_connect_and_masked(self) -> None:
        entry = {"socket": "${HOST}:7000", "secret": "${GATEWAY_SECRET}"}
        [config] = load_config({"mcpServers": {"a": entry}}).servers
        made = resolved(config.transport, {"HOST": "h"}, where="a")
        assert made == Socket("h:7000", secret="${GATEWAY_SECRET}")
        assert dict(variables_of(config.transport, {"HOST": "h", "GATEWAY_SECRET": SECRET})) == {
            "${HOST}": "h",
            "${GATEWAY_SECRET}": SECRET,
        }

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ({"socket": "h:1"}, "mcpServers.a: address 'h:1' is on a network, and there is no secret"),
            ({"socket": "h"}, "mcpServers.a.socket: address 'h' is neither a path nor a host and a port"),
            ({"socket": "/x", "command": "x"}, "both 'command' and 'socket' are given; remove one of them"),
            ({"socket": "/x", "url": "https://x.y"}, "both 'url' and 'socket' are given; remove one of them"),
            ({"type": "socket", "command": "x"}, "'type' is 'socket', which contradicts 'command'"),
            ({"type": "http", "socket": "/x"}, "'type' is 'http', which contradicts 'socket'"),
            ({"type": "socket"}, "the type is 'socket', but there is no 'socket'; write it"),
        ],
    )
    def test_an_entry_that_is_not_valid_is_refused_at_its_place(self, entry: dict[str, Any], said: str) -> None:
        [error] = load_config({"mcpServers": {"a": entry}}).errors
        assert said in str(error)

    def test_keys_of_a_socket_have_no_effect_for_a_command(self) -> None:
        loaded = load_config({"mcpServers": {"a": {"command": "x", "server": "y", "secret": "z"}}})
        assert len(loaded.warnings) == 2
        assert "a.server: this has no effect, because it is only for a server with a socket" in loaded.warnings[0]

    def test_it_is_written_back(self) -> None:
        entries = {
            "a": {"socket": "${HOST}:7000", "server": "docs", "secret": "${GATEWAY_SECRET}"},
            "b": {"socket": "/run/x.sock", "mcp_actors": {"max_line_bytes": 5}},
            "c": {"socket": "~/x.sock", "secret_file": "~/secret"},
            "d": {"command": "x", "mcp_actors": {"trust_outcomes": True}},
        }
        servers = load_config({"mcpServers": entries}).servers
        assert dump_config(servers)["mcpServers"] == entries

    def test_a_secret_and_a_function_are_not_written_back(self) -> None:
        with pytest.raises(ConfigError, match=r"secret is a literal value; write it as \$\{VARIABLE\}"):
            dump_config([ServerConfig("a", Socket("h:1", secret=SECRET))])

        async def address() -> str:
            return "/x"

        with pytest.raises(ConfigError, match=r"address is a Python object \(function\)"):
            dump_config([ServerConfig("a", Socket(address))])

    def test_a_trusted_program_is_a_setting(self) -> None:
        entry = {"command": "ssh", "mcp_actors": {"trust_outcomes": True}}
        [config] = load_config({"mcpServers": {"a": entry}}).servers
        assert config.transport == Stdio("ssh", trust_outcomes=True)
        [error] = load_config({"mcpServers": {"a": {"command": "x", "mcp_actors": {"trust_outcomes": 1}}}}).errors
        assert "trust_outcomes" in str(error)
