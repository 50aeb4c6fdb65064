"""K5: a Ctrl-C that lands just before a resource is entered or left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_actors.kernel import _interruptible
from mcp_actors.kernel._interruptible import Interruptible


async def interrupted(step: Coroutine[Any, Any, Any] | None) -> None:
    raise KeyboardInterrupt


@asynccontextmanager
async def resource(log: list[str], *, swallows: bool = False) -> AsyncIterator[None]:
    log.append("entered")
    try:
        yield
    except KeyboardInterrupt:
        if not swallows:
            raise
    finally:
        log.append("left")


async def test_what_was_not_entered_yet_is_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(_interruptible, "_unprotected", interrupted)
    with pytest.raises(KeyboardInterrupt):
        await Interruptible(resource(log)).__aenter__()
    assert log == []


@pytest.mark.parametrize("swallows", [False, True])
async def test_what_was_entered_is_left_all_the_same(monkeypatch: pytest.MonkeyPatch, swallows: bool) -> None:
    log: list[str] = []
    held = Interruptible(resource(log, swallows=swallows))
    await held.__aenter__()
    monkeypatch.setattr(_interruptible, "_unprotected", interrupted)
    if swallows:
        assert await held.__aexit__(None, None, None)
    else:
        with pytest.raises(KeyboardInterrupt):
            await held.__aexit__(None, None, None)
    assert log == ["entered", "left"]


async def test_an_interrupt_out_of_the_clean_up_itself_goes_on() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        yield
        raise KeyboardInterrupt

    held = Interruptible(broken())
    await held.__aenter__()
    with pytest.raises(KeyboardInterrupt):
        await held.__aexit__(None, None, None)


async def test_an_interrupt_out_of_the_start_itself_goes_on() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        await interrupted(None)
        yield

    with pytest.raises(KeyboardInterrupt):
        await Interruptible(broken()).__aenter__()
