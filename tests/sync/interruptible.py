"""A program without an event loop, for tests that press Ctrl-C: ``python -m tests.sync.interruptible WHAT [FLAGS…]``.

It prints where it has come to.
"""

from __future__ import annotations

import fcntl
import sys
import termios
import threading
from functools import partial

import trio

from mcp_actors.sync import SyncServerRef, open_servers
from tests.servers.groups import server
from tests.servers.interruptible import PatientClock


def say(text: str) -> None:
    """Print at once, to a file that tests wait for."""
    print(text, flush=True)


def hang(done: float, total: float | None, message: str | None) -> None:
    """Never come back from a report of progress."""
    threading.Event().wait()


def call_again_and_again(ref: SyncServerRef) -> None:
    """Interrupt a call, and go on."""
    others = [threading.Thread(target=ref.call, args=("sleep",), kwargs={"seconds": 0.5}) for _ in range(4)]
    for other in others:
        other.start()
    try:
        ref.call("sleep", seconds=600)
    except KeyboardInterrupt:
        say("interrupted")
    for other in others:
        other.join()
    assert ref.statistics().queued == 0
    say(f"goes on: {ref.call('echo', text='on')}, {ref.statistics().in_flight} in flight")


def main(what: str, *flags: str) -> None:
    """Come to a certain point, and stay there until it is interrupted."""
    with open_servers(server("a", *flags)) as servers:
        say("ready")
        match what:
            case "terminal":
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
                call_again_and_again(servers["a"])
            case "call":
                servers["a"].call("sleep", seconds=600)
            case "load":
                while True:
                    servers["a"].call("echo", text="busy")
            case "progress":
                servers["a"].call_tool("sleep", {"seconds": 600}, progress=hang)
        say("leaving")


if __name__ == "__main__":
    trio.run = partial(trio.run, clock=PatientClock())  # type: ignore[assignment]  # the bridge runs it
    main(*sys.argv[1:])
