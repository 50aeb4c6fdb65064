"""Metrics and health probes for the servers of a program.

This file only gathers the public names. `Metrics` counts attempts of requests, for OpenTelemetry and Prometheus;
`health_app` is an ASGI application with the health of a group. To measure calls in another way, derive from
`CallObserver`.
"""

# `CallObserver`, the base of `Metrics`, is in ``servers``. OpenTelemetry is used through the program's meter only, so
# nothing here imports it.

from __future__ import annotations

from .._exports import publish
from ._health import Answer, answer, health_app, missing, status
from ._metrics import Metrics, Observable

__all__ = ["Answer", "Metrics", "Observable", "answer", "health_app", "missing", "status"]

publish(__name__, globals())
