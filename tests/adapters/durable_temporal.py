"""An agent of Temporal: its activities run in an environment of a test, a workflow is replayed from its history.

Neither needs a server of Temporal. The argument is a folder. What comes of them is printed as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.durable_exec.temporal import TemporalDurability, TemporalRunContext
from pydantic_ai.durable_exec.temporal._toolset import CallToolParams, GetToolsParams
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage
from temporalio import activity, workflow
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from mcp_actors.adapters import PydanticAIToolset
from mcp_actors.bridge import AsyncioServerGroup, open_servers

from .durable import PAY, Bank, outcome, payer

QUEUE: Any = {"taskQueue": {"name": "queue"}}
STARTED: Any = (
    {
        "eventType": "EVENT_TYPE_WORKFLOW_EXECUTION_STARTED",
        "workflowExecutionStartedEventAttributes": {
            "workflowType": {"name": "Work"},
            "originalExecutionRunId": "1",
            **QUEUE,
        },
    },
    {"eventType": "EVENT_TYPE_WORKFLOW_TASK_SCHEDULED", "workflowTaskScheduledEventAttributes": QUEUE},
    {
        "eventType": "EVENT_TYPE_WORKFLOW_TASK_STARTED",
        "workflowTaskStartedEventAttributes": {"scheduledEventId": "2"},
    },
)
"""The history of a workflow that has just been started."""

refused: list[str] = []
plain: list[Any] = []


@workflow.defn
class Work:
    @workflow.run
    async def run(self) -> None:
        refused.append(await outcome(plain[0].run("Pay.")))


async def call_in_activities(servers: AsyncioServerGroup, *, attempt: int) -> str:
    agent = Agent(
        payer(), name="clerk", toolsets=[PydanticAIToolset(servers, id="bank")], capabilities=[TemporalDurability()]
    )
    activities = {
        activity._Definition.must_from_callable(each).name.rpartition("__bank__")[2]: each
        for each in TemporalDurability.from_agent(agent).temporal_activities
    }
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage(), agent=agent, max_retries=1)
    sent = TemporalRunContext.serialize_run_context(context)
    found: Any = await environment.run(activities["get_tools"], GetToolsParams(serialized_run_context=sent), None)
    call = CallToolParams(
        name=PAY, tool_args={"amount": 5}, serialized_run_context=sent, tool_def=found.tools[PAY].tool_def
    )
    [received] = await pydantic_data_converter.decode(await pydantic_data_converter.encode([call]), [CallToolParams])
    result: Any = await environment.run(activities["call_tool"], received, None)
    return str(result.result)


async def run(bank: Bank) -> dict[str, Any]:
    async with open_servers(bank.config) as servers:
        plain.append(Agent(payer(), toolsets=[PydanticAIToolset(servers)]))
        times = {"eventTime": "2026-01-01T00:00:00Z"}
        events = [{"eventId": str(number), **times, **event} for number, event in enumerate(STARTED, 1)]
        history = WorkflowHistory.from_json("1", json.dumps({"events": events}))
        replayer = Replayer(workflows=[Work], workflow_runner=UnsandboxedWorkflowRunner())
        await replayer.replay_workflow(history, raise_on_replay_failure=False)
        return {
            "plain": refused,
            "first attempt": await outcome(call_in_activities(servers, attempt=1)),
            "second attempt": await outcome(call_in_activities(servers, attempt=2)),
            "paid": bank.paid(),
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Bank(Path(sys.argv[1]))))))
