"""Each malformed message over HTTP is answered in the reply to its POST, with its id if it has a valid one."""

from __future__ import annotations

import pytest

from ..hosts import LEGACY, MODERN, in_process, notes
from ..test_malformed import ANSWERS, cases
from .doors import JSON, open_house


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_each_malformed_message_is_answered_with_its_id(version: str) -> None:
    async with open_house(in_process("s", notes())) as house:
        session, peer = await house.begin(), await house.connect()
        headers = JSON | (session.headers if version == LEGACY else {"mcp-protocol-version": version})
        for number, name, body, request_id in cases(version):
            reply = await peer.fetch("POST", "/mcp", headers, body)
            assert reply.json["id"] == request_id, name
            assert "error" in reply.json or name == "_meta is an array", name
            assert await peer.call("s_echo", text=f"{number}") == f"{number}", name
        for answer in ANSWERS:
            reply = await peer.fetch("POST", "/mcp", headers, answer.encode())
            assert reply.body == b"" or reply.json["id"] is None, answer
            assert await peer.call("s_echo", text="x") == "x", answer
