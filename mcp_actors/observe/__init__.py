"""Count, show and probe the servers of a program.

This file defines nothing. It publishes `Metrics`, `health_app` with the functions behind it, and, from ``servers``,
`CallObserver` and `Attempt`. Programs import them from here; nothing else of the package imports this folder. It uses
``servers`` and ``_exports``. OpenTelemetry's API is used by a meter that the program gives; no client library is
needed for the text of Prometheus.
"""

from __future__ import annotations

from .._exports import publish
from ..servers import Attempt, CallObserver
from ._health import Answer, Observable, answer, health_app, missing, status
from ._metrics import Metrics

__all__ = ["Answer", "Attempt", "CallObserver", "Metrics", "Observable", "answer", "health_app", "missing", "status"]

publish(__name__, globals())
