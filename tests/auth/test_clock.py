"""The wall clock is set ahead and back while programs run: no refresh too many, and no call that fails."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import httpx2
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from mcp_actors.auth import OAuth
from mcp_actors.auth._stores import SignedIn, key_of
from mcp_actors.auth._tokens import REFRESH_PAUSE, OAuthTokens

from .test_hostile_answers import STORED, URL, Memory, Servers

HOUR: Final = 3600.0
BEGAN: Final = 1_700_000_000.0


@pytest.mark.parametrize(("life", "early"), [(HOUR, 60.0), (600.0, 60.0), (100.0, 10.0)])
def test_a_token_is_refreshed_a_minute_or_a_tenth_of_its_life_before_it_expires(life: float, early: float) -> None:
    text = json.dumps(STORED | {"since": BEGAN, "expires_at": BEGAN + life})
    signed_in = SignedIn.from_text(text, URL)
    assert signed_in is not None
    assert not signed_in.due(BEGAN + life - early - 1)
    assert signed_in.due(BEGAN + life - early)


class Shared(Memory):
    """A store of two programs."""

    def __init__(self, expires_at: float) -> None:
        super().__init__()
        tokens = {"access_token": "0", "refresh_token": "0", "token_type": "Bearer"}
        stored = STORED | {"tokens": tokens, "since": BEGAN, "expires_at": expires_at}
        self.values[key_of(URL, OAuth())] = json.dumps(stored)
        self._turn = trio.Lock()

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Hold the lock."""
        async with self._turn:
            yield


@define
class Issuer(Servers):
    """Servers whose tokens expire after an hour, and whose refresh tokens are accepted once.

    Attributes:
        now: the true time.
        offset: how much the clock of the programs is ahead.
        expiries: when each token expires.
        down: whether it answers no refresh.
        thefts: how many refresh tokens it got that were used before.
        refused: how many requests had a token that has expired.
    """

    now: float = BEGAN
    offset: float = 0.0
    expiries: list[float] = field(factory=lambda: [BEGAN + HOUR])
    down: bool = False
    thefts: int = 0
    refused: int = 0

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        await trio.lowlevel.checkpoint()
        if request.url.path == "/mcp":
            number = int(request.headers["authorization"].removeprefix("Bearer "))
            expired = self.now >= self.expiries[number]
            self.refused += expired
            return httpx2.Response(401 if expired else 200)
        if self.down:
            return httpx2.Response(503, json={})
        if parse_qs(request.content.decode())["refresh_token"] != [str(self.refreshes)]:
            self.thefts += 1
            return httpx2.Response(400, json={"error": "invalid_grant"})
        self.refreshes += 1
        self.expiries.append(self.now + HOUR)
        name = str(self.refreshes)
        granted = {"access_token": name, "refresh_token": name, "token_type": "Bearer", "expires_in": HOUR}
        return httpx2.Response(200, json=granted)

    def program(self, store: Shared) -> httpx2.AsyncClient:
        """Return the client of a program."""
        auth = OAuthTokens("guarded", self.exchange(Path(), store=store))
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self), auth=auth)


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Issuer:
    """The servers, and a clock that they set."""
    servers = Issuer()
    monkeypatch.setattr("time.time", lambda: servers.now + servers.offset)
    return servers


@pytest.mark.parametrize(
    ("steps", "refreshes"),
    [
        # Ahead, the token seems to have expired. Back, the next one seems to live for two hours, and is refused.
        ([(600, HOUR), (600, 0), (HOUR, 0)], 2),
        # Behind, the token seems to live for two hours, and is refused. Back, the next one seems to have expired.
        ([(600, -HOUR), (HOUR, -HOUR), (60, 0)], 2),
        ([(5, HOUR), (5, 0)] * 10, 1),
        ([(5, -HOUR), (5, 0)] * 10, 0),
        ([(5, HOUR), (5, -HOUR)] * 10, 1),
    ],
)
async def test_a_clock_that_is_set_costs_at_most_one_refresh_for_each_step(
    issuer: Issuer, steps: list[tuple[float, float]], refreshes: int
) -> None:
    store, answers = Shared(BEGAN + HOUR), list[int]()

    async def call(program: httpx2.AsyncClient) -> None:
        answers.append((await program.post(URL)).status_code)

    async with issuer.program(store) as one, issuer.program(store) as other:
        for seconds, issuer.offset in [(0, 0.0), *steps]:
            issuer.now += seconds
            async with trio.open_nursery() as nursery:
                for program in (one, other) * 3:
                    nursery.start_soon(call, program)
    assert set(answers) == {200}
    assert (issuer.refreshes, issuer.thefts) == (refreshes, 0)


async def test_a_program_that_wakes_after_two_expiries_does_not_send_what_another_one_left(issuer: Issuer) -> None:
    store = Shared(BEGAN + HOUR)
    async with issuer.program(store) as one, issuer.program(store) as other:
        for program in (one, other, one):
            assert (await program.post(URL)).status_code == 200
            issuer.now += HOUR
    assert (issuer.refreshes, issuer.thefts, issuer.refused) == (2, 0, 0)


async def test_a_refresh_that_failed_is_tried_again_in_seconds_although_the_clock_is_set_back(
    issuer: Issuer, autojump_clock: MockClock
) -> None:
    issuer.down = True
    async with issuer.program(Shared(BEGAN + 30)) as program:
        issuer.now += 29
        await program.post(URL)
        issuer.down, issuer.offset = False, -2.0
        await program.post(URL)
        assert issuer.refreshes == 0
        await trio.sleep(REFRESH_PAUSE)
        await program.post(URL)
    assert issuer.refreshes == 1
