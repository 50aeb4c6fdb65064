"""The servers, errors and questions of a configuration.

Prints::

    ['time']
    a mapping: mcpServers.docs: neither 'command' nor 'url' is given; ... (did you mean 'command'?)
    a mapping: mcpServers.docs: unknown key "comand" has no effect (did you mean 'command'?)
    {"mcpServers": {"time": {"command": "mcp-server-time"}}}
    a word for the kitchen: ['kitchen']
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from getpass import getpass
from pathlib import Path

from mcp_actors import load_config
from mcp_actors.config import Input, dump_config

loaded = load_config(
    {"mcpServers": {"time": {"command": "mcp-server-time"}, "docs": {"comand": "docs"}}}
)
print([server.name for server in loaded.servers])
for problem in (*loaded.errors, *loaded.warnings):
    print(problem)

written = dump_config(loaded.servers)
print(json.dumps(written))


def ask(question: Input) -> str:
    prompt = f"{question.description}: "
    return getpass(prompt) if question.password else input(prompt)


def load() -> None:
    loaded = load_config(".vscode/mcp.json", ask=ask)
    print([server.name for server in loaded.servers])


# A file as VS Code has it, and a function that answers.
FILE = {
    "inputs": [
        {"id": "word", "type": "promptString", "description": "a word for the kitchen"}
    ],
    "servers": {"kitchen": {"command": "kitchen", "env": {"WORD": "${input:word}"}}},
}
sys.stdin = io.StringIO("please\n")
with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
    Path(".vscode").mkdir()
    Path(".vscode", "mcp.json").write_text(json.dumps(FILE))
    load()
