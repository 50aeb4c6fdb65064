"""One battery for programs with a window, a page of their own, or cells: a server is killed, and signals in a call."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from tests.source import EXAMPLES, parse

from .ledger import BOUND
from .program import Program, dear, running
from .test_jobs import CALLS, ENDS
from .test_web import BUSY, STOP


def needs(place: str, *modules: str) -> None:
    """Skip a test if a framework is missing, with the reason."""
    for name in modules:
        pytest.importorskip(name, reason=f"{place}: needs {name}; install the extra 'places'")


# --- Windows ----------------------------------------------------------------------------------------------------------

QT: Final = """
import sys, qt_app

class Driven(qt_app.Clock):
    def __init__(self, *args):
        super().__init__(*args)
        self.answered.connect(lambda text: print(text, flush=True))
        for zone in sys.argv[1:]:
            self.zone.setText(zone)
            self.zone.returnPressed.emit()

qt_app.Clock = Driven
qt_app.main()
"""

TKINTER: Final = """
import signal, sys, tkinter_app

class Driven(tkinter_app.Clock):
    def __init__(self, root, *args):
        super().__init__(root, *args)
        self.text.trace_add("write", lambda *_: print(self.text.get(), flush=True))
        signal.signal(signal.SIGTERM, lambda *_: root.destroy())  # as if its window was closed
        for zone in sys.argv[1:]:
            self.zone.set(zone)
            self.ask()

tkinter_app.Clock = Driven
tkinter_app.main()
"""


@pytest.fixture(params=["Qt", pytest.param("Tkinter", marks=dear)])
def window(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[str], str, dict[str, str]]:
    """Return the command, the program and the environment of a window that is driven by its own events."""
    if request.param == "Qt":
        needs("Qt", "PySide6")
        (tmp_path / "driver.py").write_text(QT)
        return [sys.executable, "driver.py"], "places/qt_app.py", {"QT_QPA_PLATFORM": "offscreen"}
    needs("Tkinter", "tkinter")
    if "DISPLAY" not in os.environ and shutil.which("xvfb-run") is None:
        pytest.skip("Tkinter: needs a display, or xvfb-run")
    screen = [] if "DISPLAY" in os.environ else ["xvfb-run", "--auto-servernum"]
    (tmp_path / "driver.py").write_text(TKINTER)
    return [*screen, sys.executable, "driver.py"], "places/tkinter_app.py", {}


def test_a_window_shows_each_answer_or_its_reason(
    window: tuple[list[str], str, dict[str, str]], tmp_path: Path
) -> None:
    command, file, variables = window
    with running(tmp_path, [*command, *CALLS, "Held/1"], [file], variables) as program:
        pids = program.ledger.wait_called({*CALLS, "Held/1"})
        program.wait_log("2026-11-29", len(CALLS))
        program.ledger.signal(signal.SIGKILL, *pids)
        program.wait_log(r"\(its process was killed by SIGKILL")
    assert max(program.ledger.calls().values()) == 1


def test_a_window_that_is_closed_in_a_call_ends_in_time(
    window: tuple[list[str], str, dict[str, str]], tmp_path: Path
) -> None:
    command, file, variables = window
    with running(tmp_path, [*command, "Held/1"], [file], variables) as program:
        program.ledger.wait_called({"Held/1"})
        pids = [pid for pid, words in program.family() if words.startswith(f"{sys.executable} driver.py")]
        program.ledger.signal(signal.SIGTERM, *pids)  # xvfb-run is a shell, which passes no signal on
        assert program.end(ENDS) == 0
    assert [entry.event for entry in program.ledger.entries][-2:] == ["cancelled", "end"]


TEXTUAL: Final = """
import asyncio, sys, textual_app
from textual.widgets import Input, Label

async def drive(self):
    async with self.run_test() as pilot:
        for zone in sys.argv[1:]:
            self.query_one(Input).value = zone
            await pilot.press("enter")
            if not zone.startswith("Held/left"):
                await self.workers.wait_for_complete()
                print(self.query_one(Label).render(), flush=True)

