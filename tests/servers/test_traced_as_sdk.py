"""Requests in a span of the caller are traced as by the SDK's client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.forkserver import run_python
from tests.source import ROOT

from .mirror import ERAS, KINDS, Era, Kind
from .processes import BOUND

REQUESTS = ["tools/call", "tools/call", "resources/read", "prompts/get"]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Trace the requests over each kind of transport in each era, in one process."""
    path = tmp_path_factory.mktemp("traced")
    done = run_python("-m", "tests.servers.tracing_program", path, cwd=ROOT, timeout=BOUND)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("era", ERAS)
def test_the_span_of_each_request_is_that_of_the_sdk(era: Era, kind: Kind, traced: dict[str, dict[str, Any]]) -> None:
    """Its name, kind, parent, attributes and status; and the server learns its id."""
    found = traced[f"{era} {kind}"]
    assert [method for method, _ in found["theirs"][1:]] == REQUESTS
    assert all(span["parent"] == "program" for _, span in found["theirs"][1:])
    assert found["ours"] == found["theirs"]
