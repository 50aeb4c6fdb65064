"""Extensions of the protocol: what they are sent, claim and hear is the same as by the SDK's own client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from .fleet import PROMPT
from .links import text_of
from .mirror import KINDS, Json, Kind, Log, open_ours, open_theirs
from .test_extensions import CAPABILITIES, Jobs

pytestmark = pytest.mark.own_way

MOOD: Final = '{"jsonrpc":"2.0","method":"notifications/mood","params":{"mood":"busy"}}'
BAD_MOOD: Final = '{"jsonrpc":"2.0","method":"notifications/mood","params":{"mood":7}}'
RESULT: Final = '{"jsonrpc":"2.0","id":$id,"result":%s}'

CLAIMED: Final = RESULT % '{"resultType":"job","job":"seven"}'
PLAIN: Final = RESULT % '{"resultType":"complete","content":[{"type":"text","text":"plain"}]}'
INVALID: Final = RESULT % '{"resultType":"job","job":7}'
UNCLAIMED: Final = RESULT % '{"resultType":"other","job":"seven"}'

BETWEEN: Final[dict[Kind, str]] = {"stdio": "\n", "events": "\n\nevent: message\ndata: "}
"""What is written between two messages, over the transports where something may come before an answer."""

SIDES: Final = {"ours": open_ours, "theirs": open_theirs}


@asynccontextmanager
async def both(kind: Kind, folder: Path) -> AsyncIterator[dict[str, tuple[Any, Jobs, Log]]]:
    """Connect both clients, each with the extension."""
    jobs = {side: Jobs() for side in SIDES}
    logs = {side: Log(folder / side) for side in SIDES}
    async with (
        open_ours("modern", kind, folder / "ours", extensions=[jobs["ours"]]) as ref,
        open_theirs("modern", kind, folder / "theirs", extensions=[jobs["theirs"]]) as client,
    ):
        # So that no client lists the tools within a call.
        await ref.list_tools()
        await client.list_tools()
        yield {side: (connected, jobs[side], logs[side]) for side, connected in zip(SIDES, (ref, client), strict=True)}


def script(folder: Path, *messages: str, between: str = "") -> None:
    """Have both servers answer calls with these messages."""
    for side in SIDES:
        (folder / f"{side}.script").write_text("tools/call\n" + between.join(messages))


async def call(client: Any) -> str:
    """Call a tool; return its text, or the class of the failure."""
    with trio.fail_after(PROMPT):
        try:
            return text_of(await client.call_tool("say"))
        except Exception:
            return "refused"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_extension_gets_the_results_that_it_claims(kind: Kind, tmp_path: Path) -> None:
    expected = {CLAIMED: "job seven of say is done", PLAIN: "plain", INVALID: "refused", UNCLAIMED: "refused"}
    async with both(kind, tmp_path) as sides:
        for answer, text in expected.items():
            script(tmp_path, answer)
            found = {side: await call(client) for side, (client, _, _) in sides.items()}
            assert found == dict.fromkeys(SIDES, text)


@pytest.mark.parametrize("kind", KINDS)
async def test_each_request_names_the_extension_and_its_settings(kind: Kind, tmp_path: Path) -> None:
    async with both(kind, tmp_path) as sides:
        script(tmp_path, PLAIN)
        named = dict[str, list[Json]]()
        for side, (client, _, log) in sides.items():
            await call(client)
            named[side] = [
                each["message"]["params"]["_meta"][CAPABILITIES]["extensions"]
                for each in log.posts
                if each["message"].get("method") in ("server/discover", "tools/call")
            ]
    assert named["ours"] == named["theirs"] == [{"com.example/jobs": {"patience": "endless"}}] * 2


@pytest.mark.parametrize("kind", BETWEEN)
async def test_an_extension_hears_the_valid_ones_of_its_notifications(kind: Kind, tmp_path: Path) -> None:
    async with both(kind, tmp_path) as sides:
        script(tmp_path, MOOD, BAD_MOOD, MOOD, PLAIN, between=BETWEEN[kind])
        for client, jobs, _ in sides.values():
            assert await call(client) == "plain"
            with trio.fail_after(PROMPT):
                while len(jobs.moods) < 2:
                    jobs.heard = trio.Event()
                    await jobs.heard.wait()
            assert jobs.moods == ["busy", "busy"]
