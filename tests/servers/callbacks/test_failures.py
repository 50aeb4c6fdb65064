"""Callbacks that raise, hang, or are cancelled."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import outcome
import pytest
import trio
from mcp.types import ElicitRequestParams, ElicitResult, ErrorData
from pydantic_core import PydanticSerializationError

from mcp_actors import Callbacks, ConnectionLost, RequestTimedOut, ServerError, open_servers
from mcp_actors.config import CallbackContext
from mcp_actors.servers import ServerGroup
from tests.idle_clock import IdleClock

from ...messages import Said
from ..asking import ACCEPTED, ELICIT, ERAS, SAMPLE, Era, accept, ask, asking, call, until
from ..groups import AT_ONCE, BOUND, Events
from ..links import MARGIN

Callback = Callable[[CallbackContext, ElicitRequestParams], Awaitable[Any]]

SECRET = "hunter2"


async def broken(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
    await trio.lowlevel.checkpoint()
    raise ValueError(f"the password is {SECRET}")


async def broken_inside(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broken, context, params)
        nursery.start_soon(trio.sleep_forever)
    raise AssertionError


async def forgetful(context: CallbackContext, params: ElicitRequestParams) -> Any:
    await trio.lowlevel.checkpoint()


async def refuses_with_an_object(context: CallbackContext, params: ElicitRequestParams) -> ErrorData:
    await trio.lowlevel.checkpoint()
    return ErrorData(code=1, message="no", data=object())


async def answers_with_half_a_character(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
    await trio.lowlevel.checkpoint()
    return ElicitResult(action="decline", _meta={"why": "\ud800"})


async def hangs(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
    await trio.sleep_forever()
    raise AssertionError


async def passes_on_a_cancellation(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
    """Raise the exception that ended another task, an easy mistake when tasks are bridged."""
    ended: list[outcome.Outcome[None]] = []

    async def other() -> None:
        ended.append(await outcome.acapture(trio.sleep_forever))
        ended[0].unwrap()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel("over")
    assert isinstance(ended[0], outcome.Error)
    raise ended[0].error


UNWRITABLE = "returned an answer that cannot be written as JSON"

FAILURES = [
    (broken, "raised ValueError", ValueError, -32603),
    (broken_inside, "raised ValueError", ValueError, -32603),
    (passes_on_a_cancellation, "raised RuntimeError", RuntimeError, -32603),
    (forgetful, "returned NoneType instead of mcp.types.ElicitResult", None, -32603),
    (refuses_with_an_object, UNWRITABLE, PydanticSerializationError, -32603),
    (answers_with_half_a_character, UNWRITABLE, PydanticSerializationError, -32603),
    (hangs, "timed out after 0.05 s", None, -32001),
]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("callback", "reason", "cause", "code"), FAILURES, ids=[each[0].__name__ for each in FAILURES])
async def test_a_callback_that_fails_is_an_error_for_the_server_and_a_log_line(
    caplog: pytest.LogCaptureFixture,
    era: Era,
    callback: Callback,
    reason: str,
    cause: type[Exception] | None,
    code: int,
    said: Said,
) -> None:
    """S1-07: never a group, and nothing ends. The server does not get the text of the exception."""
    events = Events()
    timeout = 0.05 if callback is hangs else BOUND
    config = asking(era, callbacks=Callbacks(elicitation=callback, timeout=timeout))
    with caplog.at_level(logging.ERROR, "mcp_actors"):
        async with open_servers(config, observers=[events]) as servers:
            if era == "legacy":
                message = "the client's callback for elicitation failed"
                assert await ask(servers["a"], ELICIT) == [{"error": {"code": code, "message": message}}]
            else:
                with pytest.raises(ServerError) as caught:
                    await ask(servers["a"], ELICIT)
                assert type(caught.value) is ServerError
                said("callback for a question failed", str(caught.value), reason=reason)
                assert type(caught.value.__cause__) is (type(None) if cause is None else cause)
            assert "methods" in await call(servers["a"], "seen")
    assert [record.getMessage() for record in caplog.records] == [f"server 'a': the elicitation callback {reason}"]
    assert events.states("a") == ["connecting", "ready", "stopping", "stopped"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_callback_that_cannot_be_cancelled_delays_neither_the_server_nor_the_caller(era: Era) -> None:
    """For example one that reads from a terminal in a thread. The process also ends in time."""
    read = threading.Event()

    async def blocks(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        await trio.to_thread.run_sync(read.wait)
        return ACCEPTED

    config = asking(era, callbacks=Callbacks(elicitation=blocks, timeout=0.05), stop_timeout=1)
    async with open_servers(config) as servers:
        began = trio.current_time()
        with freed(read), trio.fail_after(BOUND):
            if era == "legacy":
                [answer] = await ask(servers["a"], ELICIT)
                assert answer["error"]["code"] == -32001
            else:
                with pytest.raises(ServerError, match="timed out"):
                    await ask(servers["a"], ELICIT)
            assert trio.current_time() - began < MARGIN


@contextmanager
def freed(event: threading.Event) -> Iterator[None]:
    """Release a thread even if the test fails, because nothing else could end it."""
    try:
        yield
    finally:
        event.set()


async def test_a_process_is_stopped_even_if_a_callback_does_not_end() -> None:
    """Its tasks are started outside of the link."""
    asked, read = trio.Event(), threading.Event()

    async def blocks(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        asked.set()
        await trio.to_thread.run_sync(read.wait)
        return ACCEPTED

    config = asking(callbacks=Callbacks(elicitation=blocks), stop_timeout=0.5)
    async with open_servers(config) as servers, trio.open_nursery() as nursery:
        pid = servers["a"].statistics().pid
        assert pid is not None
        await call(servers["a"], "ask_later", questions=[ELICIT])
        await asked.wait()
        with freed(read):
            nursery.start_soon(servers["a"].stop)
            await until(lambda: gone(pid))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class Watched:
    """A callback that waits, and notes how it ends."""

    def __init__(self) -> None:
        self.began = trio.Event()
        self.ended: list[str] = []

    async def __call__(self, context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        self.began.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.ended.append("cancelled")
            raise
        raise AssertionError


async def test_a_question_that_the_server_withdraws_cancels_its_callback() -> None:
    """The server gets no response."""
    watched = Watched()
    async with open_servers(asking(callbacks=Callbacks(elicitation=watched))) as servers:
        await call(servers["a"], "ask_later", questions=[ELICIT])
        await watched.began.wait()
        assert await call(servers["a"], "withdraw") == "withdrawn"
        await until(lambda: watched.ended)
        assert await call(servers["a"], "answers") == []
    assert watched.ended == ["cancelled"]


async def test_a_cancelled_caller_cancels_the_callback_of_its_question() -> None:
    """Since 2026-07-28 the question is part of the caller's request."""
    watched = Watched()
    async with open_servers(asking("modern", callbacks=Callbacks(elicitation=watched))) as servers:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, servers["a"], ELICIT)
            await watched.began.wait()
            nursery.cancel_scope.cancel("the caller leaves")
        await until(lambda: watched.ended)


