"""The pytest plugin: nothing until a fixture is named, then fixtures for Trio and for asyncio."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from ..source import project

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "mcp_actors._pytest_plugin")

RunPytest = Callable[..., pytest.RunResult]


def test_the_plugin_imports_nothing_but_pytest() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import mcp_actors._pytest_plugin;"
        "print(sorted(set(sys.modules) - before))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "['mcp_actors', 'mcp_actors._pytest_plugin']"


def test_the_name_of_the_entry_point_is_the_module() -> None:
    """So that naming it on the command line too does not register it twice."""
    [(name, module)] = project()["entry-points"]["pytest11"].items()
    assert name == module == "mcp_actors._pytest_plugin"


SERVER = """
    import asyncio
    import pytest
    import trio
    from mcp.server import MCPServer
    from mcp_actors import InProcess, ServerConfig, StateChanged

    server = MCPServer("here")
    server.add_tool(lambda: "pong", name="ping")

    async def use(mcp_servers, event_recorder):
        async with mcp_servers(ServerConfig("here", InProcess(server))) as servers:
            result = await servers["here"].call_tool("ping")
            assert result.content[0].text == "pong"
            await event_recorder.wait_for(StateChanged, server="here", new="ready")
"""


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_a_group_opens_on_trio_and_on_asyncio_and_is_recorded(
    library: str, pytester: pytest.Pytester, run_pytest: RunPytest
) -> None:
    run = "trio.run(use, *args)" if library == "trio" else "asyncio.run(use(*args))"
    pytester.makepyfile(
        f"""{SERVER}
    def test_it(nothing_left, mcp_servers, event_recorder):
        args = mcp_servers, event_recorder
        {run}
        assert event_recorder.states("here")[-1] == "stopped"
        """
    )
    run_pytest(*PLUGIN).assert_outcomes(passed=1)


def test_a_test_that_leaves_something_fails(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest
        import threading
        from mcp_actors.testing import _leftovers

        _leftovers.GRACE = 0.0
        kept = []

        def test_a_task(nothing_left):
            loop = asyncio.new_event_loop()
            kept.append(loop.create_task(asyncio.sleep(3600), name="sleeper"))

        def test_a_thread(nothing_left):
            threading.Thread(target=threading.Event().wait, name="straggler", daemon=True).start()

        def test_nothing(nothing_left):
            pass
        """
    )
    result = run_pytest(*PLUGIN, "-p", "no:randomly", "-W", "ignore")
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(["*asyncio task 'sleeper'", "*thread 'straggler'"])
