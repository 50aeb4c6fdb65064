"""A server that changes between two runs of a program, for the tests of remembered catalogues."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from mcp_actors import ServerConfig, ServerGroup, open_servers

from .groups import command_with, shell


@attrs.frozen
class Server:
    """A server whose configuration stays the same, while a test says how it behaves.

    Attributes:
        folder: where the test tells it.
        name: its name.
    """

    folder: Path
    name: str = "a"

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.behave()

    @property
    def store(self) -> Path:
        """Where its catalogue is remembered."""
        return self.folder / "store"

    @property
    def pids(self) -> Path:
        """The file into which its processes write their ids."""
        return self.folder / f"{self.name}.pids"

    def behave(self, *flags: str, first: str = ":") -> None:
        """From its next start on: run a line of shell first, and then with these flags."""
        words = command_with(*flags, "--pid-file", str(self.pids))
        (self.folder / f"{self.name}.sh").write_text(f"{first}; exec {words}\n")

    def hold(self, *flags: str) -> Callable[[], object]:
        """From its next start on, run with these flags, but not before what this returns is called."""
        go = self.folder / f"{self.name}.go"
        go.unlink(missing_ok=True)
        self.behave(*flags, first=f"while [ ! -e '{go}' ]; do sleep 0.01; done")
        return lambda: go.write_text("")

    def config(self, **options: Any) -> ServerConfig:
        """Its configuration; `options` are those of `ServerConfig`. One that is held has to be killed at the end."""
        options.setdefault("stop_timeout", 0.5)
        return shell(self.name, f". '{self.folder / self.name}.sh'", **options)

    async def run_once(self, *flags: str, **options: Any) -> None:
        """An earlier run of a program."""
        self.behave(*flags)
        async with open_servers(self.config(required=True), catalog_store=self.store, **options):
            pass
        self.behave()

    def file(self) -> Path:
        """The remembered data of the server."""
        [path] = self.store.iterdir()
        return path


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a remembered catalogue."""
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def remembered(path: Path) -> Iterator[str]:
    """The names of the tools in a remembered catalogue."""
    return (tool["name"] for tool in json.loads(path.read_text())["tools"])


def deferred(group: ServerGroup) -> dict[str, bool]:
    """The servers whose tools are listed, and whether these are deferred."""
    return {tool.server: tool.deferred for tool in group.tools}
