"""The spans of requests form one tree below the span of their caller, and say where each request was."""

from __future__ import annotations

import json

import pytest

from tests.forkserver import run_python
from tests.source import ROOT


@pytest.mark.parametrize("host", ["trio", "asyncio"])
def test_spans_form_one_tree_below_the_span_of_the_caller(host: str) -> None:
    done = run_python("-m", "tests.observe.spans_program", host, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    spans = json.loads(done.stdout)
    [root] = [each for each in spans if each["name"] == "program"]
    calls = [each for each in spans if each["name"] == "MCP send tools/call echo"]
    assert [each["parent_id"] for each in calls] == [root["context"]["span_id"]] * 3
    assert {each["context"]["trace_id"] for each in calls} == {root["context"]["trace_id"]}
    tree = [each for each in spans if each["context"]["trace_id"] == root["context"]["trace_id"]]
    ids = {each["context"]["span_id"] for each in tree}
    served = [each for each in tree if each not in (root, *calls)]  # by the SDK, on the side of the server
    assert len(served) >= len(calls)
    assert all(each["parent_id"] in ids for each in served)
    facts = [each["attributes"] for each in calls]
    assert [each["mcp_actors.attempt"] for each in facts] == [1, 2, 1]
    assert {(each["mcp_actors.server"], each["mcp_actors.incarnation"]) for each in facts} == {("x", 1)}
    assert all(0 <= each["mcp_actors.queue_seconds"] < 30 for each in facts)
