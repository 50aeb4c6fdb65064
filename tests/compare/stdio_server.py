"""A process that starts oddly, or is hard to end, around the process of a scripted server.

Run as ``python stdio_server.py HABITS COMMAND…``; the habits are separated by commas:

========= =============================================================
sleep     it takes 8 seconds to start, as a first ``npx`` or ``uvx``
never     it starts and says nothing
exit      it prints what is missing, and ends with status 1
banner    it prints a banner on stdout first
chatty    it writes 1 MB to stderr first
child     it has a child that outlives it
ignore    it goes on after the end of its stdin
stubborn  it goes on after SIGTERM, too
========= =============================================================
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time


def main(habits: list[str], command: list[str]) -> None:
    """Do what the habits say, and become the scripted server, or wait for it."""
    if "sleep" in habits:
        time.sleep(8)
    if "never" in habits:
        time.sleep(600)
    if "exit" in habits:
        sys.exit("the environment variable WEATHER_API_KEY is not set")
    if "banner" in habits:
        os.write(1, b"  ~~ weather server 1.0 ~~\nlistening on stdio\n")
    if "chatty" in habits:
        for _ in range(10_000):
            os.write(2, b"." * 99 + b"\n")
    if "child" in habits:
        subprocess.Popen([sys.executable, "-S", "-E", "-c", "import time; time.sleep(600)", command[-1]])
    if "stubborn" in habits:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "ignore" in habits or "stubborn" in habits:
        subprocess.run(command, check=False)
        time.sleep(600)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1].split(","), sys.argv[2:])
