"""Each message and header that is sent is the one that the SDK's own client sends.

Both talk to the same server in a process of its own, which notes what it reads. The differences that are meant are in
one table, with their reasons; each row must be needed wherever it applies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import frozen

from mcp_actors.transports.http import _session

from .mirror import DEEDS, ERAS, KINDS, NO_GAPS, Era, Json, Kind, Log, labelled, open_ours, open_theirs
from .processes import BOUND, eventually

pytestmark = [pytest.mark.own_way, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

Sent = list[Json]


def without(method: str) -> Callable[[Sent], Sent]:
    """Return what leaves the messages of a method out."""
    return lambda sent: [each for each in sent if each["message"].get("method") != method]


def without_nulls(sent: Sent) -> Sent:
    """Leave out the members of each ``_meta`` that are null."""

    def bare(message: Json) -> Json:
        meta = {key: value for key, value in message["params"]["_meta"].items() if value is not None}
        return {**message, "params": {**message["params"], "_meta": meta}}

    return [{**each, "message": bare(each["message"])} for each in sent]


@frozen
class Difference:
    """A difference that is meant.

    Attributes:
        reason: why this library sends something else.
        deeds: in which there is a difference.
        undo: turns what this library sends into what the SDK sends.
        eras: in which it exists.
        kinds: the transports over which it exists.
    """

    reason: str
    deeds: tuple[str, ...]
    undo: Callable[[Sent], Sent]
    eras: tuple[Era, ...] = ERAS
    kinds: tuple[Kind, ...] = KINDS


DIFFERENCES: Final = (
    Difference("a server shows its tools as soon as it is connected", ("handshake",), without("tools/list")),
    Difference(
        "changes of its lists are awaited from then on, which takes a request since 2026-07-28",
        ("handshake",),
        without("subscriptions/listen"),
        ("modern",),
    ),
    Difference(
        "a subscription is ended before its connection is",
        ("end",),
        without("notifications/cancelled"),
        ("modern",),
        ("stdio",),
    ),
    Difference("what the caller gives is sent as it is, also a null", ("call with _meta",), without_nulls),
)


async def play(era: Era, kind: Kind, log: Log, client: Any, side: str) -> dict[str, int]:
    """Do all deeds; return where in the log each begins."""
    starts = {"handshake": 0}
    if era == "legacy":
        await eventually(lambda: log.count("notifications/initialized") == 1)
    for name, deed in DEEDS.items():
        if era in deed.eras and kind in deed.kinds:
            starts[name] = len(log.posts)
            method, times = deed.until(era, kind) or ("", 0)
            before = log.count(method)
            await getattr(deed, side)(client)
            await eventually(lambda method=method, number=before + times: log.count(method) >= number)  # type: ignore[misc]  # mypy cannot infer it
    starts["end"] = len(log.posts)
    return starts


async def sent_by(era: Era, kind: Kind, path: Path, open_client: Any, side: str) -> tuple[dict[str, Sent], Log]:
    """Do all deeds; return what each has sent."""
    log = Log(path)
    async with open_client(era, kind, path) as client:
        starts = await play(era, kind, log, client, side)
        if era == "legacy" and kind != "stdio":
            await eventually(lambda: any(each["verb"] == "GET" for each in log.entries))
    return dict(zip(starts, labelled(log.posts, [*starts.values()]), strict=True)), log


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("era", ERAS)
async def test_each_request_is_sent_as_by_the_sdk(
    era: Era, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_session, "GAP_BACKOFF", NO_GAPS)
    with trio.fail_after(BOUND):
        ours, our_log = await sent_by(era, kind, tmp_path / "ours", open_ours, "ours")
        theirs, their_log = await sent_by(era, kind, tmp_path / "theirs", open_theirs, "theirs")
    for row in DIFFERENCES:
        for name in row.deeds:
            if era in row.eras and kind in row.kinds and name in ours:
                undone = row.undo(ours[name])
                assert undone != ours[name], f"in {name!r} there is no such difference any more: {row.reason}"
                ours[name] = undone
    for name, sent in theirs.items():
        assert ours[name] == sent, name
    assert our_log.others == their_log.others
