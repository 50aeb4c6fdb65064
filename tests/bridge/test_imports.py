"""Importing this package leaves asyncio as it is."""

from __future__ import annotations

from ..importing import importing


def test_importing_it_leaves_asyncio_as_it_is() -> None:
    assert importing()["asyncio changed by"] == []
    assert importing()["loop of asyncio"] == "asyncio.unix_events"
