"""Count, show and probe the servers of a program.

`Metrics` counts calls for OpenTelemetry and Prometheus, and `health_app` is an ASGI application with the health of a
group. Programs that measure calls in another way derive from `CallObserver`.
"""

# This file defines nothing. It publishes `Metrics`, and `health_app` with the functions behind it. Programs import them
# from here; of the package, nothing else does. `CallObserver`, the base of `Metrics`, is in ``servers``. The folder
# uses ``config``, ``servers`` and ``_exports``. OpenTelemetry is used by a meter that the program gives, and the text
# for Prometheus needs no library.

from __future__ import annotations

from .._exports import publish
from ._health import Answer, answer, health_app, missing, status
from ._metrics import Metrics, Observable

__all__ = ["Answer", "Metrics", "Observable", "answer", "health_app", "missing", "status"]

publish(__name__, globals())
