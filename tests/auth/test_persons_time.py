"""The time of a person who signs in counts for nothing else."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import Backoff, RetryPolicy, ServerUnavailable, open_servers
from mcp_actors.auth import SignInRequired
from mcp_actors.servers._deadlines import Deadline, Deadlines, DeadlineTimer
from mcp_actors.servers.requests import ListTools

from .authority import Authority, Browser
from .test_sign_in import signed_in, stored, whoami

LONG = 10_000
"""Seconds: more than any time-out of a request or a connect."""


async def expired(deadlines: Deadlines, *requests: Deadline) -> list[bool]:
    """Return which requests have expired, once all that is due has."""
    await wait_all_tasks_blocked()
    return [each.expired for each in requests]


async def test_a_request_has_as_much_time_after_a_sign_in_as_before(mock_clock: MockClock) -> None:
    timer = DeadlineTimer()
    deadlines = Deadlines("docs", 60, None, timer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        before = deadlines.begin(ListTools())
        mock_clock.jump(20)
        with deadlines.asking():
            mock_clock.jump(LONG)
            during = deadlines.begin(ListTools())
            mock_clock.jump(LONG)
            assert await expired(deadlines, before, during) == [False, False]
        mock_clock.jump(39)
        assert await expired(deadlines, before, during) == [False, False]
        mock_clock.jump(1)
        assert await expired(deadlines, before, during) == [True, False]
        deadlines.set_limits(70, None)
        mock_clock.jump(29)
        assert await expired(deadlines, during) == [False]
        mock_clock.jump(1)
        assert await expired(deadlines, during) == [True]
        nursery.cancel_scope.cancel("the test is over")


async def test_changed_limits_count_from_the_call_without_the_sign_in(mock_clock: MockClock) -> None:
    timer = DeadlineTimer()
    deadlines = Deadlines("docs", 60, None, timer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        request = deadlines.begin(ListTools())
        with deadlines.asking():
            mock_clock.jump(LONG)
            deadlines.set_limits(70, None)
            assert await expired(deadlines, request) == [False]
        deadlines.set_limits(80, None)
        mock_clock.jump(79)
        assert await expired(deadlines, request) == [False]
        mock_clock.jump(1)
        assert await expired(deadlines, request) == [True]
        nursery.cancel_scope.cancel("the test is over")


async def test_a_request_that_makes_no_progress_meanwhile_times_out_for_that(mock_clock: MockClock) -> None:
    """It is an isolated attempt, which does not wait for the person."""
    timer = DeadlineTimer()
    deadlines = Deadlines("docs", 60, 50, timer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        request = deadlines.begin(ListTools())
        with deadlines.asking():
            mock_clock.jump(LONG)
            request.renew()
            mock_clock.jump(49)
            assert await expired(deadlines, request) == [False]
            mock_clock.jump(1)
            assert await expired(deadlines, request) == [True]
            assert deadlines.failure(request).limit == "progress_timeout"
        nursery.cancel_scope.cancel("the test is over")


@pytest.mark.parametrize("asked_by", ["a call", "a connect"])
async def test_a_call_waits_for_a_person_beyond_every_other_timeout(
    authority: Authority, tmp_path: Path, mock_clock: MockClock, asked_by: str
) -> None:
    browser = Browser()

    async def show(url: str) -> str | None:
        mock_clock.jump(LONG)
        await wait_all_tasks_blocked()  # everything that is due has expired
        return await browser.show(url)

    if asked_by == "a call":
        await signed_in(authority, tmp_path)
        authority.set(needs={"write": "files:write"})
    times: dict[str, Any] = {"request_timeout": 60, "progress_timeout": 5, "connect_timeout": 5}
    config = authority.config(tmp_path, on_sign_in=show, sign_in_timeout=10 * LONG, connect="lazy", **times)
    async with open_servers(config) as servers:
        call = partial(servers["guarded"].call_tool, "write") if asked_by == "a call" else partial(whoami, servers)
        await call()
    assert len(browser.pages) == 1


async def test_a_server_makes_a_person_be_asked_twice_an_hour_at_most(
    authority: Authority, tmp_path: Path, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """C-18: over all connects, restarts and isolated retries, although it serves in between."""
    browser = Browser()
    retry = RetryPolicy(isolated=True, backoff=Backoff(initial=0.01))

    def revoke() -> None:
        for kind in ("refresh_token", "access_token"):
            authority.set(revoke=stored(tmp_path)["tokens"][kind])

    config = authority.config(tmp_path, on_sign_in=browser.show, retry=retry, connect="lazy")
    async with open_servers(config) as servers:
        guarded = servers["guarded"]
        assert await whoami(servers) == "ada"
        revoke()
        assert await whoami(servers) == "ada"
        assert len(browser.pages) == 2
        revoke()
        with pytest.raises(SignInRequired):
            await whoami(servers)
        for _ in range(2):
            await guarded.restart()
            assert guarded.state == "needs_auth"
        assert len(browser.pages) == 2
        assert caplog.text.count("on_sign_in is not called again now (twice within an hour)") == 1
        await guarded.sign_in(show=browser.show)  # the person has started it, so it does not count
        assert await whoami(servers) == "ada"
        mock_clock.jump(3600)
        revoke()
        assert await whoami(servers) == "ada"
        assert len(browser.pages) == 4


async def test_an_isolated_retry_asks_no_person(authority: Authority, tmp_path: Path) -> None:
    await signed_in(authority, tmp_path)
    browser = Browser()
    retry = RetryPolicy(isolated=True, backoff=Backoff(initial=0.01))
    async with open_servers(authority.config(tmp_path, on_sign_in=browser.show, retry=retry)) as servers:
        await whoami(servers)
        tokens = stored(tmp_path)["tokens"]
        for kind in ("refresh_token", "access_token"):
            authority.set(revoke=tokens[kind])
        authority.set(busy=1)
        with pytest.raises(SignInRequired):
            await servers["guarded"].call_tool("whoami", idempotent=True)
        assert browser.pages == []
        assert await whoami(servers) == "ada"
    assert len(browser.pages) == 1


@pytest.mark.parametrize("when_down", ["wait", "fail"])
async def test_calls_wait_while_a_first_connect_asks_a_person(
    authority: Authority, tmp_path: Path, when_down: Literal["wait", "fail"]
) -> None:
    """C-18: and nothing says that there is no sign-in."""
    browser, asked, agreed = Browser(), trio.Event(), trio.Event()

    async def show(url: str) -> str | None:
        asked.set()
        await agreed.wait()
        return await browser.show(url)

    answers: list[str] = []

    async def call() -> None:
        answers.append(await whoami(servers))

    config = authority.config(tmp_path, on_sign_in=show, when_down=when_down)
    async with open_servers(config) as servers, trio.open_nursery() as nursery:
        guarded = servers["guarded"]
        nursery.start_soon(call)  # the person is about to be asked
        await asked.wait()
        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        assert (guarded.state, servers.errors, servers.failed) == ("connecting", {}, ())
        assert "a person is asked to sign in" in guarded.statistics().reason
        agreed.set()
    assert answers == ["ada", "ada"]


async def test_calls_wait_while_a_person_is_asked_again(authority: Authority, tmp_path: Path) -> None:
    """C-18: after a sign-in was worth nothing any more, from the step in which a request finds that."""
    browser, asked, agreed = Browser(), trio.Event(), trio.Event()

    async def show(url: str) -> str | None:
        asked.set()
        await agreed.wait()
        return await browser.show(url)

    await signed_in(authority, tmp_path)
    answers: list[str] = []

    async def call() -> None:
        answers.append(await whoami(servers))

    config = authority.config(tmp_path, on_sign_in=show)
    async with open_servers(config, strict=True) as servers, trio.open_nursery() as nursery:
        guarded = servers["guarded"]
        for kind in ("refresh_token", "access_token"):
            authority.set(revoke=stored(tmp_path)["tokens"][kind])
        nursery.start_soon(call)
        await guarded.wait_state("backoff", "connecting")
        nursery.start_soon(call)
        await asked.wait()
        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        assert guarded.state == "connecting"
        assert str(servers.errors["guarded"]) == "server 'guarded': a person is asked to sign in, by on_sign_in"
        agreed.set()
    assert answers == ["ada", "ada", "ada"]


@pytest.mark.parametrize("ends_by", ["access_denied", "timed_out"])
async def test_a_call_that_waits_for_a_person_says_how_that_ended(
    authority: Authority, tmp_path: Path, mock_clock: MockClock, ends_by: str
) -> None:
    """C-18: the person has refused, or the time is over."""
    asked, goes_on = trio.Event(), trio.Event()

    async def show(url: str) -> str | None:
        asked.set()
        await goes_on.wait()
        return await Browser().show(url)

    authority.set(refuse=True)
    async with open_servers(authority.config(tmp_path, on_sign_in=show)) as servers:
        await asked.wait()
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                with pytest.raises(ServerUnavailable, match=rf"'guarded': .*{ends_by}.*sign_in\(\)"):
                    await whoami(servers)

            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            mock_clock.jump(299)  # of 300, and beyond the `request_timeout`
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1
            if ends_by == "timed_out":
                mock_clock.jump(1)
            else:
                goes_on.set()
        assert servers["guarded"].state == "needs_auth"
        assert ends_by in str(servers.errors["guarded"])
