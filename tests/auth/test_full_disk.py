"""The disk becomes full while tokens are written: the old file stays whole, and no refresh token is lost."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import trio
from trio.testing import MockClock

from mcp_actors import ConfigError, open_servers
from mcp_actors.auth import FileTokenStore, OAuth, SignInRequired
from mcp_actors.auth._stores import key_of
from mcp_actors.auth._tokens import REFRESH_PAUSE, OAuthTokens

from ..forkserver import run_python
from ..source import ROOT
from .authority import Authority
from .full_disk import content
from .test_hostile_answers import NEW, STORED, URL, Memory, Servers
from .test_sign_in import whoami

KEY: Final = key_of(URL, OAuth())

REMEDY: Final = "free some space there, set XDG_DATA_HOME, or give OAuth(store=FileTokenStore(directory))"


async def test_a_disk_that_is_full_in_the_middle_of_a_write_costs_no_sign_in(
    authority: Authority, tmp_path: Path
) -> None:
    done = run_python("-m", "tests.auth.full_disk", authority.url, tmp_path, cwd=ROOT, timeout=90)
    assert done.returncode == 0, done.stderr
    refused, expired, kept, saved = done.stdout.replace(str(tmp_path), "~").splitlines()
    said = f"cannot be written (File too large); {REMEDY}"
    assert refused.startswith("0 [] token store: ~/")  # no page was shown, and nothing is left
    assert refused.endswith(said)
    assert expired.startswith("0 True server 'guarded': no token: token store: ~/")
    assert expired.endswith(said)
    assert kept == "ada 1 True"  # the new token is in use, and the file is the old one
    assert saved == "ada 1 False"
    assert "a change of its sign-in is not stored yet, and is lost with this connection: token store: " in done.stderr
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        assert await whoami(servers) == "ada"
    assert (authority.counts["pages"], authority.grants("refresh_token"), authority.counts["refused"]) == (1, 1, 0)


@pytest.mark.parametrize("step", ["fsync", "replace"])
async def test_a_quota_that_is_reached_late_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A file system may say so only when it writes to the disk, or when it changes the folder."""
    store = FileTokenStore(tmp_path)
    await store.save("key", "old")

    def exceed(*args: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, step, exceed)
    with pytest.raises(ConfigError, match=r"cannot be written \(Disk quota exceeded\); free some space there"):
        await store.save("key", "new")
    assert content(tmp_path) == ["old"]


class Limited(Memory):
    """A store in memory that can be full.

    Attributes:
        room: how many values it can still take.
        refused: how many it has refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values[KEY] = json.dumps(STORED)
        self.room, self.refused = 1, 0

    async def save(self, key: str, value: str) -> None:
        """Replace a value, if there is room."""
        if self.room == 0:
            self.refused += 1
            raise ConfigError("full", source="TokenStore")
        self.room -= 1
        await super().save(key, value)

    @property
    def tokens(self) -> dict[str, Any]:
        """The tokens that are stored."""
        tokens: dict[str, Any] = json.loads(self.values[KEY])["tokens"]
        return tokens


def client(servers: Servers, store: Limited) -> httpx2.AsyncClient:
    """Return a client with the sign-in of a store."""
    auth = OAuthTokens("guarded", servers.exchange(Path(), store=store))
    return httpx2.AsyncClient(transport=httpx2.MockTransport(servers), auth=auth)


async def test_a_token_is_stored_as_soon_as_there_is_room(autojump_clock: MockClock) -> None:
    servers, store = Servers(token=(200, NEW | {"refresh_token": "next"})), Limited()
    async with client(servers, store) as caller:
        for refused in (1, 1, 2):
            assert (await caller.post(URL)).status_code == 200
            assert (store.refused, store.tokens["refresh_token"]) == (refused, "r")
            if refused == 1:
                await trio.sleep(REFRESH_PAUSE / 2)
        store.room = 1
        await trio.sleep(REFRESH_PAUSE)
        assert (await caller.post(URL)).status_code == 200
        assert store.tokens["refresh_token"] == "next"
    assert servers.refreshes == 1


async def test_a_token_that_is_not_stored_is_refreshed_all_the_same(autojump_clock: MockClock) -> None:
    servers, store = Servers(token=(200, NEW | {"access_token": "first", "refresh_token": "next"})), Limited()
    async with client(servers, store) as caller:
        with pytest.raises(SignInRequired, match="refuses a new token"):
            await caller.post(URL)
        store.room, servers.token = 2, (200, NEW)
        assert (await caller.post(URL)).status_code == 200
    assert servers.sent == ["r", "next"]


async def test_a_sign_in_elsewhere_is_not_replaced_by_a_token_that_was_not_stored(autojump_clock: MockClock) -> None:
    servers, store = Servers(), Limited()
    elsewhere = json.dumps(STORED | {"tokens": NEW | {"refresh_token": "elsewhere"}})
    async with client(servers, store) as caller:
        await caller.post(URL)
        store.room, store.values[KEY] = 9, elsewhere
        await trio.sleep(REFRESH_PAUSE)
        assert (await caller.post(URL)).status_code == 200
    assert (store.values[KEY], servers.refreshes) == (elsewhere, 1)


async def test_a_refresh_token_that_was_refused_is_not_sent_again_from_a_full_store(autojump_clock: MockClock) -> None:
    servers, store = Servers(token=(400, {"error": "invalid_grant"})), Limited()
    async with client(servers, store) as caller:
        for _ in range(2):
            with pytest.raises(SignInRequired):
                await caller.post(URL)
    assert servers.refreshes == 1
