"""Subscriptions to resources: one way for both eras, across restarts, over every transport."""

from __future__ import annotations

import logging
import math
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Literal

import pytest
import trio
from mcp import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolResult,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import (
    Backoff,
    Http,
    InvalidArguments,
    LimitExceeded,
    RequestTimedOut,
    RestartPolicy,
    RetryPolicy,
    ServerConfig,
    ServerUnavailable,
    Stdio,
    open_servers,
)
from mcp_actors.servers import NotSupported, ResourceUpdated, ServerRef, Subscription
from mcp_actors.servers.connection._streams import OpenSubscriptions, Subscribe
from tests.forkserver import serve_python

from ..messages import Said
from .fleet import Outcome
from .groups import AT_ONCE, BOUND
from .library import Library, command
from .test_resources import Protocol, both_eras

A, B = "file:///a", "file:///b"


async def next_of(changes: Subscription) -> ResourceUpdated:
    """Return the next change; fail where it would be waited for for ever."""
    with trio.fail_after(BOUND):
        return await anext(changes)


# --- changes -------------------------------------------------------------------------------------------------------


@both_eras
async def test_changes_reach_the_subscribers(era: Protocol) -> None:
    library = Library()
    async with open_servers(library.config(protocol=era)) as servers, servers["library"].subscribe(A, B) as changes:
        assert changes.uris == (A, B)
        await library.change(B)
        assert await next_of(changes) == ResourceUpdated(B)
        await library.change("file:///c")
        await library.change(A)
        assert await next_of(changes) == ResourceUpdated(A, missed=False)
    if era == "legacy":
        assert library.asked[1:3] == [("resources/subscribe", A), ("resources/subscribe", B)]
    else:
        assert library.asked[1:] == [("subscriptions/listen", (A, B))]


@both_eras
async def test_several_changes_that_were_not_taken_are_one(era: Protocol) -> None:
    library = Library()
    async with open_servers(library.config(protocol=era)) as servers, servers["library"].subscribe(A, B) as changes:
        for uri in (A, B, A, A):
            await library.change(uri)
        await wait_all_tasks_blocked()
        assert repr(changes) == "<Subscription to 2 resources, 2 changed>"
        assert {(await next_of(changes)).uri, (await next_of(changes)).uri} == {A, B}
        await library.change(B)
        assert await next_of(changes) == ResourceUpdated(B)


async def test_a_change_of_a_part_reaches_the_subscribers_of_the_whole() -> None:
    library = Library()
    config = library.config(protocol="legacy")
    async with open_servers(config) as servers, servers["library"].subscribe("file:///a") as changes:
        await library.change("file:///ab")
        await library.change("file:///a/part")
        assert await next_of(changes) == ResourceUpdated("file:///a/part")
        await library.change("file:///a#part")
        assert await next_of(changes) == ResourceUpdated("file:///a#part")
        await library.change(f"file:///a/{'x' * 20_000}")  # is not kept
        assert await next_of(changes) == ResourceUpdated("file:///a")


async def test_more_parts_than_can_be_kept_count_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_actors.servers.record._subscriptions.MAX_PENDING", 3)
    library = Library()
    config = library.config(protocol="legacy")
    async with open_servers(config) as servers, servers["library"].subscribe(A) as changes:
        for number in range(4):
            await library.change(f"{A}/{number}")
        await wait_all_tasks_blocked()
        assert await next_of(changes) == ResourceUpdated(A, missed=True)


@both_eras
async def test_each_subscription_hears_of_its_own(era: Protocol) -> None:
    library = Library()
    async with open_servers(library.config(protocol=era)) as servers:
        ref = servers["library"]
        async with ref.subscribe(A) as first, ref.subscribe(A, B) as second:
            await library.change(B)
            assert await next_of(second) == ResourceUpdated(B)
            await library.change(A)
            assert await next_of(first) == await next_of(second) == ResourceUpdated(A)


async def test_the_last_subscriber_that_leaves_unsubscribes() -> None:
    """In the legacy era; other subscribers still get changes."""
    library = Library()
    async with open_servers(library.config(protocol="legacy")) as servers:
        ref = servers["library"]
        async with ref.subscribe(A) as first:
            async with ref.subscribe(A, B):
                pass
            await ref.call_tool("search")
            await wait_all_tasks_blocked()
            assert [about for method, about in library.asked if method == "resources/unsubscribe"] == [B]
            await library.change(A)
            assert await next_of(first) == ResourceUpdated(A)
        await wait_all_tasks_blocked()
        assert library.subscribed == {}