textual_app.Clock.run_async = drive
asyncio.run(textual_app.main())
"""


def test_an_application_in_a_terminal_shows_each_answer_or_its_reason_and_cancels_the_call_before(
    tmp_path: Path,
) -> None:
    needs("Textual", "textual")
    (tmp_path / "driver.py").write_text(TEXTUAL)
    command = [sys.executable, "driver.py", *CALLS, "Held/killed", "Held/left", "Call/after", "Held/left at the end"]
    with running(tmp_path, command, ["places/textual_app.py"]) as program:
        program.ledger.signal(signal.SIGKILL, *program.ledger.wait_called({"Held/killed"}))
        assert program.end(BOUND) == 0
        program.wait_log("^Call/.*: 2026-11-29", len(CALLS) + 1)
        program.wait_log("connection lost")
    cancelled = [entry.zone for entry in program.ledger.entries if entry.event == "cancelled"]
    assert cancelled == ["Held/left", "Held/left at the end"]
    assert max(program.ledger.calls().values()) == 1


# --- Pages of their own -----------------------------------------------------------------------------------------------


GRACE: Final = 5.0
"""Seconds that Gradio waits for its web server at Ctrl-C."""


def ask_gradio(program: Program, zone: str) -> str:
    """Call the function of the interface as its page does, and return the events of the answer."""
    connection = HTTPConnection("127.0.0.1", program.port, timeout=BOUND)
    try:
        body = json.dumps({"data": [zone]})
        connection.request("POST", "/gradio_api/call/now", body, {"Content-Type": "application/json"})
        id = json.load(connection.getresponse())["event_id"]
        connection.request("GET", f"/gradio_api/call/now/{id}")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@contextmanager
def gradio(folder: Path) -> Iterator[Program]:
    needs("Gradio", "gradio")
    variables = {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SERVER_PORT": "{port}"}
    with running(folder, [sys.executable, "gradio_app.py"], ["places/gradio_app.py"], variables) as program:
        program.wait_log("unning on")
        yield program


def test_each_request_of_gradio_is_answered_or_names_its_reason(tmp_path: Path) -> None:
    with gradio(tmp_path) as program, ThreadPoolExecutor(len(CALLS)) as threads:
        answers = [*threads.map(ask_gradio, [program] * len(CALLS), CALLS)]
        wrong = [text for text, zone in zip(answers, CALLS, strict=True) if f'"timezone": "{zone}"' not in text]
        assert wrong == []
        held = [f"Held/{number}" for number in range(5)]
        asked = [threads.submit(ask_gradio, program, zone) for zone in held]
        program.ledger.signal(signal.SIGKILL, *program.ledger.wait_called({*held}))
        assert [each.result() for each in asked if "connection lost" not in each.result()] == []
        assert "After/the kill" in ask_gradio(program, "After/the kill")
        last = threads.submit(ask_gradio, program, "Held/last")
        program.ledger.wait_called({"Held/last"})
        program.signal(signal.SIGTERM)
        assert program.end(ENDS) == 143
        assert "was stopped during" in last.result()
    assert max(program.ledger.calls().values()) == 1


def test_ctrl_c_ends_gradio_in_time_although_a_server_never_answers(tmp_path: Path) -> None:
    with gradio(tmp_path) as program, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask_gradio, program, "Held/1")
        program.ledger.wait_called({"Held/1"})
        program.signal(signal.SIGINT, group=True)
        assert program.end(GRACE + ENDS) in {0, -signal.SIGINT}
        # Its server is closed first, perhaps in the midst of an answer.
        assert not asked.exception() or isinstance(asked.exception(), (OSError, HTTPException))


@contextmanager
def streamlit(folder: Path, zone: str) -> Iterator[tuple[Program, Any]]:
    """Run Streamlit with another zone in its field; yield the program, and what opens its page."""
    needs("Streamlit", "streamlit", "websockets")
    client, message = import_module("websockets.sync.client"), import_module("streamlit.proto.BackMsg_pb2").BackMsg()
    message.rerun_script.query_string = ""
    text = (EXAMPLES / "places" / "streamlit_app.py").read_text()
    (folder / "streamlit_app.py").write_text(text.replace("Europe/Paris", zone))
    options = "--server.headless true --browser.gatherUsageStats false --server.fileWatcherType none"
    command = f"streamlit run streamlit_app.py --server.port {{port}} {options}"
    with running(folder, command.split(), []) as program:
        program.wait_log("URL:")

        def visit() -> Any:
            page = client.connect(f"ws://127.0.0.1:{program.port}/_stcore/stream", subprotocols=["streamlit"])
            page.send(message.SerializeToString())
            return page

        yield program, visit


def wait_shown(page: Any, text: str) -> None:
    """Wait until a page of Streamlit shows a text."""
    while text.encode() not in page.recv(timeout=BOUND):
        pass


def test_sessions_of_streamlit_share_servers_and_show_why_a_call_failed(tmp_path: Path) -> None:
    with streamlit(tmp_path, "Held/1") as (program, visit):
        pages = [visit() for _ in range(10)]
        program.ledger.wait(lambda: program.ledger.calls()["Held/1"] == len(pages), "a call of each session")
        program.ledger.release()
        for page in pages:
            wait_shown(page, "2026-11-29")
            page.close()
        assert len(program.ledger.of("start")) == 1
        page = visit()
        program.ledger.wait(lambda: program.ledger.calls()["Held/1"] == len(pages) + 1, "another call")
        program.ledger.signal(signal.SIGKILL, *program.ledger.of("start"))
        wait_shown(page, "connection lost")
        page.close()
        program.signal(signal.SIGTERM)
        assert program.end(STOP + BUSY) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_streamlit_in_time_although_a_server_never_answers(number: int, tmp_path: Path) -> None:
    with streamlit(tmp_path, "Held/1") as (program, visit):
        page = visit()
        program.ledger.wait_called({"Held/1"})
        program.signal(number, group=number == signal.SIGINT)
        assert program.end(ENDS) == 0
        page.close()
    assert program.ledger.of("end") == program.ledger.of("start")


# --- Jupyter ----------------------------------------------------------------------------------------------------------

FIFTY: Final = """
import asyncio
from mcp_actors import ServerError
zones = [f"Call/{number}" for number in range(50)]
answers = await asyncio.gather(
    *(servers["time"].call("get_current_time", timezone=zone) for zone in zones)
)
print([answer["timezone"] for answer in answers] == zones)
"""
HELD: Final = """
try:
    await servers["time"].call("get_current_time", timezone="Held/1")
