"""Ctrl-C during imports; what it does then is shown in ``test_commands``."""

from __future__ import annotations

import signal
from typing import Any

import pytest

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

from mcp_actors.cli._interrupt import leaving_at_once


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.default_int_handler])
def test_what_a_ctrl_c_does_is_changed_for_the_block_only_and_not_where_it_is_ignored(before: Any) -> None:
    theirs = signal.signal(signal.SIGINT, before)
    try:
        with leaving_at_once():
            during = signal.getsignal(signal.SIGINT)
        assert (during is before) is (before is signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, theirs)
