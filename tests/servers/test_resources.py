"""Resources, prompts and completions, in both eras: what is asked, what comes back, and what is refused before."""

from __future__ import annotations

import logging
from base64 import b64decode
from typing import Any, Literal

import pytest
import trio
from mcp import MCPError
from mcp.server.caching import CacheHint
from mcp.types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    BlobResourceContents,
    ListResourcesResult,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)

from mcp_actors import (
    Backoff,
    InvalidArguments,
    LimitExceeded,
    RequestTimedOut,
    RetryPolicy,
    ServerRef,
    ServerUnavailable,
    open_servers,
)
from mcp_actors.servers import NotSupported

from ..messages import Said
from .groups import server
from .library import PROMPTS, RESOURCE_NOT_FOUND, RESOURCES, TEMPLATES, TOOL, Library

Protocol = Literal["legacy", "2026-07-28"]

ERAS: list[Protocol] = ["legacy", "2026-07-28"]

both_eras = pytest.mark.parametrize("era", ERAS)

NO_DELAY = Backoff()


# --- lists ----------------------------------------------------------------------------------------------------------


@both_eras
async def test_lists_come_whole_with_all_their_pages(era: Protocol) -> None:
    """S4-03: resources and templates come with their annotations."""
    library = Library()
    async with open_servers(library.config(protocol=era)) as servers:
        ref = servers["library"]
        assert await ref.list_resources() == tuple(RESOURCES)
        assert await ref.list_resource_templates() == tuple(TEMPLATES)
        assert await ref.list_prompts() == tuple(PROMPTS)
    resource, template = RESOURCES[0], TEMPLATES[0]
    assert resource.annotations is not None
    assert (resource.annotations.audience, resource.annotations.priority) == (["user"], 0.5)
    assert template.annotations is not None
    assert library.asked[1:] == [
        *(("resources/list", cursor) for cursor in (None, "2", "4")),
        *(("resources/templates/list", cursor) for cursor in (None, "2")),
        *(("prompts/list", cursor) for cursor in (None, "2", "4")),
    ]


@both_eras
async def test_no_list_is_requested_from_a_server_without_the_capability(era: Protocol) -> None:
    """S4-10: without the capability there is an empty list, and no request."""
    library = Library(
        on_list_resources=None, on_list_resource_templates=None, on_read_resource=None, on_list_prompts=None
    )
    async with open_servers(library.config(protocol=era)) as servers:
        ref = servers["library"]
        found = [*await ref.list_resources(), *await ref.list_resource_templates(), *await ref.list_prompts()]
        assert found == []
    assert library.methods() == []


async def test_each_list_is_asked_for_anew() -> None:
    """S4-10: nothing is cached, also if the server says that it may be."""
    hint = CacheHint(ttl_ms=60_000)
    library = Library(cache_hints={"resources/templates/list": hint, "resources/read": hint})
    async with open_servers(library.config()) as servers:
        for _ in range(2):
            await servers["library"].list_resource_templates()
            await servers["library"].read_resource("file:///a")
    assert library.methods() == ["resources/templates/list", "resources/templates/list", "resources/read"] * 2


async def circle(ctx: Any, params: Any) -> ListResourcesResult:
    cursor = {None: "x", "x": "y", "y": "x"}[params.cursor if params is not None else None]
    return ListResourcesResult(resources=RESOURCES, next_cursor=cursor)


async def test_a_repeated_cursor_ends_the_list(said: Said, caplog: pytest.LogCaptureFixture) -> None:
    """D-13: all of its pages are the same, so one of them counts."""
    async with open_servers(Library(on_list_resources=circle).config()) as servers:
        for _ in range(2):
            assert list(await servers["library"].list_resources()) == RESOURCES
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    said("cursor repeated", warning)


async def test_the_number_of_pages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ever_on(ctx: Any, params: Any) -> ListResourcesResult:
        number = int(params.cursor if params is not None and params.cursor is not None else 0) + 1
        return ListResourcesResult(resources=[], next_cursor=str(number))

    monkeypatch.setattr("mcp_actors.servers.requests._lists.MAX_PAGES", 7)
    async with open_servers(Library(on_list_resources=ever_on).config()) as servers:
        with pytest.raises(LimitExceeded, match="its list of resources did not end after 7 pages"):
            await servers["library"].list_resources()


