"""The lists of a gateway when a server cannot give all of its own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    PromptListChangedNotification,
    ResourceListChangedNotification,
)
from trio.testing import MockClock

from mcp_actors import RetryPolicy

from ..servers.library import PROMPTS, RESOURCES, TEMPLATES, Library
from .hosts import BOUND, LEGACY, MODERN, Host, gateway, in_process

ERAS: Final = [LEGACY, MODERN]

LISTS: Final = {
    "prompts/list": ("prompts", "name", [each.name for each in PROMPTS]),
    "resources/list": ("resources", "uri", [each.uri for each in RESOURCES]),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", [each.uri_template for each in TEMPLATES]),
}


class Without(Library):
    """A library that answers the requests of some methods with an error, as long as a test wants it to."""

    def __init__(self, method: str, error: MCPError) -> None:
        super().__init__()
        self.method = method
        self.error: MCPError | None = error

    def note(self, ctx: Any, method: str, about: object = None) -> None:
        super().note(ctx, method, about)
        if method == self.method and self.error is not None:
            raise self.error


async def announce_all(library: Library) -> None:
    """Notify the gateway that all lists may have changed."""
    for session in library.sessions:
        await session.send_notification(ResourceListChangedNotification())
        await session.send_notification(PromptListChangedNotification())


async def listed(host: Host, method: str) -> list[str]:
    """Return the names or URIs that a client sees in a list, as the server has them."""
    member, key, _ = LISTS[method]
    items = (await host.result(method))[member]
    return [item[key].removeprefix("library_") for item in items]


async def check_others(host: Host, method: str) -> None:
    """Check that a client sees all lists but one, and can use what they name."""
    for each, (_, _, names) in LISTS.items():
        if each != method:
            assert await listed(host, each) == names
    for uri in ("file:///a", "row:///1"):
        if (uri == "file:///a") is (method != "resources/list"):
            assert (await host.result("resources/read", {"uri": uri}))["contents"][0]["uri"] == uri


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_a_list_that_a_server_does_not_support_is_empty_and_hides_no_other(
    era: Any, method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D-40: for clients of both eras; one that has named the server is refused, as by the server itself."""
    library = Without(method, MCPError(METHOD_NOT_FOUND, "Method not found"))
    async with gateway(tmp_path, library.config(protocol=era, request_timeout=None)) as door:
        for version in ERAS:
            host = await door.connect(version)
            assert await listed(host, method) == []
            await check_others(host, method)
            named = await door.connect(version, only="library")
            assert (await named.error(method))["code"] == METHOD_NOT_FOUND
            await check_others(named, method)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("method", LISTS)
async def test_a_list_that_fails_is_one_warning_and_is_requested_again_until_it_is_there(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """D-40: the others are there meanwhile, and the last one of that kind stays when it fails later."""
    library = Without(method, MCPError(INTERNAL_ERROR, "the archive is closed"))
    kind = {"resources/templates/list": "templates"}.get(method, method.partition("/")[0])
    config = library.config(protocol="legacy", request_timeout=None, retry=RetryPolicy(attempts=1))
    async with gateway(tmp_path, config) as door:
        host, named = await door.connect(), await door.connect(only="library")
        for each in (host, named):
            assert await listed(each, method) == []
            await check_others(each, method)
        await trio.sleep(600)  # the delays end at a minute
        asked = library.methods().count(method)
        assert 8 < asked < 20
        library.error = None
        await trio.sleep(70)
        for each in (host, named):
            assert await listed(each, method) == LISTS[method][2]
        assert library.methods().count(method) > asked
        library.error = MCPError(INTERNAL_ERROR, "it is closed again")
        await announce_all(library)
        await trio.sleep(70)
        assert await listed(host, method) == LISTS[method][2]
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [each.partition(";")[0] for each in warnings] == [
        f"server 'library': its {kind} could not be listed: {why}"
        for why in ("the archive is closed", "it is closed again")
    ]


@pytest.mark.parametrize("method", LISTS)
async def test_a_list_that_a_server_never_answers_keeps_no_other_from_clients(method: str, tmp_path: Path) -> None:
    """D-40: the client that waits for that list waits for nothing else."""

    async def hang(*_: object) -> Any:
        await trio.sleep_forever()

    kind = "resource_templates" if "templates" in method else method.partition("/")[0]
    handlers: dict[str, Any] = {f"on_list_{kind}": hang}
    library = Library(**handlers)
    async with gateway(tmp_path, library.config(protocol="legacy", request_timeout=None)) as door:
        named = await door.connect(only="library")
        with trio.fail_after(BOUND):
            await check_others(named, method)
            assert len((await named.result("tools/list"))["tools"]) == 1


async def test_a_client_that_has_named_a_server_without_lists_is_refused_each_of_them(tmp_path: Path) -> None:
    """D-40: as by the server itself."""
    empty: Any = Server("empty")
    async with gateway(tmp_path, in_process("empty", empty)) as door:
        named, other = await door.connect(only="empty"), await door.connect()
        for method in ("tools/list", *LISTS):
            refused = await named.error(method)
            assert (refused["code"], refused["data"]) == (METHOD_NOT_FOUND, method)
            assert "ttlMs" not in await other.result(method)