@pytest.mark.parametrize("era", ERAS)
async def test_the_time_of_a_model_counts_for_the_request(era: Era, idle_clock: IdleClock) -> None:
    """Unlike that of a person. The time without progress has not expired."""
    watched: Any = Watched()
    config = asking(era, callbacks=Callbacks(sampling=watched), request_timeout=30, progress_timeout=20)
    async with open_servers(config) as servers:
        with pytest.raises(RequestTimedOut, match="was waiting for a callback of yours, whose time counts") as caught:
            await ask(servers["a"], SAMPLE)
        assert (caught.value.limit, caught.value.seconds) == ("request_timeout", 30)
        if era == "modern":
            await until(lambda: watched.ended)


@pytest.mark.parametrize("era", ERAS)
async def test_progress_timeout_is_suspended_while_a_callback_runs(era: Era, idle_clock: IdleClock) -> None:
    async def slow(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        await trio.sleep(40)
        return ACCEPTED

    config = asking(era, callbacks=Callbacks(elicitation=slow), progress_timeout=30)
    async with open_servers(config) as servers:
        assert len(await ask(servers["a"], ELICIT)) == 1
        with pytest.raises(RequestTimedOut) as caught:
            await call(servers["a"], "silent")
        assert caught.value.limit == "progress_timeout"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", ["killed", "left"])
async def test_the_end_of_the_connection_ends_the_callbacks(era: Era, how: str) -> None:
    watched = Watched()
    outcomes: list[BaseException] = []

    async def ask_once(servers: ServerGroup) -> None:
        try:
            await ask(servers["a"], ELICIT)
        except ServerError as exc:
            outcomes.append(exc)

    config = asking(era, callbacks=Callbacks(elicitation=watched), restarts=AT_ONCE)
    async with trio.open_nursery() as nursery:
        async with open_servers(config, drain_timeout=0) as servers:
            nursery.start_soon(ask_once, servers)
            await watched.began.wait()
            if how == "killed":
                with pytest.raises(ConnectionLost):
                    await call(servers["a"], "die", notifications=[])
                await until(lambda: watched.ended)
                with trio.fail_after(BOUND):
                    await servers["a"].wait_ready()
        assert watched.ended == ["cancelled"]
    assert len(outcomes) == 1


async def test_an_exception_of_a_cancelled_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    began = trio.Event()

    async def clumsy(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("clean-up")

    with caplog.at_level(logging.WARNING, "mcp_actors"):
        async with open_servers(asking(callbacks=Callbacks(elicitation=clumsy))) as servers:
            await call(servers["a"], "ask_later", questions=[ELICIT])
            await began.wait()
    assert caplog.messages == ["server 'a': the elicitation callback raised when cancelled"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", [SystemExit, pytest.fail.Exception])
async def test_a_callback_that_raises_an_exit_ends_the_program(
    era: Era, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """S1-07, C-41: it is not a failure of the server or the callback."""

    async def leave(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        raise kind("3")

    async def program() -> None:
        async with open_servers(asking(era, callbacks=Callbacks(elicitation=leave))) as servers:
            with pytest.raises(ConnectionLost):
                await ask(servers["a"], ELICIT)
            await trio.sleep_forever()

    with caplog.at_level(logging.WARNING, "mcp_actors"), pytest.raises(kind), trio.fail_after(BOUND):
        await program()
    assert [message for message in caplog.messages if "timed out" in message] == []


async def test_a_callback_that_fails_does_not_affect_others() -> None:
    async def choose(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        return await (broken if context.request_id == "question 0" else accept)(context, params)

    async with open_servers(asking(callbacks=Callbacks(elicitation=choose))) as servers:
        failed, *others = await ask(servers["a"], ELICIT, ELICIT, ELICIT)
    assert "error" in failed
    assert [each["action"] for each in others] == ["accept", "accept"]