async def test_all_pages_have_one_retry_budget() -> None:
    """S1-20: a list is retried as a whole, and no page has attempts of its own."""
    library = Library()
    library.failing["resources/list"] = [MCPError(INTERNAL_ERROR, f"failure {number}") for number in range(3)]
    async with open_servers(library.config(retry=RetryPolicy(attempts=2, backoff=NO_DELAY))) as servers:
        with pytest.raises(MCPError, match="failure 1") as caught:
            await servers["library"].list_resources()
        assert caught.value.__notes__ == ["this was attempt 2; no further attempt (attempts)"]
        library.failing["resources/list"] = [MCPError(INTERNAL_ERROR, "only once")]
        assert await servers["library"].list_resources() == tuple(RESOURCES)


async def test_all_pages_have_one_deadline(autojump_clock: trio.testing.MockClock) -> None:
    """S1-20: the timeout covers the whole list."""

    async def slow(ctx: Any, params: Any) -> ListResourcesResult:
        await trio.sleep(4)
        number = int(params.cursor if params is not None and params.cursor is not None else 0) + 1
        return ListResourcesResult(resources=[], next_cursor=str(number))

    async with open_servers(Library(on_list_resources=slow).config(request_timeout=10)) as servers:
        with pytest.raises(RequestTimedOut, match="resources/list timed out after 10 s"):
            await servers["library"].list_resources()
        assert trio.current_time() == pytest.approx(10, abs=0.1)


# --- one of them ----------------------------------------------------------------------------------------------------


@both_eras
async def test_a_resource_is_read_as_text_and_as_binary(era: Protocol) -> None:
    """S4-37: contents are what the SDK has for them."""
    async with open_servers(Library().config(protocol=era)) as servers:
        [text, binary] = (await servers["library"].read_resource("file:///a")).contents
    assert isinstance(text, TextResourceContents)
    assert (text.uri, text.mime_type, text.text) == ("file:///a", "text/plain", "text of file:///a")
    assert isinstance(binary, BlobResourceContents)
    assert (binary.mime_type, b64decode(binary.blob)) == ("image/png", b"\x89PNG\r"[:5])


@both_eras
async def test_an_error_of_the_protocol_keeps_message_code_and_data(era: Protocol) -> None:
    """S4-01: it passes through as it is."""
    async with open_servers(Library().config(protocol=era)) as servers:
        with pytest.raises(MCPError) as caught:
            await servers["library"].read_resource("file:///missing")
        assert servers["library"].state == "ready"
    error = caught.value.error
    assert (error.message, error.code, error.data) == (
        "no such resource",
        RESOURCE_NOT_FOUND,
        {"uri": "file:///missing"},
    )


@both_eras
async def test_a_prompt_is_filled_in(era: Protocol) -> None:
    async with open_servers(Library().config(protocol=era)) as servers:
        result = await servers["library"].get_prompt("prompt_1", {"topic": "actors"})
        [message] = result.messages
        assert isinstance(message.content, TextContent)
        assert message.content.text == "prompt_1: {'topic': 'actors'}"


@both_eras
async def test_an_argument_is_completed_in_its_context(era: Protocol) -> None:
    library = Library()
    prompt, row = PromptReference(name="prompt_1"), ResourceTemplateReference(uri="row:///{key}")
    async with open_servers(library.config(protocol=era)) as servers:
        ref = servers["library"]
        found = await ref.complete(prompt, {"name": "language", "value": "p"}, {"topic": "actors"})
        assert found.completion.values == ["python", "pascal", "perl", "prolog"]
        found = await ref.complete(row, {"name": "key", "value": "py"})
        assert (found.completion.values, found.completion.total) == (["python"], 1)
    assert [about for _, about in library.asked[1:]] == [
        (prompt, "language", {"topic": "actors"}),
        (row, "key", None),
    ]


