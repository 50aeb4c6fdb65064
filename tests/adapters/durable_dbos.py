"""A program of DBOS that is killed after a tool of its agent has run, and recovers.

Its argument is a folder. Everything is imported once: the process that is killed is a fork. What comes of the recovery,
and of agents whose calls DBOS does not record, is printed as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

from dbos import DBOS
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSAgent, DBOSDurability

from mcp_actors.adapters import PydanticAIToolset
from mcp_actors.bridge import open_servers

from .durable import Bank, outcome, payer


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def run(folder: Path, *, killed: bool) -> dict[str, Any]:
    bank, model = Bank(folder), payer(die) if killed else payer()
    DBOS(config={"name": "bank", "system_database_url": f"sqlite:///{folder}/dbos", "run_admin_server": False})
    async with open_servers(bank.config) as servers:
        toolset = PydanticAIToolset(servers, id="bank")
        durable = Agent(model, name="durable", toolsets=[toolset], capabilities=[DBOSDurability()])
        plain = Agent(model, name="plain", toolsets=[toolset])
        with warnings.catch_warnings(action="ignore"):
            deprecated = DBOSAgent(Agent(model, name="deprecated", toolsets=[toolset]))

        async def without_an_id() -> Any:
            return Agent(model, name="other", toolsets=[PydanticAIToolset(servers)], capabilities=[DBOSDurability()])

        @DBOS.workflow()
        async def recorded() -> str:
            return str((await durable.run("Pay.")).output)

        @DBOS.workflow()
        async def not_recorded() -> str:
            return str((await plain.run("Pay.")).output)

        @DBOS.step()
        async def step() -> str:
            return str((await plain.run("Pay.")).output)

        @DBOS.workflow()
        async def in_a_step() -> str:
            return str(await step())

        DBOS.launch()
        try:
            if killed:
                await recorded()
            [workflow] = await DBOS.list_workflows_async()
            handle: Any = await DBOS.retrieve_workflow_async(workflow.workflow_id)
            return {
                "recovered": await handle.get_result(),
                "steps": [each["function_name"] for each in await DBOS.list_workflow_steps_async(workflow.workflow_id)],
                "plain": await outcome(not_recorded()),
                "deprecated": await outcome(deprecated.run("Pay.")),
                "without an id": await outcome(without_an_id()),
                "paid": bank.paid(),
                "in a step": await outcome(in_a_step()),
                "not in a workflow": await outcome(durable.run("Pay.")),
            }
        finally:
            DBOS.destroy()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if not (child := os.fork()):
        asyncio.run(run(place, killed=True))
    _, status = os.waitpid(child, 0)
    outcomes = asyncio.run(run(place, killed=False))
    print(json.dumps({"killed by": -os.waitstatus_to_exitcode(status), **outcomes}))
