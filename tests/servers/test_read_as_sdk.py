"""Each answer of a server is read as the SDK's own client reads it: an equal value, or an error of the same class.

The answers were recorded from MCP's reference server, or are drawn, and come from the same server in a process of its
own. The differences that are meant are in one table, with their reasons.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import frozen
from mcp import Client, MCPError
from mcp.client import InputRequiredRoundsExceededError
from mcp.types import PromptReference
from pydantic import ValidationError

from mcp_actors import McpActorsError, RetryPolicy, ServerRef
from tests.idle_clock import IdleClock
from tests.programs import FULL_SIZE, SEED

from .answers import MADE, RECORDED, Answers, written
from .mirror import ERAS, KINDS, Era, Kind, open_ours, open_theirs

pytestmark = [pytest.mark.own_way]

PATIENCE: Final = 20.0
"""Seconds, which are skipped once all processes are idle."""

MORE: Final = "more"

REQUIRED: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What a result must have since 2026-07-28."""

CLASSES: Final[dict[type[Exception], str]] = {
    trio.TooSlowError: "no answer",
    ValidationError: "invalid",
    InputRequiredRoundsExceededError: "too many rounds",
}
"""Errors of the SDK."""

TEXTS: Final = {
    "invalid response": "invalid",
    "not a valid MCP message": "invalid",
    "not an MCP message": "invalid",
    "asked for input": "too many rounds",
}
"""Errors of this library that have no class of their own, by what they say."""

DRAWN: Final = 2000 if FULL_SIZE else 20

PROMPT: Final = PromptReference(name="x")
ARGUMENT: Final = {"name": "a", "value": "v"}


async def first_page(page: Awaitable[Any], member: str) -> Any:
    """Return the items of a page, if it is the last."""
    found = await page
    return MORE if found.next_cursor is not None else tuple(getattr(found, member))


async def first_of_each_name(tools: Awaitable[Any]) -> Any:
    """Return the tools of a page; of several tools with one name only the first, the only one that can be called."""
    found = await tools
    if found == MORE:
        return MORE
    firsts: dict[str, Any] = {}
    for tool in found:
        firsts.setdefault(tool.name, tool)
    return tuple(firsts.values())


OURS: Final[dict[str, Callable[[ServerRef], Awaitable[Any]]]] = {
    "tools/call": lambda ref: ref.call_tool("say"),
    "resources/read": lambda ref: ref.read_resource("file:///x"),
    "prompts/get": lambda ref: ref.get_prompt("x"),
    "completion/complete": lambda ref: ref.complete(PROMPT, ARGUMENT),
    "tools/list": lambda ref: ref.list_tools(),
    "prompts/list": lambda ref: ref.list_prompts(),
    "resources/list": lambda ref: ref.list_resources(),
    "resources/templates/list": lambda ref: ref.list_resource_templates(),
}

THEIRS: Final[dict[str, Callable[[Client], Awaitable[Any]]]] = {
    "tools/call": lambda client: client.call_tool("say"),
    "resources/read": lambda client: client.read_resource("file:///x"),
    "prompts/get": lambda client: client.get_prompt("x"),
    "completion/complete": lambda client: client.complete(PROMPT, ARGUMENT),
    "tools/list": lambda client: first_of_each_name(first_page(client.list_tools(), "tools")),
    "prompts/list": lambda client: first_page(client.list_prompts(), "prompts"),
    "resources/list": lambda client: first_page(client.list_resources(), "resources"),
    "resources/templates/list": lambda client: first_page(client.list_resource_templates(), "resource_templates"),
}


Outcome = tuple[str, Any]


@frozen
class Difference:
    """A difference that is meant.

    Attributes:
        reason: why this library reads an answer in another way.
        ours: how it reads it.
        theirs: how the SDK reads it.
        applies: to which lines this may happen, by era, transport, method and line.
    """

    reason: str
    ours: str
    theirs: str
    applies: Callable[[Era, Kind, str, str], bool] = lambda era, kind, method, line: True


def is_incomplete(era: Era, kind: Kind, method: str, line: str) -> bool:
    """Return True for a result without the fields that 2026-07-28 requires."""
    return era == "modern" and completed(line) != line


