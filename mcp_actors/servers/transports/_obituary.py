"""The known facts about the end of a server's process."""

from __future__ import annotations

from attrs import field, frozen

from ..._plain_text import plain_text

__all__ = ["Obituary"]


@frozen
class Obituary:
    """The exit code and last words of a server, as far as they are known.

    Attributes:
        exit_code: the exit code of the process, negative for a signal. None if it is not a process, is still running,
            or exited only because this side closed the connection or killed it.
        stderr_tail: the end of its stderr, decoded leniently; empty if it wrote nothing.
        unread: the number of bytes that were sent to it and never read; None if unknown.
    """

    exit_code: int | None = None
    stderr_tail: str = ""
    unread: int | None = field(default=None, eq=False)

    @property
    def last_line(self) -> str:
        """The last line of its stderr, printable; empty if it wrote nothing."""
        lines = self.stderr_tail.splitlines()
        return plain_text(lines[-1]) if lines else ""
