"""Commands run elsewhere as an ordinary user, with little of what the author has."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from . import elsewhere
from .elsewhere import FILES, NOBODY, Elsewhere
from .source import commands

LOOK = """\
import json, os, resource, shutil, socket, sys
sees = {
    "folder": os.getcwd(),
    "user": os.getuid(),
    "home": os.environ.get("HOME"),
    "writes": os.access(os.environ.get("HOME", "/"), os.W_OK),
    "language": os.environ["LANG"],
    "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "cores": len(os.sched_getaffinity(0)),
    "terminal": os.system("true 2>/dev/null </dev/tty") == 0,
    "programs": [each for each in ("git", "node", "npm") if shutil.which(each)],
    "network": len(open("/proc/net/dev").readlines()) > 3,
}
json.dump(sees, open(os.environ["TMPDIR"] + "/" + sys.argv[1], "w"))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is for Linux")


def test_a_command_sees_little_of_this_machine(capfd: pytest.CaptureFixture[str]) -> None:
    """D-70."""
    with elsewhere.opened() as place:
        (place.place / "look.py").write_text(LOOK)
        words = [f"{sys.base_prefix}/bin/python3", "look.py"]
        assert place.run(*words, "online") == 0
        assert place.run_offline(*words, "offline") == 0
        online, offline = (
            json.loads((place.place.parent / "tmp" / name).read_text()) for name in ("online", "offline")
        )
        folder = str(place.place)
    assert " " in folder
    assert not folder.isascii()
    skipped = capfd.readouterr().out
    same = {"folder": folder, "language": "C", "files": FILES, "cores": 1, "terminal": False}
    if "another user" not in skipped:
        same |= {"user": os.geteuid() or NOBODY, "writes": False}
    assert online | same | {"home": None} == online
    assert offline | same | {"home": f"{Path(folder).parent}/home", "programs": []} == offline
    if "without a network" not in skipped:
        assert not offline["network"]
    assert not Path(folder).exists()


def test_the_readmes_commands_are_run_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-70: as they are, and the tests once more without a network."""
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(elsewhere, "copy_checkout", lambda place: None)
    monkeypatch.setattr(Elsewhere, "run", lambda self, *words, **environment: ran.append(words[-4:]))
    assert elsewhere.main([]) is None
    assert ran == [*(("sh", "-c", command) for command in commands()), (".venv/bin/python", "-m", "pytest", "--slice")]
    assert commands()[1].endswith(" ".join(ran[-1]))


def test_a_command_that_fails_elsewhere_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "copy_checkout", lambda place: None)
    monkeypatch.setattr(Elsewhere, "run", lambda self, *words, **environment: 7)
    assert elsewhere.main([]) == 7


def test_what_does_not_work_here_is_skipped_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert not elsewhere.works("/no/such/program", "a b", skipped="another user")
    assert not elsewhere.works("false", skipped="without a network")
    assert capsys.readouterr().out == (
        "another user: skipped, because this does not work here: /no/such/program 'a b'\n"
        "without a network: skipped, because this does not work here: false\n"
    )