async def test_a_subscriber_that_comes_while_the_last_one_leaves_gets_changes() -> None:
    """The server stays subscribed in any order of the two messages."""
    library = Library()
    async with open_servers(library.config(protocol="legacy")) as servers:
        ref = servers["library"]
        for _ in range(20):
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(ref.subscribe(A))
            async with ref.subscribe(A) as changes:
                await wait_all_tasks_blocked()
                await library.change(A)
                assert await next_of(changes) == ResourceUpdated(A)


async def test_a_subscriber_that_comes_during_the_unsubscription_is_subscribed() -> None:
    """Of two messages about one resource the second waits for the answer to the first."""
    forgetting, forget = trio.Event(), trio.Event()

    class Slow(Library):
        async def unsubscribe(self, ctx: Any, params: UnsubscribeRequestParams) -> EmptyResult:
            forgetting.set()
            await forget.wait()
            return await super().unsubscribe(ctx, params)

    library = Slow()
    async with open_servers(library.config(protocol="legacy")) as servers, trio.open_nursery() as nursery:
        ref = servers["library"]

        async def hear() -> None:
            async with ref.subscribe(A) as changes:
                assert await next_of(changes) == ResourceUpdated(A)

        async with ref.subscribe(A):
            pass
        await forgetting.wait()
        nursery.start_soon(hear)
        await wait_all_tasks_blocked()
        forget.set()
        await wait_all_tasks_blocked()
        await library.change(A)


async def test_a_subscriber_that_leaves_before_the_answer_unsubscribes() -> None:
    """It may have subscribed, and would announce changes for ever."""

    class Slow(Library):
        async def subscribe(self, ctx: Any, params: SubscribeRequestParams) -> EmptyResult:
            await super().subscribe(ctx, params)
            await trio.sleep_forever()
            raise AssertionError

    library = Slow()
    async with open_servers(library.config(protocol="legacy")) as servers:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(AsyncExitStack().enter_async_context, servers["library"].subscribe(A))
            await wait_all_tasks_blocked()
            assert list(library.subscribed) == [A]
            nursery.cancel_scope.cancel("he leaves")
        await wait_all_tasks_blocked()
        assert library.asked[-1] == ("resources/unsubscribe", A)
        assert library.subscribed == {}


@pytest.mark.parametrize("overflow", ["wait", "fail"])
@pytest.mark.parametrize("max_in_flight", [1, 64])
async def test_subscriptions_that_end_together_are_all_unsubscribed(
    overflow: Literal["wait", "fail"], max_in_flight: int, autojump_clock: MockClock
) -> None:
    """B-16: also if there are more of them than places in the mailbox; requests go on in between."""
    library = Library()
    config = library.config(
        protocol="legacy", mailbox_size=20, overflow=overflow, max_in_flight=max_in_flight, request_timeout=None
    )
    async with open_servers(config) as servers, servers["library"].subscribe("file:///7") as kept:
        ref = servers["library"]
        async with AsyncExitStack() as stack:
            for number in range(100):
                await stack.enter_async_context(ref.subscribe(f"file:///{number}", f"file:///{number}/more"))
        assert (await ref.call_tool("search")).structured_content == {"found": 1}
        assert len(library.subscribed) > 1
        await wait_all_tasks_blocked()
        assert list(library.subscribed) == ["file:///7"]
        await library.change("file:///7")
        assert await next_of(kept) == ResourceUpdated("file:///7")


async def test_a_full_mailbox_loses_no_unsubscription(autojump_clock: MockClock) -> None:
    """B-16."""
    release = trio.Event()

    async def hold(ctx: Any, params: Any) -> CallToolResult:
        await release.wait()
        return CallToolResult(content=[], structured_content={"found": 1})

    library = Library(on_call_tool=hold)
    config = library.config(protocol="legacy", mailbox_size=1, overflow="fail", max_in_flight=1)
    async with open_servers(config) as servers, trio.open_nursery() as nursery:
        ref = servers["library"]
        async with ref.subscribe(A):
            for _ in range(2):
                nursery.start_soon(ref.call_tool, "search")
                await wait_all_tasks_blocked()
        await trio.sleep(10)
        release.set()
        await trio.sleep(10)
        assert library.subscribed == {}


