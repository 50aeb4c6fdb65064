"""A plain function works wherever an async one does; it is called in the event loop."""

from __future__ import annotations

import threading

import trio

from mcp_actors import open_servers

from ..asking import ask, call
from ..groups import BOUND
from ..links import text_of
from ..plain_functions import LOG, QUESTIONS, Heard


async def test_plain_functions_work_wherever_a_function_may_be_given() -> None:
    """C-54: callbacks, middleware, progress, and the functions of extensions."""
    complete = trio.Event()
    heard = Heard(complete.set)
    async with open_servers(heard.asking(), heard.reporting(), heard.extended()) as servers:
        assert len(await ask(servers["a"], *QUESTIONS)) == len(QUESTIONS)
        await call(servers["a"], "tell", notifications=[LOG])
        arguments = {"a": 1, "b": 2}
        assert text_of(await servers["reporting"].call_tool("add", arguments, progress=heard.progress)) == "3"
        assert text_of(await servers["library"].call_tool("search")) == "job endless"
        with trio.fail_after(BOUND):
            await complete.wait()
    assert heard.threads == {threading.current_thread()}
