"""Ctrl-C during imports; its effect is tested in ``test_commands``."""

from __future__ import annotations

import signal
from typing import Any

import pytest

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

from mcp_actors.cli._interrupt import exit_on_interrupt


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
