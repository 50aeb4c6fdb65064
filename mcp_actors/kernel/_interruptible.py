"""Foreign code inside the kernel's: a Ctrl-C may land in it, and nowhere else."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Any

T = TypeVar("T")


class Interruptible:
    """Enters and leaves a resource whose code a Ctrl-C may interrupt anywhere, unlike the kernel around it."""

    __slots__ = ("_resource",)

    def __init__(self, resource: AbstractAsyncContextManager[None]) -> None:
        self._resource = resource

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> None:
        entering: Any = self._resource.__aenter__()
        try:
            await _unprotected(entering)
        except KeyboardInterrupt:
            if _is_fresh(entering):
                entering.close()
            raise

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        leaving: Any = self._resource.__aexit__(kind, exc, traceback)
        try:
            left: bool | None = await _unprotected(leaving)
        except KeyboardInterrupt as interrupt:
            if not _is_fresh(leaving):
                raise
            # It must be left all the same.
            leaving.close()
            left = await self._resource.__aexit__(type(interrupt), interrupt, interrupt.__traceback__)
            if not left:
                raise
        return left


def _is_fresh(step: object) -> bool:
    """Whether it was interrupted before it had begun."""
    return inspect.iscoroutine(step) and inspect.getcoroutinestate(step) == inspect.CORO_CREATED


@trio.lowlevel.disable_ki_protection
async def _unprotected(step: Coroutine[Any, Any, T]) -> T:
    return await step
