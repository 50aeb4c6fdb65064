"""APScheduler: open servers around the scheduler, whose jobs run in threads.

Run it with ``python apscheduler_jobs.py``. A program on asyncio has an `AsyncIOScheduler`, jobs with ``async def``, and
imports `open_servers` from `mcp_actors.bridge`.
"""

from __future__ import annotations

import signal
import sys
from queue import SimpleQueue

from apscheduler.schedulers.background import BackgroundScheduler

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.sync import SyncServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


def report(servers: SyncServerGroup, zone: str) -> None:
    """Do a job: it has a thread of its own."""
    try:
        time = servers["time"].call("get_current_time", timezone=zone)
    except ServerError as error:
        print(f"{zone}: {error}", flush=True)
    else:
        print(f"{zone}: {time['datetime']}", flush=True)


def main(*zones: str) -> None:
    """Report the time in some zones now, and then every hour."""
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: signals.put(number))
    scheduler = BackgroundScheduler(job_defaults={"misfire_grace_time": None})
    with open_servers(TIME, drain_timeout=5) as servers:
        for zone in zones:
            scheduler.add_job(report, args=[servers, zone])
            scheduler.add_job(report, "interval", hours=1, args=[servers, zone])
        scheduler.start()
        signals.get()  # waits; an exception in a handler could hit the scheduler itself
        scheduler.shutdown(wait=False)  # the end of the block waits for the calls


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["Europe/Paris", "Asia/Tokyo"]))
