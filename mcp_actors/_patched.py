"""Refuse programs that gevent or eventlet has patched.

If threads, processes or ``select`` are patched, Trio fails or waits for ever, and so does a blocking call. A program
may be patched at any time. So the entry of each block (such as `open_servers`), and each call from asyncio or a thread,
checks for a patch.
"""

from __future__ import annotations

import sys
from typing import Final

_MODULES: Final = {
    "gevent.monkey": ("is_module_patched", ("select", "subprocess", "threading")),
    "eventlet.patcher": ("is_monkey_patched", ("os", "select", "socket", "subprocess", "thread")),
}
"""Patching module → the function that reports a patched module, and the modules that must not be patched."""


def patched_by() -> str | None:
    """Return the library that has patched this program, or None. Sockets patched by gevent do not count."""
    for name, (question, modules) in _MODULES.items():
        if (patcher := sys.modules.get(name)) is not None and any(map(getattr(patcher, question), modules)):
            return name.partition(".")[0]
    return None


def refuse_patched(who: str, error: type[Exception] = RuntimeError) -> None:
    """Raise an error if gevent or eventlet has patched this program."""
    if "gevent.monkey" not in sys.modules and "eventlet.patcher" not in sys.modules:
        return  # each call asks, so this must be fast
    if (library := patched_by()) is not None:
        raise error(
            f"{who}: not supported in a program that {library} has patched (monkey patching), where this would wait "
            "for ever; run it with threads or processes, unpatched: gunicorn --worker-class gthread, celery --pool "
            "threads or prefork"
        )
