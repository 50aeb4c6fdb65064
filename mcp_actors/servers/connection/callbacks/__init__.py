"""The user's callbacks: they answer what a server asks, and hear what it sends.

Only the actor comes in. It may touch the record and what is below, but no request and nothing of the connection.
"""

from __future__ import annotations

from ._open import open_callbacks as open_callbacks

__all__ = ["open_callbacks"]
