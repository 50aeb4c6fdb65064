"""Import a framework when a test uses it: some take seconds, and a run may select no test of it."""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """A module that is imported with the first name that is asked for.

    Args:
        name: that of the module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "pytest" in name:  # pytest asks each object of a module for its marks
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
