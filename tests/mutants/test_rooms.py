"""A seed draws changes of a room's code, and what misses one has to be explained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from ..copies import link_environment
from ..servers.processes import eventually, wait_ended
from . import rooms
from .edits import Edit, draw, edits
from .rooms import MISSED, Judge, Mutant

CODE = '''\
"""It is not changed."""

from typing import Literal, Protocol

Kind = Literal["a"]
MOST: int = 2 if Kind else 0.5


class Room(Protocol):
    size: int = 1


def door(width: "Kind", open: bool = True) -> "Kind":
    """Nor is this."""
    assert width
    if not width or open < 3:
        raise ValueError(f"{width} é")
    print(*width, b"b")
    width.wide = max(open, -1)
    return width
'''

CHANGES = """\
MOST: int = 2 if (not (Kind)) else 0.5
MOST: int = 3 if Kind else 0.5
MOST: int = 2 if Kind else 1.0
def door(width: "Kind", open: bool = False) -> "Kind":
if (not (not width or open < 3)):
return
if (not width and open < 3):
if (width) or open < 3:
if not width or (open <= 3):
if not width or open < 4:
pass
return
raise ValueError(("XX" + f"{width} é"))
pass
return
print(*width, (b"XX" + b"b"))
pass
return
width.wide = max(-1, open)
width.wide = max(open, -2)
return None
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "room.py"
    path.write_text(CODE)
    return path


def test_only_code_that_runs_is_changed(module: Path) -> None:
    found = [*edits(module)]
    assert [edit.lines()[1] for edit in found] == CHANGES.splitlines()
    for edit in found:
        compile(edit.apply(module.read_bytes()), "a change", "exec")


def test_a_seed_draws_the_same_lines_again(module: Path) -> None:
    drawn = draw([module], "46 kernel", 3)
    assert drawn == draw([module], "46 kernel", 3)
    assert len({edit.line for edit in drawn}) == 3
    assert drawn != draw([module], "47 kernel", 3)


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Return a judge of a small project, in which `rooms.ROOT` is one, too."""
    judge = Judge(tmp_path, 0)
    for place in (tmp_path / "copy", tmp_path / "root"):
        (place / "tests/kernel").mkdir(parents=True)
        for public in rooms.PUBLIC:
            (place / public).touch()
        (place / "kernel.py").write_text("def open(): return True\n")
        (place / "tests/kernel/test_it.py").write_text("import kernel\n\ndef test_it(): assert kernel.open()\n")
    link_environment(tmp_path / "copy")
    judge._copies.put(tmp_path / "copy")
    monkeypatch.setattr(rooms, "ROOT", tmp_path / "root")
    # Only the plugin whose option is used: to find and import all takes a second.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist.plugin")
    return judge


def test_a_change_is_made_for_its_tests_only(judge: Judge, tmp_path: Path) -> None:
    mutant = Mutant("kernel", 0, Edit(tmp_path / "root/kernel.py", 1, 19, 23, "False"))
    outcome = judge.run("room", mutant)
    assert outcome == "tests/kernel/test_it.py::test_it"
    assert judge.check([outcome]) == MISSED


def test_a_change_that_nothing_catches_has_to_be_explained(
    module: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rooms, "PACKAGE", tmp_path)
    monkeypatch.setattr(rooms, "EXPLAINED", tmp_path / "rooms.toml")
    [mutant] = [Mutant("kernel", 0, edit) for edit in edits(module) if edit.now == "3"]
    rows = ["equivalent = []\n", f"{mutant}\n".replace('why = ""', 'why = "It is a guess."')]
    for text, code in zip(rows, (1, 0), strict=True):
        (tmp_path / "rooms.toml").write_text(text)
        assert rooms._report({"slice": [mutant], "all": [mutant]}, 100) == code
    printed = capsys.readouterr().out
    assert "slice: 99.0% of 100 caught, 0 of them make no difference" in printed
    assert 'now = "MOST: int = 3 if Kind else 0.5"' in printed


def test_too_few_changes_that_are_caught_are_a_failure(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "PACKAGE", module.parent)
    missed = [Mutant("kernel", number, edit) for number, edit in enumerate(edits(module))][:3]
    assert rooms._report({"slice": missed, "room": [], "all": []}, 15) == 0
    assert rooms._report({"slice": missed, "room": [], "all": []}, 14) == 1


def test_a_run_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    """Its tests start processes in sessions of their own."""
    started = tmp_path / "pid"
    script = "import subprocess; import time; child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
    script += f"open({str(started)!r}, 'w').write(f'{{child.pid}}\\n'); time.sleep(1000)"
    run = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    trio.run(eventually, lambda: started.exists() and started.read_text().endswith("\n"))
    rooms._kill(run)
    trio.run(wait_ended, [int(started.read_text())])
