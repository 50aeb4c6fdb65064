"""What may be shown of a command line."""

from __future__ import annotations

import pytest

from mcp_actors import Stdio


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["-y", "package@1.0", "--verbose"], ["-y", "package@1.0", "--verbose"]),
        (["--token", "hunter2", "x"], ["--token", "…", "x"]),
        (["--token", "--verbose", "x"], ["--token", "--verbose", "x"]),
        (["--api-key=hunter2", "x"], ["--api-key=…", "x"]),
        (["-e", "GITHUB_TOKEN=hunter2", "-e", "MODE=fast"], ["-e", "GITHUB_TOKEN=…", "-e", "MODE=fast"]),
        (["-e", "GITHUB_TOKEN"], ["-e", "GITHUB_TOKEN"]),
        (["--header", "Authorization: Bearer hunter2"], ["--header", "…"]),
        (["-H", "Authorization: Bearer hunter2"], ["-H", "…"]),
        (["Authorization: Bearer hunter2"], ["Authorization:…"]),
        (["postgresql://user:hunter2@host/db"], ["postgresql://host/db"]),
        (["--url=https://host/mcp?key=hunter2"], ["--url=https://host/mcp?key=…"]),
        (["--root", "/home/user"], ["--root", "/home/user"]),
    ],
)
def test_credentials_on_a_command_line_are_masked(args: list[str], shown: list[str]) -> None:
    assert f"args={tuple(shown)!r}" in repr(Stdio("server", args))
