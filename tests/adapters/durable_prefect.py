"""Flows of Prefect with an agent whose second model request fails once, so that they are run again.

Its argument is a folder. What comes of them is printed as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from itertools import count
from pathlib import Path
from typing import Any

os.environ |= {
    "PREFECT_HOME": sys.argv[1],
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "100",
}

from prefect import flow, task
from pydantic_ai import Agent
from pydantic_ai.durable_exec.prefect import PrefectAgent, PrefectDurability

from mcp_actors.adapters import PydanticAIToolset
from mcp_actors.bridge import open_servers

from .durable import Bank, outcome, payer


async def run(bank: Bank) -> dict[str, Any]:
    numbers = count()

    def fail_once() -> None:
        if not next(numbers):
            raise RuntimeError("the model is down")

    async with open_servers(bank.config) as servers:
        model, toolset = payer(fail_once), PydanticAIToolset(servers, id="bank")
        durable = Agent(model, name="durable", toolsets=[toolset], capabilities=[PrefectDurability()])
        plain = Agent(model, name="plain", toolsets=[PydanticAIToolset(servers)])
        with warnings.catch_warnings(action="ignore"):
            deprecated = PrefectAgent(plain)

        @flow(retries=1)
        async def recorded() -> str:
            return str((await durable.run("Pay.")).output)

        @task
        async def step() -> str:
            return str((await plain.run("Pay.")).output)

        @flow
        async def in_a_task() -> str:
            return str(await step())

        return {
            "run again": await outcome(recorded()),
            "deprecated": await outcome(deprecated.run("Pay.")),
            "paid": bank.paid(),
            "in a task": await outcome(in_a_task()),
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Bank(Path(sys.argv[1]))))))
