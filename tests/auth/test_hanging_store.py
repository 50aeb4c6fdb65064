"""A disk or a keyring that hangs: callers leave, threads stay few, and what is written late replaces nothing newer."""

from __future__ import annotations

import fcntl
import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from mcp_actors import ConnectFailed, open_servers
from mcp_actors._user_files import replace_file
from mcp_actors.auth import FileTokenStore, KeyringTokenStore, _stores, sign_in, sign_out
from mcp_actors.auth._stores import STORE_TIMEOUT, StoreBusy

from .authority import Authority
from .test_hostile_answers import NEW, STORED, URL, Servers, pasted
from .test_sign_in import change, signed_in, stored, whoami

SOON = 60.0
"""Seconds in which a caller has left, on a slow machine. What hangs goes on after that, so that the test fails."""


@define
class Hang:
    """A function that hangs.

    Attributes:
        at: which of its calls hangs.
        released: ends that.
        calls: how many calls have begun.
        waited: True if it was not released: its caller has waited for it.
        threads: the threads in which it hangs.
    """

    at: int = 1
    released: threading.Event = field(factory=threading.Event)
    calls: int = 0
    waited: bool = False
    threads: list[threading.Thread] = field(factory=list)
    _begun: threading.Event = field(factory=threading.Event)

    def around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which hangs before it does anything."""

        def hang(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                self.threads.append(threading.current_thread())
                self._begun.set()
                self.waited = not self.released.wait(SOON)
            return fn(*args, **options)

        return hang

    async def begun(self) -> None:
        """Wait until it hangs."""
        await trio.to_thread.run_sync(self._begun.wait)


@pytest.fixture
def hang() -> Iterator[Hang]:
    """A hang that ends with the test."""
    hang = Hang()
    yield hang
    hang.released.set()
    for thread in hang.threads:
        while thread.name == "token store":
            time.sleep(0.001)


async def leave(hang: Hang, fn: Callable[[], Any]) -> None:
    """Call a function until it hangs, then cancel it; fail if it does not leave while it hangs."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fn)
        await hang.begun()
        nursery.cancel_scope.cancel("the test has seen it hang")
    assert not hang.waited


def locked(path: Path) -> bool:
    """Return True if a process without this one's memory would find a lock held."""
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_locked(folder: Path) -> bool:
    """Return True if the only lock of a store is held."""
    (path,) = folder.glob("*.lock")
    return locked(path)


def the_key(folder: Path) -> str:
    """Return the only key of a store."""
    (path,) = folder.glob("*.json")
    return path.stem


def use_keyring(monkeypatch: pytest.MonkeyPatch, hang: Hang, call: str) -> None:
    """Have the package ``keyring`` use one in memory, of which one call hangs."""
    keyring = pytest.importorskip("keyring", reason="the extra 'keyring' is not installed")
    from keyring.backend import KeyringBackend

    passwords: dict[str, str] = {}

    class Hanging(KeyringBackend):
        priority = 1

        def get_password(self, service: str, username: str) -> str | None:
            return passwords.get(username)

        def set_password(self, service: str, username: str, password: str) -> None:
            passwords[username] = password

        def delete_password(self, service: str, username: str) -> None:
            del passwords[username]

    setattr(Hanging, call, hang.around(getattr(Hanging, call)))
    monkeypatch.setattr(keyring.core, "_keyring_backend", Hanging())  # type: ignore[no-untyped-call]  # few types


