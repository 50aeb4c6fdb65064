"""Agents of Pydantic AI in durable workflows: a recovery repeats no tool, or the tools are refused before the first."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.forkserver import run_python
from tests.source import ROOT

PATIENCE = 120.0


def run(engine: str, folder: Path) -> dict[str, Any]:
    """Run the program of an engine, and return what it prints."""
    if importlib.util.find_spec({"temporal": "temporalio"}.get(engine, engine)) is None:
        pytest.skip("its engine is not installed")
    finished = run_python("-m", f"tests.adapters.durable_{engine}", folder, cwd=ROOT, timeout=PATIENCE)
    assert finished.returncode == 0, finished.stderr
    printed: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return printed


def refusal(engine: str, step: str) -> str:
    problem = f"a recovery of this workflow of {engine} would execute the tools again"
    remedy = f"give the toolset an id and the agent the capability {engine}Durability, or run the agent in {step}"
    return f"UserError: PydanticAIToolset: {problem}; {remedy}"


def test_a_workflow_of_dbos_that_is_killed_and_recovered_executes_its_tool_once(tmp_path: Path) -> None:
    """D-05: also where DBOS records no calls, no tool is executed."""
    came = run("dbos", tmp_path)
    assert came["killed by"] == 9
    assert came["recovered"] == "paid 5"
    assert "durable__dynamic_toolset__bank.call_tool" in came["steps"]
    assert came["plain"] == came["deprecated"] == refusal("DBOS", "a step")
    assert came["paid"] == ["5"]
    assert came["without an id"].startswith("UserError: ")
    assert "need to have a unique `id` in order to be used with DBOS" in came["without an id"]
    assert came["in a step"] == came["not in a workflow"] == "paid 5"


def test_a_flow_of_prefect_that_runs_again_executes_its_tool_once(tmp_path: Path) -> None:
    came = run("prefect", tmp_path)
    assert came["run again"] == "paid 5"
    assert came["deprecated"] == refusal("Prefect", "a task")
    assert came["paid"] == ["5"]
    assert came["in a task"] == "paid 5"


def test_an_activity_of_temporal_executes_its_tool_at_the_first_attempt_only(tmp_path: Path) -> None:
    came = run("temporal", tmp_path)
    assert came["plain"] == [refusal("Temporal", "an activity")]
    assert came["first attempt"] == "paid 5"
    assert came["second attempt"] == (
        "UserError: tool 'mcp__bank__pay' is not called again: an earlier attempt of this activity may have executed "
        "it; to see why that failed, set RetryPolicy(maximum_attempts=1)"
    )
    assert came["paid"] == ["5"]
