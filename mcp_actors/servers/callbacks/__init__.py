"""The user's callbacks: they answer what a server asks, and hear what it tells."""

from __future__ import annotations

from ._open import open_callbacks as open_callbacks

__all__ = ["open_callbacks"]
