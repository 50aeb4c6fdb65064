"""Refuse programs that gevent or eventlet has patched.

They replace Python's threads, ``select`` and processes by ones that wait in their own event loop. Trio then fails at an
attribute of ``select``, or waits for ever, and so does a call that blocks. So each door calls `refuse_patched` when it
opens, and the doors to asyncio and to threads at each call: a program may be patched after that. The façade refuses
eventlet, under which Trio cannot be imported, at the import. A program that has patched nothing else, such as its
sockets, is accepted.

`patched_by` asks the library if it is imported. This file imports nothing of the package, and nothing that is patched.
"""

from __future__ import annotations

import sys
from typing import Final

_MODULES: Final = {
    "gevent.monkey": ("is_module_patched", ("select", "subprocess", "threading")),
    "eventlet.patcher": ("is_monkey_patched", ("os", "select", "socket", "subprocess", "thread")),
}
"""What patches → its function that says whether a module is patched, and the modules that must not be."""


def patched_by() -> str | None:
    """Return the name of the library that has patched this program; None if none has."""
    for name, (question, modules) in _MODULES.items():
        if (patcher := sys.modules.get(name)) is not None and any(map(getattr(patcher, question), modules)):
            return name.partition(".")[0]
    return None


def refuse_patched(who: str, error: type[Exception] = RuntimeError) -> None:
    """Raise an error if gevent or eventlet has patched this program."""
    if "gevent.monkey" not in sys.modules and "eventlet.patcher" not in sys.modules:
        return  # every call asks, so this is to cost next to nothing
    if (library := patched_by()) is not None:
        raise error(
            f"{who}: not supported in a program that {library} has patched (monkey patching), where this would wait "
            "for ever; run it with threads or processes, unpatched: gunicorn --worker-class gthread, celery --pool "
            "threads or prefork"
        )
