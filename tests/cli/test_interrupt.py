"""Ctrl-C during imports; its effect is tested in ``test_commands``."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

from mcp_actors.cli._interrupt import exit_on_interrupt

from ..source import ROOT
from .terminal import PATIENCE


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.default_int_handler])
def test_ctrl_c_is_handled_within_the_block_only_and_not_where_it_is_ignored(before: Any) -> None:
    theirs = signal.signal(signal.SIGINT, before)
    try:
        with exit_on_interrupt():
            during = signal.getsignal(signal.SIGINT)
        assert (during is before) is (before is signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, theirs)


def test_ctrl_c_while_the_first_module_is_imported_shows_no_traceback() -> None:
    program = """
import os, signal, sys

class Interrupter:
    def find_spec(self, name, *_):
        if name == "mcp_actors.cli._start":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupter())
from mcp_actors.cli import main
heavy = {"cyclopts", "json", "logging", "mcp", "rich", "trio"} & sys.modules.keys()
assert not heavy, heavy
main()
"""
    # Without the site module, which may import anything: an editable install does.
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "cancelled\n")
