"""A gateway in an actor of Ray, and a group that finds it by its name.

Prints::

    5
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from pathlib import Path

import ray
import trio

from mcp_actors import ServerConfig, Socket, open_servers
from mcp_actors.hosts.ray import RayHost, ray_address

MORTAL = Path(__file__).parents[1] / "servers" / "mortal.py"


def start(file: Path, secret: Path) -> None:
    """Let Ray place a host, once for the whole cluster."""
    host = ray.remote(RayHost).options(
        name="tools",
        max_restarts=-1,
        num_cpus=0,
        lifetime="detached",
        get_if_exists=True,
    )
    host.remote(str(file), secret_file=str(secret))


async def main(secret: Path) -> None:
    socket = Socket(ray_address("tools"), secret_file=secret)
    async with open_servers(ServerConfig("sums", socket)) as servers:
        print(await servers["sums"].call("add", a=2, b=3))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        entry = {"command": sys.executable, "args": [str(MORTAL)]}
        file, secret = Path(folder, "servers.json"), Path(folder, "secret")
        file.write_text(json.dumps({"mcpServers": {"sums": entry}}))
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32))
        ray.init(
            address="local",
            namespace="tools",
            num_cpus=1,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
        start(file, secret)
        trio.run(main, secret)
        ray.shutdown()
