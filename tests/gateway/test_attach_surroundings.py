"""`attach` with clocks, signals, paths and folders that are not the usual ones."""

from __future__ import annotations

import os
import sys
import time

import pytest

from mcp_actors.gateway import _daemon, attach

from .test_attach import SERVER, Place, place

__all__ = ["place"]  # the fixture


def test_a_failed_start_does_not_block_the_next_one_when_the_clock_is_set_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.runtime))
    names = attach.names_for(str(place.config))
    command = [sys.executable, "-I", "-S", str(SERVER), names.socket, str(place.ledger)]
    with pytest.raises(attach.Refused, match="did not start"):
        _daemon.open_daemon(names, [*command, "fail"])
    future = time.time() + 3600
    os.utime(names.lock, (future, future))
    _daemon.open_daemon(names, [*command, "plain"]).close()