@pytest.mark.parametrize("kind", ["disk", "keyring"])
@pytest.mark.parametrize("call", ["load", "save", "delete", "lock"])
async def test_a_caller_leaves_a_store_that_hangs_at_once(
    kind: str, call: str, hang: Hang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-16: the call goes on, and what it writes is there in the end."""
    store: FileTokenStore | KeyringTokenStore
    if kind == "disk":
        names = {"load": "_read", "save": "_replace", "delete": "_remove"}
        store = FileTokenStore(tmp_path)
    else:
        names = {"load": "get_password", "save": "set_password", "delete": "delete_password"}
        use_keyring(monkeypatch, hang, names.get(call, "get_password"))
        store = KeyringTokenStore(locks=tmp_path)
    if call == "lock":
        monkeypatch.setattr(_stores, "_open", hang.around(_stores._open))
    elif kind == "disk":
        monkeypatch.setattr(_stores, names[call], hang.around(getattr(_stores, names[call])))
    if call == "delete":
        await store.save("key", "old")

    async def ask() -> None:
        async with store.lock("key"):
            await (store.save("key", "new") if call == "save" else getattr(store, call)("key"))

    await leave(hang, ask)
    hang.released.set()
    async with store.lock("key"):
        assert await store.load("key") == {"save": "new"}.get(call)


async def test_a_store_that_hangs_takes_one_thread_and_answers_within_a_limit(
    hang: Hang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    """C-16: however many connections ask it."""
    monkeypatch.setattr(_stores, "_read", hang.around(_stores._read))
    errors: list[ConnectFailed] = []

    async def post() -> None:
        async with Servers().client_of(tmp_path) as client:
            with pytest.raises(ConnectFailed, match="no answer within 30 s; unlock the keyring, or check") as caught:
                await client.post(URL)
            errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(post)
        await hang.begun()
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(STORE_TIMEOUT)
    assert len(errors) == 10
    assert not any(error.hopeless for error in errors)
    assert hang.calls == 1


@pytest.mark.parametrize("what", ["a sign-in", "a sign-out"])
async def test_the_wait_of_a_person_for_a_store_has_a_limit(
    what: str, hang: Hang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    """C-16: it does not depend on what hangs."""
    monkeypatch.setattr(_stores, "_replace", hang.around(_stores._replace))
    monkeypatch.setattr(_stores, "_remove", hang.around(_stores._remove))
    exchange = Servers().exchange(tmp_path)
    act = partial(sign_in, "docs", exchange, pasted) if what == "a sign-in" else partial(sign_out, exchange)

    async def fail() -> None:
        with pytest.raises(StoreBusy, match="no answer within 90 s"):
            await act()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)
        await hang.begun()
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(90)


async def test_the_exchange_of_a_refresh_goes_on_without_its_caller(tmp_path: Path) -> None:
    """C-16: the caller does not wait for the authorization server either."""
    asked, answer = trio.Event(), trio.Event()
    requests: list[str] = []

    class Slow(Servers):
        async def __call__(self, request: Any) -> Any:
            if request.url.path == "/token":
                requests.append("a refresh")
                asked.set()
                await answer.wait()
            return await super().__call__(request)

    servers = Slow(token=(200, NEW | {"refresh_token": "next"}))
    async with servers.client(tmp_path, json.dumps(STORED)) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.post, URL)
            await asked.wait()
            nursery.cancel_scope.cancel("the caller has no time")
        assert not answer.is_set()
        answer.set()
        assert (await client.post(URL)).status_code == 200
    assert (len(requests), stored(tmp_path)["tokens"]["refresh_token"]) == (1, "next")


async def test_a_refresh_gets_its_answer_before_its_connection_is_closed(authority: Authority, tmp_path: Path) -> None:
    """C-16: the caller has left, and so has the program."""
    await signed_in(authority, tmp_path)
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        authority.set(revoke=stored(tmp_path)["tokens"]["access_token"], slow=300)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(whoami, servers)
            await trio.to_thread.run_sync(authority.wait_exchanges, 2)
            nursery.cancel_scope.cancel("the program ends")
    async with open_servers(authority.config(tmp_path), strict=True) as servers:
        assert await whoami(servers) == "ada"
    assert (authority.grants("refresh_token"), authority.counts["refused"]) == (1, 0)


async def test_a_write_of_a_new_token_that_hangs_keeps_the_lock_and_lands_before_any_other(
    authority: Authority, hang: Hang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-16: a late write never replaces a newer token."""
    await signed_in(authority, tmp_path)
    change(tmp_path, expires_at=time.time() - 1)
    hang.at = 2  # the first write is that of the old token, before the refresh
    monkeypatch.setattr(_stores, "replace_file", hang.around(replace_file))
    async with open_servers(authority.config(tmp_path, connect="lazy")) as servers:
        await leave(hang, partial(whoami, servers))
        await servers["guarded"].stop()
        assert not hang.waited
        assert is_locked(tmp_path)
        assert authority.grants("refresh_token") == 1
        written: list[str] = []
        store, key = FileTokenStore(tmp_path), the_key(tmp_path)

        async def write_newer() -> None:
            async with store.lock(key):
                newer = json.loads(await store.load(key) or "")
                written.append(newer["tokens"]["refresh_token"])
                await store.save(key, json.dumps(newer | {"asked": "newer"}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_newer)
            await trio.testing.wait_all_tasks_blocked()
            assert written == []
            hang.released.set()
        assert stored(tmp_path)["asked"] == "newer"
        await servers["guarded"].start()
        assert await whoami(servers) == "ada"
    assert authority.grants("refresh_token") == 1


async def test_a_new_token_whose_write_hangs_is_used(
    hang: Hang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    """C-16: the wait for the store ends, and the connection goes on with the token."""
    servers, answers = Servers(token=(200, NEW | {"refresh_token": "next"})), list[int]()
    hang.at = 3
    monkeypatch.setattr(_stores, "_replace", hang.around(_stores._replace))
    async with servers.client(tmp_path, json.dumps(STORED)) as client:

        async def post() -> None:
            answers.append((await client.post(URL)).status_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(post)
            await hang.begun()
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(STORE_TIMEOUT)
        assert (answers, stored(tmp_path)["tokens"]["refresh_token"]) == ([200], "r")
        assert is_locked(tmp_path)
        hang.released.set()
        async with FileTokenStore(tmp_path).lock("another key"):  # its calls come after those that hang
            assert stored(tmp_path)["tokens"]["refresh_token"] == "next"
    assert servers.refreshes == 1
