"""Keep the group's own tasks going after any failure.

A group follows its sources, writes states into tables and remembers catalogues in tasks that have no caller. If one of
them ended, its error would reach no one: the program would go on for months with the configuration of the day on which
a thread could not be started. So each of them is begun again after any failure, which is shown until it works again.
"""

from __future__ import annotations

import logging
import random
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from ..._backoff import Backoff
from ..._collapse import caused_by, collapse
from ..._errors import ConfigError, McpActorsError
from ..._foreign import Log
from ._problems import problem_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

T = TypeVar("T")

logger = Log("mcp_actors.servers")

AGAIN: Final = Backoff(first=1.0, initial=2.0, maximum=60.0)
"""The delays after failures in a row: a shortage may be over in a second, or last for hours."""


class NoThread(ConfigError):
    """No thread could be started, so the job was not begun."""


async def run_in_thread(job: Callable[[], T], limiter: trio.CapacityLimiter | None = None) -> T:
    """Run a blocking job in a thread.

    **Cancellation**: leaves at once and abandons the thread.

    Raises:
        NoThread: no thread could be started.
        Exception: what the job raises.
    """
    begun = False

    def run() -> T:
        nonlocal begun
        begun = True
        return job()

    try:
        return await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
    except Exception as error:
        if begun:
            raise
        remedy = "raise the limit of threads (ulimit -u) or of memory"
        message = f"no thread could be started ({str(error) or type(error).__name__}); {remedy}"
        raise caused_by(NoThread(message), error) from error


class Upkeep:
    """Keeps the tasks that a group runs for itself.

    Attributes:
        errors: the error of each task that has failed and does not work again yet, by its key. Replaced, never
            changed, as other threads may read it.
    """

    def __init__(self) -> None:
        self.errors: Mapping[str, Exception] = MappingProxyType({})

    async def keep(
        self, key: str, what: str, job: Callable[[], Awaitable[None]], *, closing: trio.Event | None = None
    ) -> None:
        """Run a job until it returns; after a failure, note it and run the job again.

        The job calls `works` each time it has done a part of its work. Until then a failure is an entry in `errors`
        and one log record at level ERROR; further ones are logged at DEBUG.

        **Cancellation**: ends the job.

        Args:
            key: names the job in `errors`.
            what: names the job and its object in messages: ``"/etc/mcp.json: following it"``.
            job: the job.
            closing: when it is set, the job has one more attempt, without a delay. Its error stays then.
        """
        failures, closing = 0, trio.Event() if closing is None else closing
        try:
            while True:
                try:
                    await job()
                    return
                except Exception as error:
                    failures = failures + 1 if key in self.errors else 1
                    self._note(key, what, collapse(error))
                if closing.is_set():
                    return
                with trio.move_on_after(AGAIN.delay(failures, random=random.random)):
                    await closing.wait()
        finally:
            if not closing.is_set():
                self._forget(key)

    def works(self, key: str) -> None:
        """Note that a job has done a part of its work."""
        if key in self.errors:
            self._forget(key)
            logger.info("%s: this works again", key)

    def _note(self, key: str, what: str, error: BaseException) -> None:
        # The text of a foreign error may have anything in it, credentials included.
        known = isinstance(error, McpActorsError | OSError | MemoryError)
        problem = problem_of(error) if known else f"it raised {type(error).__name__} (see the cause of this error)"
        noted = caused_by(McpActorsError(f"{what} has failed and is tried again: {problem}"), error)
        logger.log(logging.DEBUG if key in self.errors else logging.ERROR, "%s", noted)
        self.errors = MappingProxyType({**self.errors, key: noted})

    def _forget(self, key: str) -> None:
        self.errors = MappingProxyType({other: error for other, error in self.errors.items() if other != key})
