"""Programs of this package are started by a Python interpreter, or refused by name where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

import mcp_actors
from mcp_actors import ConfigError
from mcp_actors._python import our_python
from mcp_actors.config import _template

from .copies import needs_packages
from .forkserver import run_python
from .servers.transports.test_sandbox import needs_landlock
from .source import ROOT

PATIENCE: Final = 60.0

PROGRAM: Final = f"""#!{sys.executable}
# Its starts are counted; the fifth ends itself, so a program that starts itself again and again is harmless.
import json, os, sys
from pathlib import Path

starts = Path(os.environ["HOME"], "starts")  # HOME reaches servers, other names do not
with starts.open("a") as file:
    file.write("started\\n")
if len(starts.read_text().splitlines()) > 4:
    sys.exit(1)

import trio
from mcp_actors import ServerConfig, Stdio, cli, open_servers
from mcp_actors.config import Sandbox

if sys.argv[1] == "frozen":
    sys.frozen = True
sys.executable = os.path.abspath(__file__)
host = Path(os.environ["HOME"], "host.json")
host.write_text('{{"mcpServers": {{"time": {{"command": "true"}}}}}}')
said = {{}}

async def main():
    async with open_servers(ServerConfig("time", Stdio("true", sandbox=Sandbox()), connect_timeout=10)) as servers:
        said["sandbox"] = str(servers.errors["time"])

trio.run(main)
for words in (["attach", "--config", str(host)], ["config", "attach", "cursor", "--file", str(host)]):
    sys.argv[1:] = words
    try:
        cli.main()
    except SystemExit as exit:
        said[" ".join(words[:-2])] = exit.code
said["host"] = json.loads(host.read_text())["mcpServers"]
print(json.dumps(said))
"""


@needs_landlock
@pytest.mark.parametrize(("kind", "name"), [("frozen", "python-app"), ("embedded", "app")])
def test_a_program_that_is_not_run_by_an_interpreter_is_never_started_by_us(
    tmp_path: Path, kind: str, name: str
) -> None:
    """D-82: a sandbox and ``attach`` refuse by name, and nothing has been started or written."""
    program = tmp_path / name
    program.write_text(PROGRAM)
    program.chmod(0o700)
    finished = run_python(program, kind, cwd=ROOT, timeout=PATIENCE, env={**os.environ, "HOME": str(tmp_path)})
    assert finished.returncode == 0, finished.stderr
    said = json.loads(finished.stdout)
    refusal = f"a Python interpreter is needed, and sys.executable is {str(program)!r}"
    remedy = "run this program with an installed Python"
    assert said["sandbox"] == f"server 'time': sandbox: {refusal}; {remedy}, or remove sandbox"
    assert said["attach"] == said["config attach cursor"] == 1
    errors = " ".join(finished.stderr.split())
    for who in ("attach", "config attach"):
        assert f"mcp-actors {who}: {refusal}; {remedy}" in errors
    assert said["host"] == {"time": {"command": "true"}}
    assert (tmp_path / "starts").read_text() == "started\n"


def test_a_file_in_an_archive_is_refused_by_name() -> None:
    refusal = r"cannot run '/x/app\.pyz/attach\.py', which is in an archive; install mcp-actors with pip$"
    with pytest.raises(ConfigError, match=f"^mcp-actors attach: {refusal}"):
        our_python("mcp-actors attach", "/x/app.pyz/attach.py")


@pytest.mark.parametrize("executable", ["/dist/app", "/usr/bin/uwsgi", "", None])
def test_a_script_in_python_does_not_run_in_a_program_that_is_not_an_interpreter(
    executable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert _template._python() == "python3"


@pytest.mark.parametrize("name", ["python-editor", "pythonic", "mypython", "ipython3", "python3.11-app"])
def test_a_program_whose_name_contains_that_of_python_is_not_an_interpreter(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-82: some tools that freeze a program do not set ``sys.frozen``."""
    monkeypatch.setattr(sys, "executable", f"/dist/{name}")
    with pytest.raises(ConfigError, match="a Python interpreter is needed"):
        our_python("a sandbox")


@pytest.mark.parametrize(
    "name",
    [
        "python",
        "python3",
        "python3.11",
        "python3.13t",
        "python3.12d",
        "python3-dbg",
        "pythonw.exe",
        "pypy3.10",
        "Python",
        "graalpy",
    ],
)
def test_interpreters_have_these_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", f"/nowhere/{name}")
    assert our_python("a sandbox") == f"/nowhere/{name}"


def test_an_interpreter_that_a_link_of_another_name_leads_to_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "py"
    link.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(link))
    assert our_python("a test", __file__) == str(link)


@needs_packages
def test_a_daemon_finds_the_package_and_what_is_next_to_it_without_the_help_of_its_interpreter(tmp_path: Path) -> None:
    """As in a shiv, whose interpreter has other packages, or none."""
    site, others = tmp_path / "site", tmp_path / "site-packages"
    site.mkdir()
    others.mkdir()
    (others / "cyclopts.py").write_text("raise ImportError('of another version')")
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        (site / each.name).symlink_to(each)
    for each in (ROOT / "mcp_actors", *ROOT.glob("mcp_actors-*.dist-info")):
        (site / each.name).unlink(missing_ok=True)
        (site / each.name).symlink_to(each)
    command = [os.path.realpath(sys.executable), "-P", str(site / "mcp_actors" / "__main__.py"), "--version"]
    environ = {**os.environ, "PYTHONPATH": str(others)}
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=PATIENCE)
    assert (finished.stdout.strip(), finished.stderr) == (mcp_actors.__version__, "")
