"""Sign in to the page and out again: who may see and do what, from where, and for how long."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.message import Message
from http.cookiejar import CookieJar
from typing import Any
from urllib.request import Request

import attrs
import pytest
import trio

from mcp_actors.gateway.http import _page, add_page

from ..hosts import BOUND, in_process, notes
from .doors import TOKEN, House, Peer, SignedIn, open_house

STOP = json.dumps({"do": "stop", "server": "notes"}).encode()
OTHER = "another-token-for-tests"


async def reload() -> None: ...


@asynccontextmanager
async def paged(tokens: Mapping[str, str] | None = None) -> AsyncIterator[House]:
    async with open_house(in_process("notes", notes()), tokens=tokens) as house:
        add_page(house.door, "mcp.json", reload)
        yield house


async def act(house: House, path: str, headers: Mapping[str, str]) -> int:
    """Press a button, and return the status of the reply."""
    return (await (await house.connect()).fetch("POST", path, headers, STOP, token=None)).status


async def is_signed_in(house: House, signed: SignedIn) -> bool:
    reply = await (await house.connect()).fetch("GET", signed.path, signed.cookie, token=None)
    assert reply.status == 200 or reply.headers["location"] == "/ui/"
    return reply.status == 200


async def wait_end(live: Peer) -> None:
    """Wait until the stream of a window ends."""
    with trio.fail_after(BOUND):
        while await live.read_event() is not None:
            pass


class _Reply:
    """A reply as `CookieJar` reads it."""

    def __init__(self, cookie: str) -> None:
        self._headers = Message()
        self._headers["Set-Cookie"] = cookie

    def info(self) -> Message:
        return self._headers


async def test_the_cookie_alone_does_nothing_and_no_other_port_gets_it() -> None:
    """D-50: a page at another port was sent it, and called tools with it."""
    async with paged() as house:
        signed, port = await (await house.connect()).sign_in(), house.address[1]
        jar = CookieJar()  # as browsers do, it knows no ports
        reply: Any = _Reply(f"{signed.cookie['cookie']}; {signed.rules}")
        jar.extract_cookies(reply, Request(f"http://127.0.0.1:{port}/ui/sign-in"))

        def sent(port: int, path: str) -> str | None:
            request = Request(f"http://127.0.0.1:{port}{path}")
            jar.add_cookie_header(request)
            return request.get_header("Cookie")

        assert sent(port, signed.path) == sent(port, f"{signed.path}do") == signed.cookie["cookie"]
        for path in ("/", "/ui", "/ui/", "/ui/do", "/ui/live", f"/ui/{'x' * 32}/do"):
            assert sent(port + 1, path) is None
            assert await act(house, path, signed.cookie) in (401, 405)
        assert await act(house, f"{signed.path}do", {}) == 401
        assert not await is_signed_in(house, attrs.evolve(signed, cookie={}))
        assert house.group["notes"].state == "ready"
        assert await act(house, f"{signed.path}do", signed.cookie) == 200
        assert house.group["notes"].state == "stopped"


async def test_each_sign_in_has_a_path_of_its_own_that_cannot_be_guessed() -> None:
    """D-50: who has signed in too, with another token, would know it."""
    async with paged() as house:
        first, second = [await (await house.connect()).sign_in() for _ in range(2)]
        assert first.path != second.path
        assert len(first.path) == len("/ui//") + 32
        assert await act(house, f"{first.path}do", second.cookie) == 401


async def test_a_sign_out_ends_the_cookie_and_the_windows_of_one_browser() -> None:
    """D-50."""
    async with paged() as house:
        first, second = [await (await house.connect()).sign_in() for _ in range(2)]
        live, actor, out = [await house.connect() for _ in range(3)]
        await live.send("GET", f"{first.path}live", first.cookie, token=None)
        await live.read_head()
        assert (await live.read_event())["actions"]
        do = f"{first.path}do"
        assert (await actor.fetch("POST", do, first.cookie, STOP, token=None)).status == 200
        for cookie in ({}, second.cookie):
            await (await house.connect()).fetch("POST", f"{first.path}sign-out", cookie, b"", token=None)
        assert await is_signed_in(house, first)
        reply = await out.fetch("POST", f"{first.path}sign-out", first.cookie, b"", token=None)
        assert (reply.status, reply.headers["location"]) == (303, "/ui/")
        assert reply.headers["set-cookie"].startswith("mcp-actors=; Max-Age=0;")
        assert reply.headers["set-cookie"].endswith(f"; Path={first.path}")
        await wait_end(live)
        assert (
            await actor.fetch("POST", do, first.cookie, STOP, token=None)
        ).status == 401  # on an open connection too
        assert not await is_signed_in(house, first)
        assert await is_signed_in(house, second)


async def test_a_sign_in_ends_when_its_time_is_over() -> None:
    """D-50."""
    async with paged() as house:
        signed = await (await house.connect()).sign_in()
        rules = f"Max-Age={_page.SIGN_IN_SECONDS}; HttpOnly; SameSite=Strict; Path={signed.path}"
        assert signed.rules == rules
        live = await house.connect()
        await live.send("GET", f"{signed.path}live", signed.cookie, token=None)
        await live.read_head()
        pages: Any = house.door.find.__self__  # type: ignore[attr-defined]  # it is a method
        assert await is_signed_in(house, signed)
        pages._signed_in = {path: attrs.evolve(each, until=-math.inf) for path, each in pages._signed_in.items()}
        await wait_end(live)
        assert not await is_signed_in(house, signed)
        assert await act(house, f"{signed.path}do", signed.cookie) == 401
        await (await house.connect()).sign_in()
        assert len(pages._signed_in) == 1


async def test_a_browser_too_many_signs_out_the_first_one_of_its_own_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-55: sign-ins of one identity do not end those of another."""
    monkeypatch.setattr(_page, "MAX_SIGNED_IN", 2)
    async with paged({"ann": TOKEN, "bob": OTHER}) as house:
        bob = await (await house.connect()).sign_in(OTHER)
        signed = [await (await house.connect()).sign_in() for _ in range(3)]
        assert [await is_signed_in(house, each) for each in (bob, *signed)] == [True, False, True, True]