@both_eras
async def test_a_request_for_an_unsupported_feature_is_not_sent(era: Protocol) -> None:
    """S4-02: the error names the capability."""
    library = Library(on_list_resources=None, on_list_prompts=None, on_completion=None)
    async with open_servers(library.config(protocol=era)) as servers:
        ref = servers["library"]
        with pytest.raises(NotSupported) as caught:
            await ref.read_resource("postgres://me:secret@db/rows?key=secret")
        assert str(caught.value) == (
            "server 'library': capability 'resources' is not supported, so resources/read "
            "'postgres://db/rows?key=…' was not sent; check info.supports.resources first"
        )
        assert caught.value.capability == "resources"
        with pytest.raises(
            NotSupported, match="capability 'prompts' is not supported, so prompts/get 'p' was not sent"
        ):
            await ref.get_prompt("p")
        with pytest.raises(
            NotSupported, match="capability 'completions' is not supported, so completion/complete 'x' of 'p' was"
        ):
            await ref.complete(PromptReference(name="p"), {"name": "x", "value": ""})
        assert ref.statistics().latency.failed == 3
    assert library.methods() == []


@both_eras
async def test_supported_features_are_shown_as_booleans(era: Protocol) -> None:
    """S4-02: in addition to the SDK's capabilities."""
    poor = Library(on_completion=None, on_subscribe_resource=None, on_subscriptions_listen=None)
    async with open_servers(Library().config(protocol=era), poor.config("poor", protocol=era)) as servers:
        can = servers["library"].info.supports
        assert (can.tools, can.resources, can.prompts, can.completions, can.logging) == (True,) * 5
        modern = era != "legacy"  # where the library can be listened to
        changes = (can.tools_list_changed, can.resources_list_changed, can.prompts_list_changed)
        assert (*changes, can.resources_subscribe) == (modern, modern, modern, True)
        cannot = servers["poor"].info.supports
        assert (cannot.tools, cannot.resources, cannot.prompts) == (True,) * 3
        assert not any((cannot.completions, cannot.resources_subscribe, cannot.resources_list_changed))
    async with open_servers(server("bare", "--no-tools-capability")) as servers:
        bare = servers["bare"].info.supports
        assert not any((bare.tools, bare.resources, bare.prompts, bare.tools_list_changed, bare.resources_subscribe))


async def test_info_is_unavailable_before_the_first_connection(said: Said) -> None:
    """S4-07: the error says why and what to do; afterwards the info stays available."""
    async with open_servers(Library().config(connect="lazy")) as servers:
        ref = servers["library"]
        with pytest.raises(ServerUnavailable) as caught:
            _ = ref.info
        said("info before the first connection", str(caught.value))
        await ref.list_prompts()
        assert ref.info.name == "library"
        await ref.stop()
        assert ref.info.supports.prompts


@both_eras
async def test_the_instructions_of_a_server_are_in_its_info(era: Protocol) -> None:
    """S4-08: they are in its info, and nowhere else."""
    library = Library(instructions="Search before you read.")
    async with open_servers(library.config(protocol=era), Library().config("mute")) as servers:
        assert servers["library"].info.instructions == "Search before you read."
        assert servers["mute"].info.instructions is None
        assert not any("Search before" in f"{tool.description} {tool.meta}" for tool in servers.tools)


@both_eras
async def test_tools_keep_output_schema_annotations_and_meta(era: Protocol) -> None:
    """S4-35, S4-36: in the listing and in the catalogue."""
    async with open_servers(Library().config(protocol=era)) as servers:
        [listed] = await servers["library"].list_tools()
        [tool] = servers.tools
    assert (listed.output_schema, listed.annotations) == (TOOL.output_schema, TOOL.annotations)
    assert listed.meta == {"acme/tier": "gold"}
    assert (tool.output_schema, tool.annotations, tool.meta) == (
        TOOL.output_schema,
        {"readOnlyHint": True},
        {"acme/tier": "gold"},
    )


async def test_a_failure_to_load_something_changes_no_state(caplog: pytest.LogCaptureFixture) -> None:
    """S3-22: resources, templates and prompts are there for who asks for them; the server serves on without."""
    library = Library()
    broken = ("resources/list", "resources/templates/list", "prompts/list")
    library.failing = {method: [MCPError(METHOD_NOT_FOUND, "lost")] for method in broken}
    async with open_servers(library.config()) as servers:
        ref = servers["library"]
        for listing in (ref.list_resources, ref.list_resource_templates, ref.list_prompts):
            with pytest.raises(MCPError, match="lost"):
                await listing()
        assert (ref.state, ref.statistics().incarnation, ref.statistics().last_error) == ("ready", 1, None)
        assert (await ref.call_tool("search")).structured_content == {"found": 1}