async def test_an_unanswered_unsubscription_delays_requests_once_and_briefly(
    autojump_clock: MockClock,
) -> None:
    """The message takes its turn as any other, and after one without an answer there are no others."""
    unsubscribed: list[str] = []

    async def mute(ctx: Any, params: UnsubscribeRequestParams) -> EmptyResult:
        unsubscribed.append(params.uri)
        await trio.sleep_forever()
        raise AssertionError

    library = Library(on_unsubscribe_resource=mute)
    async with open_servers(library.config(protocol="legacy", max_in_flight=1, request_timeout=2)) as servers:
        ref = servers["library"]
        async with ref.subscribe(A, B):
            pass
        await ref.call_tool("search")
        assert unsubscribed == [A]
        began = trio.current_time()
        for _ in range(3):
            async with ref.subscribe(B) as changes:
                await library.change(B)
                assert await next_of(changes) == ResourceUpdated(B)
            await ref.call_tool("search")
        assert (trio.current_time(), unsubscribed) == (began, [A])
        async with ref.subscribe(A) as changes:
            await library.change(A)
            assert await next_of(changes) == ResourceUpdated(A)
        await ref.restart()
        async with ref.subscribe(B):
            pass
        await ref.call_tool("search")
        assert unsubscribed == [A, B]


async def test_a_stream_is_closed_with_its_block() -> None:
    library = Library()
    async with open_servers(library.config(protocol="2026-07-28")) as servers:
        others = len(library.listening._streams)
        async with servers["library"].subscribe(A):
            assert len(library.listening._streams) == others + 1
        await wait_all_tasks_blocked()
        assert len(library.listening._streams) == others


async def test_the_end_of_a_stream_forgets_no_later_stream_of_the_same_subscription() -> None:
    """A cancelled renewal closes its stream, and the next renewal may open another before that one has ended."""
    library = Library()
    async with open_servers(library.config(protocol="2026-07-28")) as servers:
        others = len(library.listening._streams)
        async with servers["library"].subscribe(A) as changes:
            open_ones = servers["library"]._record.subscriptions.connection
            assert isinstance(open_ones, OpenSubscriptions)
            open_ones.forget(changes)
            await open_ones.listen(Subscribe(changes))
            await wait_all_tasks_blocked()
            await library.change(A)
            assert await next_of(changes) == ResourceUpdated(A)
            await open_ones.listen(Subscribe(changes))  # it has a stream, so none is opened
            await wait_all_tasks_blocked()
            assert len(library.listening._streams) == others + 1


@both_eras
async def test_a_subscription_takes_no_slot_of_a_request(era: Protocol) -> None:
    library = Library()
    async with open_servers(library.config(protocol=era, max_in_flight=1)) as servers:
        ref = servers["library"]
        async with ref.subscribe(A) as changes, ref.subscribe(B):
            assert (await ref.call_tool("search")).structured_content == {"found": 1}
            assert ref.statistics().in_flight == 0
            await library.change(A)
            assert await next_of(changes) == ResourceUpdated(A)


@both_eras
async def test_an_exception_of_the_block_is_raised_unchanged(era: Protocol) -> None:
    async with open_servers(Library().config(protocol=era)) as servers:
        with pytest.raises(KeyError, match="mine"):
            async with servers["library"].subscribe(A):
                raise KeyError("mine")


# --- across restarts ------------------------------------------------------------------------------------------------


@both_eras
async def test_a_subscription_survives_restarts_and_reports_missed_changes(era: Protocol) -> None:
    """S3-06: subscriptions are part of what a connect brings back."""
    library = Library()
    async with open_servers(library.config(protocol=era, max_in_flight=1)) as servers:
        ref = servers["library"]
        async with ref.subscribe(A, B) as changes:
            for _ in range(2):
                await ref.restart()
                marks = [await next_of(changes), await next_of(changes)]
                assert marks == [ResourceUpdated(A, missed=True), ResourceUpdated(B, missed=True)]
                await library.change(A)
                assert await next_of(changes) == ResourceUpdated(A)
        await ref.restart()
        await wait_all_tasks_blocked()
        method = "resources/subscribe" if era == "legacy" else "subscriptions/listen"
        assert library.methods().count(method) == (6 if era == "legacy" else 3)


