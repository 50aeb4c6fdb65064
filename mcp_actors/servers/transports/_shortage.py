"""Recognize temporary shortages, such as too many open files."""

from __future__ import annotations

import errno
import os
from typing import Final

__all__ = ["shortage_of"]

_SHORTAGES: Final = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.EINTR, errno.EIO}


def shortage_of(error: BaseException) -> str | None:
    """Return the system's description of a shortage that a retry may not meet; None for any other error."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno in _SHORTAGES else None
