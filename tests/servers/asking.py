"""Servers that ask questions and send notifications, in both eras, for the tests of callbacks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import trio
from mcp.types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ServerConfig, Stdio
from mcp_actors.config import CallbackContext
from mcp_actors.servers import ServerRef

from .asking_server import command
from .groups import BOUND, NEVER
from .links import text_of

Era: TypeAlias = Literal["legacy", "modern"]

ERAS: Final[tuple[Era, ...]] = ("legacy", "modern")

Json = dict[str, Any]

ELICIT: Final[Json] = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Which one?", "requestedSchema": {"type": "object", "properties": {}}},
}

SAMPLE: Final[Json] = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Say something."}}],
        "maxTokens": 7,
        "temperature": 0.25,
        "stopSequences": ["end", "stop"],
    },
}

ROOTS: Final[Json] = {"method": "roots/list"}

ACCEPTED: Final = ElicitResult(action="accept", content={"which": "that"})

SAID: Final = CreateMessageResult(role="assistant", content=TextContent(type="text", text="Something."), model="fake")

FOLDERS: Final = ListRootsResult(roots=[Root(uri="file:///home/me", name="home")])  # type: ignore[arg-type]  # a URL


def asking(era: Era = "legacy", *flags: str, name: str = "a", **options: Any) -> ServerConfig:
    """Configure a server that asks; `options` are those of `ServerConfig`."""
    program, args = command("--era", era, *flags)
    options = {"required": True, "restarts": NEVER, **options}
    protocol: Any = {"modern": "2026-07-28", "both": "auto"}.get(era, era)
    return ServerConfig(name, Stdio(program, args), protocol=protocol, **options)


async def call(ref: ServerRef, tool: str, **arguments: Any) -> Any:
    """Call a tool of the server, and return what its answer says."""
    return json.loads(text_of(await ref.call_tool(tool, arguments)))


async def ask(ref: ServerRef, *questions: Json) -> list[Any]:
    """Have the server ask, and return what it was answered."""
    answers: list[Any] = await call(ref, "ask", questions=questions)
    return answers


def log(data: object, level: str = "info") -> Json:
    """Make a notification by which a server logs."""
    return {"method": "notifications/message", "params": {"level": level, "data": data}}


async def accept(context: object, params: object) -> ElicitResult:
    """Answer every form."""
    await trio.lowlevel.checkpoint()
    return ACCEPTED


async def say(context: object, params: object) -> CreateMessageResult:
    """Be a model."""
    await trio.lowlevel.checkpoint()
    return SAID


async def folders(context: object) -> ListRootsResult:
    """Let the server look at one folder."""
    await trio.lowlevel.checkpoint()
    return FOLDERS


class Heard(list[Any]):
    """A callback for what a server tells; it keeps what it was given."""

    async def __call__(self, context: CallbackContext, told: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.append(told)

    @property
    def data(self) -> Sequence[Any]:
        """What was logged."""
        return [each.data for each in self]


async def until(condition: Any) -> None:
    """Wait until a condition holds that depends on messages of a process."""
    with trio.fail_after(BOUND):
        while not condition():
            await wait_all_tasks_blocked(0.001)