async def test_all_kinds_of_requests_take_turns() -> None:
    """S1-17: with ``max_in_flight=1`` prompts, resources, lists and completions take turns with tool calls."""
    busy = 0

    async def one_at_a_time(ctx: Any, call_next: Any) -> Any:
        nonlocal busy
        busy += 1
        assert busy == 1
        await trio.testing.wait_all_tasks_blocked()
        busy -= 1
        return await call_next(ctx)

    library = Library()
    async with open_servers(library.config(max_in_flight=1)) as servers:
        library.server.middleware.append(one_at_a_time)
        ref: ServerRef = servers["library"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.call_tool, "search")
            nursery.start_soon(ref.list_resources)
            nursery.start_soon(ref.read_resource, "file:///a")
            nursery.start_soon(ref.get_prompt, "prompt_1")
            nursery.start_soon(ref.list_prompts)
            nursery.start_soon(ref.complete, PromptReference(name="p"), {"name": "x", "value": ""})
    assert len(library.methods()) == 1 + 3 + 1 + 1 + 3 + 1


# --- what is refused before -----------------------------------------------------------------------------------------

PROMPT = PromptReference(name="p")


@pytest.mark.parametrize(
    ("method", "arguments", "problem", "path"),
    [
        ("read_resource", (7,), "resources/read: uri is an integer; expected a string", ("uri",)),
        ("read_resource", (None,), "resources/read: uri is null; expected a string", ("uri",)),
        (
            "read_resource",
            ("\ud800",),
            "resources/read: uri contains a lone surrogate, which UTF-8 cannot encode",
            ("uri",),
        ),
        ("get_prompt", (b"p",), "prompts/get: name is a Python bytes; expected a string", ("name",)),
        (
            "get_prompt",
            ("p", {"topic": 7}),
            "prompts/get: arguments.topic is an integer; expected a string",
            ("arguments", "topic"),
        ),
        (
            "get_prompt",
            ("p", {7: "x"}),
            "prompts/get: arguments has the key 7; expected strings as keys",
            ("arguments",),
        ),
        (
            "get_prompt",
            ("p", ["topic"]),
            "prompts/get: arguments is an array; expected a mapping of names to strings",
            ("arguments",),
        ),
        (
            "complete",
            ("p", {"name": "x", "value": ""}),
            "completion/complete: ref is a string; expected mcp.types.PromptReference(…) or "
            "ResourceTemplateReference(…)",
            ("ref",),
        ),
        (
            "complete",
            (PROMPT, {"x": "py"}),
            'completion/complete: argument does not have exactly "name" and "value"; '
            'give {"name": "language", "value": "py"}',
            ("argument",),
        ),
        (
            "complete",
            (PROMPT, {"name": "x", "value": None}),
            "completion/complete: argument.value is null; expected a string",
            ("argument", "value"),
        ),
        (
            "complete",
            (PROMPT, {"name": "x", "value": ""}, {"y": 1.5}),
            "completion/complete: context_arguments.y is a number; expected a string",
            ("context_arguments", "y"),
        ),
        (
            "set_log_level",
            ("loud",),
            "logging/setLevel: level is 'loud'; expected one of debug, info, notice, warning, error, critical, alert, "
            "emergency",
            ("level",),
        ),
        (
            "set_log_level",
            (20,),
            "logging/setLevel: level is an integer; expected one of debug, info, notice, warning, error, critical, "
            "alert, emergency",
            ("level",),
        ),
    ],
)
async def test_invalid_arguments_are_refused_before_sending(
    method: str, arguments: tuple[Any, ...], problem: str, path: tuple[str, ...]
) -> None:
    library = Library()
    async with open_servers(library.config()) as servers:
        with pytest.raises(InvalidArguments) as caught:
            await getattr(servers["library"], method)(*arguments)
    assert str(caught.value) == f"server 'library': {problem}; nothing was sent; correct the argument"
    assert (caught.value.tool, caught.value.path) == (None, path)
    assert library.methods() == []