DIFFERENCES: Final = (
    Difference(
        "some servers leave out what a result must have since 2026-07-28, and it has obvious defaults",
        "value",
        "invalid",
        is_incomplete,
    ),
    Difference(
        "a tool has had its effect, so what can be read of an invalid result is read",
        "value",
        "invalid",
        lambda era, kind, method, line: not method.endswith("/list"),
    ),
    Difference(
        "a result of an empty array is an empty object",
        "value",
        "no answer",
        lambda era, kind, method, line: '"result": []' in line,
    ),
    Difference(
        "an isError that is not a boolean makes the result an error",
        "value",
        "value",
        lambda era, kind, method, line: '"isError"' in line,
    ),
    Difference(
        "a line that is not a message fails the request that it names, which would wait otherwise",
        "invalid",
        "no answer",
        lambda era, kind, method, line: kind == "stdio",
    ),
    Difference(
        "a body that is not a message is an invalid answer like any other",
        "invalid",
        "unparsed",
        lambda era, kind, method, line: kind != "stdio",
    ),
    Difference(
        "all pages of a list are requested, and a cursor that comes twice ends it",
        "value",
        "a page of several",
        lambda era, kind, method, line: "nextCursor" in line,
    ),
    Difference(
        "an error without a valid code or message keeps its text",
        "error",
        "no answer",
        lambda era, kind, method, line: kind == "stdio" and '"error"' in line,
    ),
    Difference(
        "likewise, over HTTP",
        "error",
        "unparsed",
        lambda era, kind, method, line: kind != "stdio" and '"error"' in line,
    ),
    Difference(
        "an item of a list that is not valid is left out, and the others are shown",
        "value",
        "invalid",
        lambda era, kind, method, line: method.endswith("/list"),
    ),
    Difference(
        "control characters of a server reach no terminal and no log",
        "error",
        "error",
        lambda era, kind, method, line: "\\u0000" in line,
    ),
)


def completed(line: str) -> str:
    """Return an answer whose result has what it must have since 2026-07-28."""
    members = json.loads(line.replace('"id":$id', '"id":"$id"'))
    if not isinstance(members.get("result"), dict):
        return line
    missing = {name: value for name, value in REQUIRED.items() if name not in members["result"]}
    if not missing:
        return line
    members["result"] |= missing
    return json.dumps(members).replace('"id": "$id"', '"id":$id')


async def outcome_of(call: Awaitable[Any]) -> Outcome:
    """Return the class of an outcome, and what it says."""
    try:
        with trio.fail_after(PATIENCE):
            result = await call
    except Exception as exc:
        return class_of(exc), exc.error.model_dump() if isinstance(exc, MCPError) else str(exc)
    if result == MORE:
        return "a page of several", None
    models = result if isinstance(result, tuple) else (result,)
    return "value", [(type(each), each.model_dump(), sorted(each.model_fields_set)) for each in models]


def class_of(exc: Exception) -> str:
    """Return the class of an error, under which ours and those of the SDK are the same."""
    if isinstance(exc, MCPError):  # the SDK's transport for HTTP raises it too
        return "unparsed" if exc.error.message.startswith("Failed to parse") else "error"
    if isinstance(exc, McpActorsError):
        return next((name for text, name in TEXTS.items() if text in str(exc)), type(exc).__name__)
    return CLASSES.get(type(exc), type(exc).__name__)


def is_same(ours: Outcome, theirs: Outcome) -> bool:
    """Return True for the same value, the same error of the server, or errors of the same class."""
    return ours == theirs if ours[0] in ("value", "error") else ours[0] == theirs[0]


def is_meant(ours: Outcome, theirs: Outcome, era: Era, kind: Kind, method: str, line: str) -> bool:
    """Return True for a difference of the table."""
    return any(
        (ours[0], theirs[0]) == (row.ours, row.theirs) and row.applies(era, kind, method, line) for row in DIFFERENCES
    )


def lines(era: Era) -> Iterator[tuple[str, str]]:
    """Yield methods and lines that answer them; since 2026-07-28 most are completed."""
    answers = Answers(SEED)
    for method, line in [*RECORDED, *((method, written({"result": made})) for method, made in MADE)]:
        yield method, line
        if era == "modern":
            yield method, completed(line)
    for number in range(DRAWN):
        method, line = answers.plain_answer()
        yield method, completed(line) if era == "modern" and number % 10 else line


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("era", ERAS)
async def test_each_answer_means_what_it_means_to_the_sdk(
    era: Era, kind: Kind, tmp_path: Path, idle_clock: IdleClock, record_property: Callable[[str, object], None]
) -> None:
    kinds = Counter[str]()
    async with AsyncExitStack() as stack:
        ref = await stack.enter_async_context(open_ours(era, kind, tmp_path / "ours", retry=RetryPolicy(attempts=1)))
        client = await stack.enter_async_context(open_theirs(era, kind, tmp_path / "theirs"))
        for method, line in islice(lines(era), 0, None, 3 if kind == "events" else 1):  # it is read as a body is
            for name in ("ours", "theirs"):
                (tmp_path / "new").write_text(f"{method}\n{line}")
                os.replace(tmp_path / "new", tmp_path / f"{name}.script")
            ours, theirs = await outcome_of(OURS[method](ref)), await outcome_of(THEIRS[method](client))
            assert is_same(ours, theirs) or is_meant(ours, theirs, era, kind, method, line), (line, ours, theirs)
            kinds[ours[0] if ours[0] == theirs[0] else f"{ours[0]}, not {theirs[0]}"] += 1
    record_property("note", f"{dict(kinds)}, PROGRAMS_SEED={SEED}")
    assert len({*kinds} & {"value", "invalid", "error"}) == 3