except ServerError as error:
    print(error)
"""


def cells_of_page() -> list[str]:
    """Return the cells of the page about notebooks."""
    for node in parse(EXAMPLES / "pages" / "howto_notebooks.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CELLS":
            cells: list[str] = ast.literal_eval(node.value)
            return cells
    raise AssertionError("the program has no cells")


@contextmanager
def notebook(folder: Path, *cells: str) -> Iterator[Program]:
    needs("Jupyter", "nbclient", "ipykernel")
    form = import_module("nbformat")
    opening, using, closing = cells_of_page()
    codes = [form.v4.new_code_cell(cell) for cell in (opening, using, *cells, closing)]
    form.write(form.v4.new_notebook(cells=codes), folder / "time.ipynb")
    with running(folder, ["jupyter-execute", "--inplace", "time.ipynb"], []) as program:
        yield program


def test_a_notebook_has_each_answer_or_its_reason(tmp_path: Path) -> None:
    with notebook(tmp_path, FIFTY, HELD) as program:
        program.ledger.signal(signal.SIGKILL, *program.ledger.wait_called({"Held/1"}))
        assert program.end(BOUND) == 0, program.log
    shown = [
        "".join(part.get("text", ""))
        for cell in json.loads((tmp_path / "time.ipynb").read_text())["cells"]
        for part in cell["outputs"]
    ]
    assert "True\n" in shown
    assert any("connection lost" in text for text in shown)
    assert max(program.ledger.calls().values()) == 1


def test_the_end_of_a_kernel_in_a_call_leaves_nothing(tmp_path: Path) -> None:
    with notebook(tmp_path, FIFTY, HELD) as program:
        program.ledger.wait_called({"Held/1"})
        program.signal(signal.SIGTERM)
        program.end(BOUND)
    assert program.ledger.of("end") == program.ledger.of("start")
