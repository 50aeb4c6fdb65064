"""The server over each transport: over HTTP one process for the tests of this folder, over stdio one for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve

from mcp_actors import Http, ServerConfig, Sse, Stdio

from .server import command, over_http

OVER_STDIO: Final = {
    "test_a_call_without_progress_times_out_and_one_with_progress_does_not",
    "test_a_model_is_asked_through_the_client",
    "test_calls_run_side_by_side_and_those_that_are_cancelled_leave_at_once",
    "test_changes_of_subscribed_resources_are_reported",
    "test_prompts_are_filled_in",
    "test_results_of_every_kind_come_as_they_are",
    "test_texts_and_bytes_are_read",
    "test_the_legacy_era_is_found_out_and_the_server_says_what_it_is",
}
"""The tests that run over stdio too, which takes a process of Node each: one at least for each kind of message."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of the server over both transports of HTTP, and over stdio if it is one of those that do."""
    if "everything" in metafunc.fixturenames:
        stdio = ["stdio"] * (metafunc.function.__name__ in OVER_STDIO)
        metafunc.parametrize("everything", [*stdio, "streamableHttp", "sse"], indirect=True, scope="package")


@pytest.fixture(scope="package")
def everything(request: pytest.FixtureRequest, npm_packages: None) -> Iterator[ServerConfig]:
    """How to connect to the server over one of its transports; a test that uses this runs once for each."""
    program, arguments = command(request.param)
    if request.param == "stdio":
        yield ServerConfig("everything", Stdio(program, arguments))
        return
    with tempfile.TemporaryFile() as log, over_http(request.param, log) as port:
        here = f"http://127.0.0.1:{port}"
        yield ServerConfig("everything", Sse(f"{here}/sse") if request.param == "sse" else Http(f"{here}/mcp"))


@pytest.fixture(scope="session")
def over_stdio(npm_packages: None) -> ServerConfig:
    """How to connect to the server over stdio."""
    program, arguments = command("stdio")
    return ServerConfig("everything", Stdio(program, arguments))


class Asked:
    """The server over stdio, and the methods of all messages that it was sent."""

    def __init__(self, config: ServerConfig, file: Path) -> None:
        self.config = config
        self._file = file

    def count(self, method: str) -> int:
        """Return how often it was sent a message so far."""
        return self._file.read_text().split().count(method)


@pytest.fixture
def asked(over_stdio: ServerConfig, tmp_path: Path) -> Asked:
    """The server over stdio, with a list of what it is asked."""
    assert isinstance(over_stdio.transport, Stdio)
    spy = ("--import", str(Path(__file__).with_name("asked.mjs")))
    file = tmp_path / "asked.txt"
    transport = evolve(over_stdio.transport, args=(*spy, *over_stdio.transport.args), env={"ASKED": str(file)})
    return Asked(evolve(over_stdio, transport=transport), file)