@both_eras
async def test_a_subscription_that_ended_before_its_renewal_is_not_renewed(era: Protocol) -> None:
    """The renewal that waits in the mailbox does nothing, and nothing is left at the server."""
    release = trio.Event()

    async def wait(ctx: Any, params: Any) -> CallToolResult:
        await release.wait()
        return CallToolResult(content=[])

    library, call = Library(on_call_tool=wait), Outcome()
    config = library.config(protocol=era, max_in_flight=1)
    async with open_servers(config, drain_timeout=0) as servers, trio.open_nursery() as nursery:
        ref = servers["library"]
        async with ref.subscribe(A):
            nursery.start_soon(Outcome().of, ref.call_tool, "search")
            await wait_all_tasks_blocked()
            nursery.start_soon(call.of, ref.call_tool, "search")
            await wait_all_tasks_blocked()
            await ref.restart()
            await wait_all_tasks_blocked()
            assert (ref.statistics().in_flight, ref.statistics().queued) == (1, 1)
        before = len(library.asked)
        release.set()
        await call.result()
        await wait_all_tasks_blocked()
        assert (ref.statistics().in_flight, ref.statistics().queued) == (0, 0)
        assert len(library.asked) == before


@both_eras
async def test_hundreds_of_renewals_leave_room_in_the_mailbox_for_requests(
    era: Protocol, caplog: pytest.LogCaptureFixture
) -> None:
    library = Library()
    config = library.config(protocol=era, mailbox_size=20, overflow="fail", max_in_flight=1)
    async with open_servers(config) as servers, AsyncExitStack() as stack:
        ref = servers["library"]
        all_changes = [await stack.enter_async_context(ref.subscribe(f"file:///{number}")) for number in range(200)]
        await ref.restart()
        assert (await ref.call_tool("search")).structured_content == {"found": 1}
        for number, changes in enumerate(all_changes):
            assert await next_of(changes) == ResourceUpdated(f"file:///{number}", missed=True)
        await wait_all_tasks_blocked()
        assert not any(changes.is_established is False for changes in all_changes)
    assert caplog.records == []


@both_eras
async def test_a_missed_change_is_reported_only_after_the_renewal(era: Protocol) -> None:
    """A subscriber that reads the resource after a change gets the new state, or another change follows."""
    library = Library()
    async with open_servers(library.config(protocol=era)) as servers:
        ref = servers["library"]
        async with ref.subscribe(A) as changes:
            before = len(library.asked)
            await ref.restart()
            assert await next_of(changes) == ResourceUpdated(A, missed=True)
            assert len(library.asked) > before
            assert library.asked[-1][0] in ("resources/subscribe", "subscriptions/listen")


