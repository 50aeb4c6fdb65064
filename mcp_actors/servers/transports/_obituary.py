"""What a server's process left behind when it ended."""

from __future__ import annotations

from attrs import field, frozen

from ..._plain_text import plain_text

__all__ = ["Obituary"]


@frozen
class Obituary:
    """The last words of a server, as far as they are known.

    Attributes:
        exit_code: what the process ended with by itself, negative for a signal. None if it is not a process, still
            runs, or ended only because this side closed the connection or killed it.
        stderr_tail: the end of what it wrote to stderr, decoded leniently; empty if there was nothing.
        unread: how many bytes of what was sent to it were never read; None if that is not known.
    """

    exit_code: int | None = None
    stderr_tail: str = ""
    unread: int | None = field(default=None, eq=False)

    @property
    def last_line(self) -> str:
        """The last line of its stderr, for people; empty if there is none."""
        lines = self.stderr_tail.splitlines()
        return plain_text(lines[-1]) if lines else ""
