"""Questions of servers, answered by callbacks in either era."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import trio
from mcp import MCPError
from mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    SamplingCapability,
    SamplingToolsCapability,
)
from trio.testing import wait_all_tasks_blocked

from mcp_actors import Callbacks, ConfigError, LimitExceeded, ServerError, open_servers
from mcp_actors.config import CallbackContext, ElicitationCallback
from mcp_actors.kernel import ActorError
from mcp_actors.servers import NotSupported, ServerGroup
from mcp_actors.servers._session import QUESTIONS_A_STEP, SdkListener
from mcp_actors.servers.connection._callbacks import MAX_QUESTIONS

from ...messages import Said
from ..asking import (
    ACCEPTED,
    ELICIT,
    ERAS,
    FOLDERS,
    ROOTS,
    SAID,
    SAMPLE,
    Era,
    Heard,
    accept,
    ask,
    asking,
    call,
    folders,
    say,
    until,
)
from ..groups import BOUND

URL: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Log in.", "url": "https://example.com/login", "elicitationId": "e1"},
}


PAGES = (
    "file:///etc/passwd",
    "javascript:alert(1)",
    "java\nscript:alert(1)",
    " javascript:alert(1)",
    "data:text/html,x",
    "vscode://install",
    "//example.com/login",
    "https:\\\\example.com",
    "https://bank.example@evil.example/login",
    "https://bank.example\\@evil.example/login",
    "https://:80@evil.example",
    "https://[",
    "https://example.com:port",
    "https:///login",
    "",
)
"""URLs that a browser must not open."""


def wire(result: Any) -> Any:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


@pytest.mark.parametrize("era", ERAS)
async def test_each_question_is_answered_by_its_callback(era: Era) -> None:
    """S4-23: sampling with all its parameters, elicitation by form and URL, and roots, with the name of the server."""
    seen: list[Any] = []

    async def sampling(context: CallbackContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        await trio.lowlevel.checkpoint()
        seen.append((context.server, params.max_tokens, params.temperature, params.stop_sequences))
        return SAID

    async def elicitation(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        seen.append((context.server, params.mode, params.message))
        return ACCEPTED

    async def roots(context: CallbackContext) -> ListRootsResult:
        await trio.lowlevel.checkpoint()
        seen.append((context.server, context.request_id is not None))
        return FOLDERS

    callbacks = Callbacks(sampling=sampling, elicitation=elicitation, roots=roots)
    async with open_servers(asking(era), callbacks=callbacks) as servers:
        for question, answer in ((SAMPLE, SAID), (ELICIT, ACCEPTED), (URL, ACCEPTED), (ROOTS, FOLDERS)):
            assert await ask(servers["a"], question) == [wire(answer)]
    assert seen == [
        ("a", 7, 0.25, ["end", "stop"]),
        ("a", "form", "Which one?"),
        ("a", "url", "Log in."),
        ("a", True),
    ]


@pytest.mark.parametrize("era", ERAS)
async def test_a_page_that_a_browser_must_not_open_reaches_no_callback(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    """C-19: the server gets an error, and since 2026-07-28 the caller too."""
    seen: list[str] = []

    async def elicitation(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        seen.append(params.message)
        return ACCEPTED

    async with open_servers(asking(era), callbacks=Callbacks(elicitation=elicitation)) as servers:
        for url in PAGES:
            question = {**URL, "params": {**URL["params"], "url": url}}
            if era == "modern":
                with pytest.raises(ServerError, match=r"the server asks a person to open a page .*report that"):
                    await ask(servers["a"], question)
            else:
                (answer,) = await ask(servers["a"], question)
                assert answer["error"]["message"].startswith("the client opens no page ")
    assert seen == []
    assert caplog.text.count("the server asks a person to open a page") == len(PAGES)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("callbacks", "advertised"),
    [
        (None, {}),
        (Callbacks(), {}),
        (Callbacks(logging=Heard(), message=Heard()), {}),
        (Callbacks(sampling=say), {"sampling": {}}),
        (
            Callbacks(sampling=say, sampling_capabilities=SamplingCapability(tools=SamplingToolsCapability())),
            {"sampling": {"tools": {}}},
        ),
        (Callbacks(elicitation=accept), {"elicitation": {"form": {}, "url": {}}}),
        (Callbacks(roots=folders), {"roots": {"listChanged": True}}),
    ],
    ids=["nothing", "none", "what is only told", "sampling", "with tools", "elicitation", "roots"],
)
async def test_a_capability_is_advertised_for_each_callback(
    era: Era, callbacks: Callbacks | None, advertised: dict[str, Any]
) -> None:
    """S4-23: and for nothing else, as sent on the wire."""
    async with open_servers(asking(era, callbacks=callbacks)) as servers:
        capabilities = (await call(servers["a"], "seen"))["capabilities"]
    assert capabilities == advertised


async def test_each_callback_of_a_server_overrides_that_of_the_group() -> None:
    """False removes a callback of the group."""

    async def decline(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        return ElicitResult(action="decline")

    own = {"own": Callbacks(elicitation=decline), "none": Callbacks(elicitation=False), "groups": None}
    configs = [asking(name=name, callbacks=callbacks) for name, callbacks in own.items()]
    async with open_servers(*configs, callbacks=Callbacks(elicitation=accept, roots=folders)) as servers:
        assert await ask(servers["own"], ELICIT, ROOTS) == [{"action": "decline"}, wire(FOLDERS)]
        assert await ask(servers["groups"], ELICIT) == [wire(ACCEPTED)]
        capabilities = (await call(servers["none"], "seen"))["capabilities"]
        assert list(capabilities) == ["roots"]


async def test_invalid_callbacks_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"open_servers takes callbacks=Callbacks\(\.\.\.\), not function"):
        async with open_servers(callbacks=accept):  # type: ignore[arg-type]  # that it refuses is what is tested
            pytest.fail("it opened")


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_by_a_callback_is_passed_on_unchanged(era: Era) -> None:
    async def refuse(context: CallbackContext, params: CreateMessageRequestParams) -> ErrorData:
        await trio.lowlevel.checkpoint()
        return ErrorData(code=-1, message="the user said no")

    async with open_servers(asking(era), callbacks=Callbacks(sampling=refuse)) as servers:
        if era == "legacy":
            assert await ask(servers["a"], SAMPLE) == [{"error": {"code": -1, "message": "the user said no"}}]
        else:
            with pytest.raises(MCPError, match="the user said no") as caught:
                await ask(servers["a"], SAMPLE)
            assert caught.value.code == -1


@pytest.mark.parametrize("era", ERAS)
async def test_callbacks_run_concurrently_and_delay_no_request(era: Era) -> None:
    running = 0
    gate = trio.Event()

    async def wait(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        nonlocal running
        running += 1
        await gate.wait()
        return ACCEPTED

    answers: list[Any] = []

    async def ask_all() -> None:
        answers.extend(await ask(servers["a"], ELICIT, ELICIT, ELICIT))

    async with (
        open_servers(asking(era), callbacks=Callbacks(elicitation=wait)) as servers,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_all)
        await until(lambda: running == 3)
        assert "methods" in await call(servers["a"], "seen")
        assert answers == []
        gate.set()
    assert answers == [wire(ACCEPTED)] * 3


VISITOR: ContextVar[str] = ContextVar("VISITOR", default="nobody")


@pytest.mark.parametrize(("era", "visitor"), [("legacy", "the group's"), ("modern", "mary")])
async def test_a_callback_runs_in_the_context_of_its_request_if_that_is_known(era: Era, visitor: str) -> None:
    """K7. Over stdio in the legacy era the request is unknown."""
    seen: list[str] = []

    async def note(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        seen.append(VISITOR.get())
        return ACCEPTED

    VISITOR.set("the group's")
    async with open_servers(asking(era), callbacks=Callbacks(elicitation=note)) as servers:
        VISITOR.set("mary")
        await ask(servers["a"], ELICIT)
    assert seen == [visitor]


# --- callbacks that call servers --------------------------------------------------------------------------------------


def calling(servers: Callable[[], ServerGroup], tool: str, to: str = "a") -> tuple[ElicitationCallback, list[Any]]:
    """Return an elicitation callback that calls a server before it answers, and the results of these calls."""
    outcomes: list[Any] = []

    async def callback(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        try:
            outcomes.append(await call(servers()[to], tool))
        except LimitExceeded as exc:
            outcomes.append(exc)
        return ACCEPTED

    return callback, outcomes


@pytest.mark.parametrize("era", ERAS)
async def test_a_callback_may_call_the_server_that_asks_and_others(era: Era) -> None:
    callback, outcomes = calling(lambda: servers, "seen")
    other, others = calling(lambda: servers, "seen", to="b")
    configs = [
        asking(era, max_in_flight=2, callbacks=Callbacks(elicitation=callback)),
        asking(era, name="b", max_in_flight=1, callbacks=Callbacks(elicitation=accept)),
        asking(era, name="c", max_in_flight=1, callbacks=Callbacks(elicitation=other)),
    ]
    servers: ServerGroup
    async with open_servers(*configs) as servers:
        with trio.fail_after(BOUND):
            assert await ask(servers["a"], ELICIT) == [wire(ACCEPTED)]
            assert await ask(servers["c"], ELICIT) == [wire(ACCEPTED)]
    assert "methods" in outcomes[0]
    assert "methods" in others[0]


@pytest.mark.parametrize("era", ERAS)
async def test_with_max_in_flight_1_a_callback_that_calls_its_server_is_refused(era: Era) -> None:
    """Otherwise it would wait for itself."""
    callback, outcomes = calling(lambda: servers, "seen")
    config = asking(era, max_in_flight=1, callbacks=Callbacks(elicitation=callback))
    async with open_servers(config) as servers:
        with trio.fail_after(BOUND):
            assert await ask(servers["a"], ELICIT) == [wire(ACCEPTED)]
    assert [type(each) for each in outcomes] == [LimitExceeded]
    assert "deadlock" in str(outcomes[0])
    assert "max_in_flight" in str(outcomes[0])
    assert isinstance(outcomes[0].__cause__, ActorError)


async def test_a_callback_for_an_unsolicited_question_may_call_the_server_even_then() -> None:
    """No request is in flight, so the call does not wait for itself."""
    callback, outcomes = calling(lambda: servers, "seen")
    config = asking(max_in_flight=1, callbacks=Callbacks(elicitation=callback))
    async with open_servers(config) as servers:
        await call(servers["a"], "ask_later", questions=[ELICIT])
        await until(lambda: outcomes)
    assert "methods" in outcomes[0]


async def test_a_question_during_the_connect_is_answered() -> None:
    async with open_servers(
        asking("legacy", "--ask-at-start", "roots/list"), callbacks=Callbacks(roots=folders)
    ) as servers:
        with trio.fail_after(BOUND):
            while await call(servers["a"], "answers") != [wire(FOLDERS)]:
                await wait_all_tasks_blocked(0.001)


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_is_notified_of_changed_roots(era: Era) -> None:
    """Since 2026-07-28 there is no such notification."""
    async with open_servers(asking(era, callbacks=Callbacks(roots=folders))) as servers:
        ref = servers["a"]
        await ref.send_roots_list_changed()
        methods = (await call(ref, "seen"))["methods"]
        assert methods.count("notifications/roots/list_changed") == (era == "legacy")
        await ref.stop()
        await ref.send_roots_list_changed()
        assert ref.state == "stopped"


async def test_a_server_without_the_roots_capability_is_not_notified_of_them() -> None:
    async with open_servers(asking()) as servers:
        with pytest.raises(NotSupported, match=r"without a callback for roots; configure Callbacks\(roots=\.\.\.\)"):
            await servers["a"].send_roots_list_changed()
        assert "notifications/roots/list_changed" not in (await call(servers["a"], "seen"))["methods"]


async def test_questions_over_the_limit_are_refused() -> None:
    """Earlier questions are answered."""
    gate = trio.Event()

    async def wait(context: CallbackContext, params: ElicitRequestParams) -> ElicitResult:
        await gate.wait()
        return ACCEPTED

    answers: list[Any] = []

    async def ask_all() -> None:
        answers.extend(await ask(servers["a"], *[ELICIT] * (MAX_QUESTIONS + 2)))

    async with open_servers(asking(), callbacks=Callbacks(elicitation=wait)) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(ask_all)
        await until(lambda: servers["a"].statistics().in_flight == 1)
        await call(servers["a"], "seen")
        gate.set()
    refusal = {"error": {"code": -32603, "message": "too many open questions (limit: 64)"}}
    assert (answers.count(wire(ACCEPTED)), answers.count(refusal)) == (MAX_QUESTIONS, 2)


async def test_too_many_questions_fail_the_request_that_needs_their_answers(said: Said) -> None:
    """Since 2026-07-28 the answers belong to a request, whose caller gets the error."""
    async with open_servers(asking("modern"), callbacks=Callbacks(elicitation=accept)) as servers:
        with pytest.raises(LimitExceeded) as caught:
            await ask(servers["a"], *[ELICIT] * (MAX_QUESTIONS + 1))
        said("too many open questions", str(caught.value))
        assert await ask(servers["a"], *[ELICIT] * MAX_QUESTIONS) == [wire(ACCEPTED)] * MAX_QUESTIONS


async def test_thousands_of_questions_of_one_request_are_not_begun_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a question was refused, no other one is begun."""
    begun = 0
    dispatch = SdkListener.dispatch_input_request

    async def count(*args: Any) -> Any:
        nonlocal begun
        begun += 1
        return await dispatch(*args)

    monkeypatch.setattr(SdkListener, "dispatch_input_request", count)
    async with open_servers(asking("modern"), callbacks=Callbacks(elicitation=accept)) as servers:
        with pytest.raises(LimitExceeded):
            await ask(servers["a"], *[ELICIT] * 5000)
        assert servers["a"].state == "ready"
    assert begun <= 2 * QUESTIONS_A_STEP  # the refusal may come a step later


INVALID: dict[str, Any] = {**ELICIT, "params": {**ELICIT["params"], "message": 7}}
PAGE: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Pay first.", "url": "https://bank.example/pay"},
}
FORM: dict[str, Any] = {"method": "elicitation/create", "params": {"message": "Which one?"}}


async def test_an_invalid_question_among_several_is_named() -> None:
    """D-24: by its key since 2026-07-28; before that the server is sent the reason, and who has refused it."""
    async with open_servers(asking("modern", callbacks=Callbacks(elicitation=accept))) as servers:
        with pytest.raises(ServerError, match=r"at inputRequests\.q1\.params\.message: input should be a valid string"):
            await ask(servers["a"], ELICIT, INVALID)
    wrong = {"message: input should be a valid string": INVALID, "requestedSchema: field required": FORM}
    wrong |= {"elicitationId: field required": PAGE}
    async with open_servers(asking("legacy", callbacks=Callbacks(elicitation=accept))) as servers:
        for reason, question in wrong.items():
            [answer] = await ask(servers["a"], question)
            assert answer["error"]["message"] == (
                "the client has refused elicitation/create: Invalid request parameters: "
                f"at params.{reason}; report that to the operator of the server"
            )