@both_eras
async def test_a_subscription_that_cannot_be_renewed_changes_no_state(
    era: Protocol, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """S3-22: that is logged once, the server serves, and it is tried again."""
    library = Library()
    method = "resources/subscribe" if era == "legacy" else "subscriptions/listen"
    async with open_servers(library.config(protocol=era)) as servers:
        ref = servers["library"]
        async with ref.subscribe(A) as changes:
            library.failing[method] = [MCPError(INTERNAL_ERROR, "not yet") for _ in range(3)]
            began = trio.current_time()
            await ref.restart()
            assert ref.state == "ready"
            assert (await ref.call_tool("search")).structured_content == {"found": 1}
            assert await next_of(changes) == ResourceUpdated(A, missed=True)
            assert 1 + 2 + 4 <= trio.current_time() - began < 10
            assert (ref.state, ref.statistics().last_error) == ("ready", None)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["server 'library': a subscription was not renewed: not yet; it will be tried again"]


@both_eras
async def test_a_subscriber_gets_the_error_of_a_refused_renewal(
    era: Protocol, caplog: pytest.LogCaptureFixture
) -> None:
    library = Library()
    method = "resources/subscribe" if era == "legacy" else "subscriptions/listen"
    async with open_servers(library.config(protocol=era)) as servers:
        ref = servers["library"]
        async with ref.subscribe(A) as changes:
            library.failing[method] = [MCPError(INVALID_PARAMS, "no such resource any more")]
            await ref.restart()
            with pytest.raises(MCPError, match="no such resource any more"):
                await next_of(changes)
            assert [change async for change in changes] == []
            assert ref.state == "ready"
    assert "its subscriber gets this error" in caplog.text


async def test_a_stream_that_the_server_ends_is_opened_again(autojump_clock: MockClock) -> None:
    """At once if it has lasted; with growing pauses if it did not."""
    library = Library()
    async with open_servers(library.config(protocol="2026-07-28", max_in_flight=1)) as servers:
        async with servers["library"].subscribe(A) as changes:
            pauses = []
            for lasted in (0, 0, 100, 0):
                await trio.sleep(lasted)
                began = trio.current_time()
                library.listening.close()
                assert await next_of(changes) == ResourceUpdated(A, missed=True)
                pauses.append(math.floor(trio.current_time() - began))
            await library.change(A)
            assert await next_of(changes) == ResourceUpdated(A)
        assert servers["library"].statistics().restarts == 0
    assert pauses == [1, 2, 0, 1]


@both_eras
async def test_a_server_that_stays_down_is_an_error_for_the_subscriber(era: Protocol) -> None:
    """And when it is started again, so is the subscription."""
    library = Library()
    async with open_servers(library.config(protocol=era)) as servers:
        ref = servers["library"]
        async with ref.subscribe(A) as changes, trio.open_nursery() as nursery:

            async def wait_for_the_end() -> None:
                with pytest.raises(ServerUnavailable, match=r"server .library.:? is stopped"):
                    await next_of(changes)
                await ref.start()
                assert await next_of(changes) == ResourceUpdated(A, missed=True)

            nursery.start_soon(wait_for_the_end)
            await wait_all_tasks_blocked()
            await ref.stop()


@both_eras
async def test_a_subscription_ends_with_its_group(era: Protocol) -> None:
    heard: list[ResourceUpdated] = []

    async def listen(ref: ServerRef, *, task_status: trio.TaskStatus[None]) -> None:
        async with ref.subscribe(A) as changes:
            task_status.started()
            heard.extend([change async for change in changes])

    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery, open_servers(Library().config(protocol=era)) as servers:
            await nursery.start(listen, servers["library"])
    assert heard == []


async def test_changes_from_before_the_end_are_still_yielded() -> None:
    library = Library()
    async with open_servers(library.config()) as servers:
        async with servers["library"].subscribe(A) as changes:
            await library.change(A)
            await wait_all_tasks_blocked()
        assert [change async for change in changes] == [ResourceUpdated(A)]


# --- what cannot be subscribed to -----------------------------------------------------------------------------------


@both_eras
async def test_a_server_without_subscriptions_is_not_subscribed_to(era: Protocol) -> None:
    library = Library(on_subscribe_resource=None, on_subscriptions_listen=None)
    async with open_servers(library.config(protocol=era)) as servers:
        with pytest.raises(NotSupported) as caught:
            async with servers["library"].subscribe("db://me:secret@host/a", B):
                pass
    assert str(caught.value) == (
        "server 'library': capability 'resources.subscribe' is not supported, so resources/subscribe 'db://host/a, "
        "file:///b' was not sent; check info.supports.resources_subscribe first"
    )
    assert library.methods() == []


async def less(ctx: Any, params: Any) -> SubscriptionsListenResult:
    """Agree to the first resource only."""
    meta = {"io.modelcontextprotocol/subscriptionId": ctx.request_id}
    honored = SubscriptionFilter(resource_subscriptions=params.notifications.resource_subscriptions[:1])
    agreed = SubscriptionsAcknowledgedNotificationParams(notifications=honored, _meta=meta)
    await ctx.session.send_notification(
        SubscriptionsAcknowledgedNotification(params=agreed), related_request_id=ctx.request_id
    )
    await trio.sleep_forever()
    raise AssertionError


async def test_a_server_that_accepts_only_some_resources_is_an_error() -> None:
    library = Library(on_subscriptions_listen=less)
    async with open_servers(library.config(protocol="2026-07-28")) as servers:
        with pytest.raises(NotSupported, match="changes of 'file:///b' are not supported"):
            async with servers["library"].subscribe(A, B):
                pass


@both_eras
async def test_a_refusal_is_raised_unchanged(era: Protocol) -> None:
    library = Library()
    method = "resources/subscribe" if era == "legacy" else "subscriptions/listen"
    library.failing[method] = [MCPError(INVALID_PARAMS, "no such resource", {"uri": A})]
    async with open_servers(library.config(protocol=era)) as servers:
        with pytest.raises(MCPError, match="no such resource") as caught:
            async with servers["library"].subscribe(A):
                pass
        assert caught.value.error.data == {"uri": A}


@both_eras
async def test_a_transient_failure_is_retried(era: Protocol) -> None:
    library = Library()
    method = "resources/subscribe" if era == "legacy" else "subscriptions/listen"
    library.failing[method] = [MCPError(INTERNAL_ERROR, "not yet")]
    config = library.config(protocol=era, retry=RetryPolicy(attempts=2, backoff=Backoff(), isolated=True))
    async with open_servers(config) as servers, servers["library"].subscribe(A) as changes:
        await library.change(A)
        assert await next_of(changes) == ResourceUpdated(A)


async def never(ctx: Any, params: Any) -> Any:
    await trio.sleep_forever()


@both_eras
async def test_a_subscription_has_the_timeout_of_a_request(era: Protocol, autojump_clock: MockClock) -> None:
    library = Library(on_subscribe_resource=never, on_subscriptions_listen=never)
    async with open_servers(library.config(protocol=era, request_timeout=7)) as servers:
        with pytest.raises(RequestTimedOut, match="resources/subscribe 'file:///a' timed out after 7 s"):
            async with servers["library"].subscribe(A):
                pass
        await wait_all_tasks_blocked()
        assert servers["library"].statistics().in_flight == 0


async def test_an_empty_list_of_uris_is_refused() -> None:
    async with open_servers(Library().config()) as servers:
        with pytest.raises(InvalidArguments, match="uris is empty; give the URI of each resource"):
            async with servers["library"].subscribe():
                pass
        with pytest.raises(InvalidArguments, match="resources/subscribe: uri is an integer; expected a string"):
            async with servers["library"].subscribe(A, 7):  # type: ignore[arg-type]  # that is what is tested
                pass


async def test_a_subscription_connects_a_lazy_server() -> None:
    library = Library()
    async with open_servers(library.config(connect="lazy")) as servers, servers["library"].subscribe(A) as changes:
        await library.change(A)
        assert await next_of(changes) == ResourceUpdated(A)


# --- real processes -------------------------------------------------------------------------------------------------


@both_eras
async def test_a_subscription_survives_the_death_of_the_process(era: Protocol, programs_in_forks: None) -> None:
    """S3-06: the next process is subscribed to too."""
    program, args = command()
    config = ServerConfig("library", Stdio(program, args, env_from=("PYTHONPATH",)), protocol=era, restarts=AT_ONCE)
    async with open_servers(config) as servers:
        ref = servers["library"]
        async with ref.subscribe(A) as changes:
            await ref.call_tool("change", {"uri": A})
            assert await next_of(changes) == ResourceUpdated(A)
            pid = ref.statistics().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert await next_of(changes) == ResourceUpdated(A, missed=True)
            await ref.call_tool("change", {"uri": A})
            assert await next_of(changes) == ResourceUpdated(A)
            assert ref.statistics().restarts == 1


@contextmanager
def library_over_http(port: int = 0) -> Iterator[int]:
    """Run the library in a process, and give its port."""
    with serve_python("-m", "tests.servers.library", str(port)) as (_, port):
        yield port


@both_eras
async def test_a_subscription_survives_the_death_of_an_http_server(era: Protocol) -> None:
    """S3-06: the stream of the old connection ends with it, and the new one is asked for another."""
    again = RestartPolicy(max_restarts=100, backoff=Backoff(initial=0.05, maximum=0.05))

    async def hear(changes: Subscription, ref: ServerRef) -> None:
        await ref.call_tool("change", {"uri": A})
        assert (await next_of(changes)).uri == A  # it was missed if the stream was not open yet

    with library_over_http() as port:
        config = ServerConfig("library", Http(f"http://127.0.0.1:{port}/mcp"), protocol=era, restarts=again)
        async with AsyncExitStack() as stack:
            servers = await stack.enter_async_context(open_servers(config))
            changes = await stack.enter_async_context(servers["library"].subscribe(A))
            await hear(changes, servers["library"])
            rest = stack.pop_all()
    async with rest:
        with library_over_http(port):
            while not (await next_of(changes)).missed:
                pass
            await hear(changes, servers["library"])


async def test_subscriptions_over_http_leave_a_connection_for_requests(said: Said) -> None:
    """Each stream takes a connection; if all were taken, every request would wait for ever."""
    with library_over_http() as port:
        transport = Http(f"http://127.0.0.1:{port}/mcp", max_connections=4)
        config = ServerConfig("library", transport, protocol="2026-07-28", max_in_flight=3)
        async with open_servers(config) as servers, AsyncExitStack() as stack:
            ref = servers["library"]
            changes = await stack.enter_async_context(ref.subscribe(A, B))
            async with ref.subscribe(A):
                with pytest.raises(LimitExceeded) as caught:
                    await stack.enter_async_context(ref.subscribe(B))
                with trio.fail_after(BOUND):
                    await ref.call_tool("change", {"uri": B})
                    assert await next_of(changes) == ResourceUpdated(B)
            async with ref.subscribe(B):
                pass
    said("too many subscriptions over HTTP", str(caught.value))
    assert caught.value.outcome == "not_sent"
