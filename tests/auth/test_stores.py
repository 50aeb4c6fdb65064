"""Stores of tokens, and their errors, each with a remedy."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock

from mcp_actors import ConfigError, ConnectFailed
from mcp_actors.auth import FileTokenStore, KeyringTokenStore, OAuth, _stores, sign_in
from mcp_actors.auth._sign_in import signed_in as find
from mcp_actors.auth._stores import SignedIn, key_of
from mcp_actors.auth._tokens import OAuthTokens

from ..forkserver import run_python
from ..source import ROOT
from .authority import Authority, no_page
from .test_hostile_answers import STORED, URL, Servers


async def test_a_value_is_replaced_as_a_whole_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path / "new")
    assert await store.load("key") is None
    await store.save("key", "one")
    await store.save("key", "two")
    assert await store.load("key") == "two"
    assert _mode(store.path("key")) == 0o600
    assert _mode(tmp_path / "new") == 0o700
    await store.delete("key")
    await store.delete("key")
    assert await store.load("key") is None


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_key_is_that_of_one_resource_issuer_client_grant_and_account() -> None:
    me: dict[str, Any] = {"client_id": "me", "client_secret": "secret"}
    url, issuer = "https://mcp.example/mcp", "https://issuer.example"
    configs: list[dict[str, Any]] = [
        {},
        me,
        {"client_id": "you"},
        {"client_metadata_url": "https://app.example/client"},
        {"issuer": issuer},
        {"account": "work"},
        {"account": "home"},
        me | {"grant": "client_credentials"},
    ]
    keys = {key_of(url, OAuth(**each)) for each in configs} | {key_of(f"{url}/other", OAuth())}
    assert len(keys) == len(configs) + 1
    assert key_of(url, OAuth(scopes="a", sign_in_timeout=5)) in keys  # the same sign-in


async def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path)
    await store.save("key", "one")
    store.path("key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        await store.load("key")


async def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They could have put their tokens there, also in a file that only its owner can read."""
    store = FileTokenStore(tmp_path)
    await store.save("key", "one")
    # Only root can give a file away. To any other user, it seems to be of another user if they are one.
    if os.geteuid() == 0:
        os.chown(store.path("key"), 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert _mode(store.path("key")) == 0o600
    with pytest.raises(ConfigError, match=r"not a file of this user that only this user can read|to another user"):
        await store.load("key")


async def test_a_link_to_another_file_is_refused(tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path)
    _link(store.path("key"))
    with pytest.raises(ConfigError, match="it cannot be read"):
        await store.load("key")


def _link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


async def test_a_folder_in_which_others_can_rename_files_is_refused(tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path)
    await store.save("key", "one")
    for mode in (0o777, 0o770, 0o702):
        _allow(tmp_path, mode)
        with pytest.raises(ConfigError, match="chmod 700"):
            await store.load("key")
    for mode in (0o1777, 0o755):
        _allow(tmp_path, mode)
        assert await store.load("key") == "one"


async def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner can rename files in it, whatever its mode."""
    store = FileTokenStore(tmp_path / "tokens")
    await store.save("key", "one")
    # Only root can give a folder away. To any other user, it seems to be of another user if they are one.
    if os.geteuid() == 0:
        os.chown(tmp_path / "tokens", 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ConfigError, match="tokens belongs to another user, who can rename files in it"):
        await store.load("key")


async def test_the_file_of_another_account_is_ignored(tmp_path: Path) -> None:
    """C-14: accounts at one URL have the same server. A file of an earlier version has no key, and stays valid."""
    exchanges = {name: Servers().exchange(tmp_path, account=name) for name in ("work", "home")}
    keys = {name: key_of(URL, each.oauth) for name, each in exchanges.items()}
    signed_in = SignedIn.from_text(json.dumps(STORED), URL, keys["work"])
    assert signed_in is not None
    store = FileTokenStore(tmp_path)
    await store.save(keys["work"], signed_in.to_text(keys["work"]))
    assert await find(exchanges["work"]) is not None
    store.path(keys["work"]).rename(store.path(keys["home"]))
    assert await find(exchanges["home"]) is None
    await store.save(keys["home"], json.dumps(STORED))
    assert await find(exchanges["home"]) is not None


def _allow(path: Path, mode: int) -> None:
    path.chmod(mode)


async def test_folders_belong_to_their_user_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await FileTokenStore(tmp_path / "one" / "two").save("key", "one")
    finally:
        os.umask(before)
    assert (_mode(tmp_path / "one"), _mode(tmp_path / "one" / "two")) == (0o700, 0o700)


def test_a_read_only_home_is_named_before_a_person_or_a_refresh_token_is_used(
    authority: Authority, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory() as home:  # others may not enter the folders of pytest
        env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")} | {"HOME": home}
        words = ("-m", "tests.auth.read_only_home", authority.url, tmp_path)
        done = run_python(*words, cwd=ROOT, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    before, refused, signed_in, expired, after = done.stdout.replace(home, "~").splitlines()
    remedy = "make its directory writable, set XDG_DATA_HOME, or give OAuth(store=FileTokenStore(directory))"
    assert before == "needs_auth"
    assert refused.startswith("0 token store: ~/.local/share/mcp-actors/tokens/")  # no page was shown
    assert refused.endswith(f".lock cannot be created (Permission denied); {remedy}")
    assert signed_in == "ada"
    assert expired.startswith("failed server 'guarded': no token: token store: ~/.local/share/mcp-actors/tokens/")
    assert expired.endswith(f".json cannot be written (Permission denied); {remedy}")
    assert after == "ada"
    assert (authority.counts["pages"], authority.grants("refresh_token")) == (2, 1)  # one page for the first store


@pytest.mark.parametrize("call", ["load", "save"])
async def test_a_shortage_of_files_names_the_limit_to_raise(call: str, tmp_path: Path) -> None:
    """C-03: it says nothing about the store, and may pass, so a connect is tried again."""
    store = FileTokenStore(tmp_path)
    await store.save("key", "one")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(_stores.StoreBusy) as caught:
            await (store.load("key") if call == "load" else store.save("key", "two"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert str(caught.value).endswith("(Too many open files); raise the limit of open files (ulimit -n)")
    assert await store.load("key") == "one"


async def test_a_shortage_of_threads_names_the_limit_to_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is used again as soon as there is a thread."""
    store = FileTokenStore(tmp_path)

    def start_thread_soon(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(trio.lowlevel, "start_thread_soon", start_thread_soon)
        with pytest.raises(
            _stores.StoreBusy, match=r"can't start new thread\); raise the limit of processes \(ulimit -u"
        ):
            await store.load("key")
    await store.save("key", "one")
    assert await store.load("key") == "one"


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
async def test_a_disk_that_fails_for_a_moment_is_not_hopeless(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Servers().client(tmp_path, json.dumps(STORED)) as client:
        monkeypatch.setattr(os, "open", _failing(code))
        with pytest.raises(ConnectFailed, match="check the disk") as caught:
            await client.post(URL)
        monkeypatch.undo()
        assert not caught.value.hopeless
        assert (await client.post(URL)).status_code == 200


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
async def test_a_lock_that_fails_for_a_moment_is_not_hopeless(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", _failing(code))
    with pytest.raises(_stores.StoreBusy, match="check the disk"):
        await _lock_once(FileTokenStore(tmp_path))


def _failing(code: int) -> Callable[..., int]:
    def fail(*args: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail


async def test_a_folder_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    _fill(tmp_path / "file")
    store = FileTokenStore(tmp_path / "file" / "tokens")
    for attempt in (store.save("key", "one"), _lock_once(store)):
        with pytest.raises(ConfigError, match="set XDG_DATA_HOME, or give"):
            await attempt


def _fill(path: Path) -> None:
    path.write_text("in the way")


async def _lock_once(store: FileTokenStore) -> None:
    async with store.lock("key"):
        pytest.fail("it is locked")


async def test_a_file_system_without_locks_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", _failing(errno.ENOLCK))
    with pytest.raises(ConfigError, match=r"has no locks .*; keep tokens on a local file system"):
        await _lock_once(FileTokenStore(tmp_path))


async def test_tasks_take_turns_and_a_cancelled_one_leaves_the_queue(tmp_path: Path, autojump_clock: MockClock) -> None:
    store, held, holding, over = FileTokenStore(tmp_path), 0, trio.Event(), trio.Event()

    async def hold() -> None:
        nonlocal held
        async with store.lock("key"):
            assert held == 0
            held += 1
            holding.set()
            await over.wait()
            held -= 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        await holding.wait()  # not for a time: the clock does not wait for the thread of the lock
        with trio.move_on_after(0.1):
            await _lock_once(store)
        nursery.start_soon(hold)
        over.set()
    assert held == 0


async def test_a_lock_that_is_never_released_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(_stores, "_locked", lambda descriptor, path: False)
    monkeypatch.setattr(_stores, "LOCK_POLL", 1.0)
    with pytest.raises(ConfigError, match="for 60 s; end that process"):
        await _lock_once(FileTokenStore(tmp_path))


async def test_a_lock_is_released_although_a_forked_child_has_its_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A worker of ``multiprocessing``, which may live for days."""
    store, inherited, open_lock = FileTokenStore(tmp_path), list[int](), _stores._open

    def opened(path: Path) -> int:
        descriptor = open_lock(path)
        inherited.append(os.dup(descriptor))
        return descriptor

    monkeypatch.setattr(_stores, "_open", opened)
    try:
        for _ in range(2):
            async with store.lock("key"):
                pass
    finally:
        for each in inherited:
            os.close(each)


def test_the_default_is_the_data_directory_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert FileTokenStore().directory == Path("/data/mcp-actors/tokens")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/ada")
    assert FileTokenStore().directory == Path("/home/ada/.local/share/mcp-actors/tokens")
    monkeypatch.setattr("sys.platform", "darwin")
    assert FileTokenStore().directory == Path("/home/ada/Library/Application Support/mcp-actors/tokens")


class TestKeyring:
    """With a keyring in memory."""

    @pytest.fixture
    def keyring(self, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
        """The passwords of a keyring of the test."""
        keyring = pytest.importorskip("keyring", reason="the extra 'keyring' is not installed")
        from keyring.backend import KeyringBackend

        passwords: dict[tuple[str, str], str] = {}

        class InMemory(KeyringBackend):
            priority = 1

            def get_password(self, service: str, username: str) -> str | None:
                return passwords.get((service, username))

            def set_password(self, service: str, username: str, password: str) -> None:
                if password == "refused":
                    raise RuntimeError(f"the keyring refuses {password}")
                passwords[service, username] = password

            def delete_password(self, service: str, username: str) -> None:
                del passwords[service, username]

        monkeypatch.setattr(keyring.core, "_keyring_backend", InMemory())  # type: ignore[no-untyped-call]  # keyring has few types
        return passwords

    async def test_it_keeps_values(self, keyring: dict[tuple[str, str], str], tmp_path: Path) -> None:
        store = KeyringTokenStore("tests", locks=tmp_path)
        await store.save("key", "one")
        assert keyring == {("tests", "key"): "one"}
        assert await store.load("key") == "one"
        async with store.lock("key"):
            await store.delete("key")
        await store.delete("key")
        assert await store.load("key") is None

    async def test_an_error_does_not_quote_the_value(self, keyring: dict[tuple[str, str], str], tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="RuntimeError") as caught:
            await KeyringTokenStore(locks=tmp_path).save("key", "refused")
        assert "refused" not in str(caught.value)
        assert caught.value.__cause__ is None

    async def test_a_locked_keyring_is_not_hopeless(
        self, keyring: dict[tuple[str, str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is unlocked when its user logs in, perhaps after this program has started."""
        import keyring as package
        from keyring.errors import KeyringLocked

        servers = Servers()
        exchange = servers.exchange(tmp_path, store=KeyringTokenStore(locks=tmp_path))
        keyring["mcp-actors", key_of(URL, exchange.oauth)] = json.dumps(STORED)

        def locked(*args: object) -> None:
            raise KeyringLocked

        auth = OAuthTokens("guarded", exchange)
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(servers), auth=auth) as client:
            get_password = package.get_password
            monkeypatch.setattr(package, "get_password", locked)
            with pytest.raises(ConnectFailed, match="unlock it") as caught:
                await client.post(URL)
            assert not caught.value.hopeless
            monkeypatch.setattr(package, "get_password", get_password)
            assert (await client.post(URL)).status_code == 200

    async def test_a_backend_that_keeps_nothing_is_found_before_a_page_is_shown(
        self, keyring: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C-14: the null backend of the package, with which people turn the keyring off."""
        import keyring as package
        from keyring.backends.null import Keyring

        monkeypatch.setattr(package.core, "_keyring_backend", Keyring())  # type: ignore[no-untyped-call]  # keyring has few types
        exchange = Servers().exchange(tmp_path, store=KeyringTokenStore(locks=tmp_path))
        with pytest.raises(ConfigError) as caught:
            await sign_in("guarded", exchange, no_page)
        assert str(caught.value) == (
            "token store: a KeyringTokenStore does not keep what is saved in it; choose another backend if it is a "
            "keyring, or use a FileTokenStore"
        )

    def test_no_backend_is_an_error_with_a_remedy(
        self, keyring: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import keyring as package
        from keyring.backends.fail import Keyring

        monkeypatch.setattr(package, "get_keyring", Keyring)
        with pytest.raises(ConfigError, match="or use a FileTokenStore"):
            KeyringTokenStore(locks=tmp_path)

    def test_a_missing_package_is_an_error_with_a_remedy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "keyring", None)
        with pytest.raises(ConfigError, match=r"not installed; run: pip install 'mcp-actors\[keyring\]'"):
            KeyringTokenStore(locks=tmp_path)
