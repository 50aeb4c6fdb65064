"""Write the methods that asyncio programs and threads call.

They are made of those of `ServerRef` and `ServerGroup`.

``python -m tests.doors`` writes the ``_generated`` files of ``bridge`` and ``sync``; ``tests/test_doors.py`` fails if
they are not current. A method of a view has the signature and the docstring of the method on Trio. Its body passes the
call to Trio's side by one of a few rules (`_body`); `OWN` has the bodies of those that need more.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

import mcp_actors.servers

from .source import PACKAGE, parse

REF: Final = {
    "servers/ref/_ref.py": ["ServerRef"],
    "servers/ref/_prompts.py": ["PromptFunctions", "ResourceFunctions"],
}
GROUP: Final = {"servers/group/_group.py": ["ServerGroup"]}
"""File → its classes with the methods."""


class Door(NamedTuple):
    """A folder whose classes have the methods."""

    folder: str
    """Its name."""
    prefix: str
    """What its classes have in front of those on Trio."""
    words: str
    """The programs that use them."""
    wait: str
    """What waits for a coroutine of the bridge."""
    call: str
    """The function that makes a callback of the program one for Trio's side."""
    adapt: str
    """The function that does so with a configuration."""
    others: dict[str, str]
    """Name → module, for what only the bodies of this door use."""


BRIDGE: Final = Door(
    "bridge",
    "Asyncio",
    "asyncio programs",
    "await ",
    "on_loop",
    "config_from_loop",
    {
        "GroupView": "._views",
        "ServerView": "._views",
        "AsyncioServerRef": "._generated_ref",
        "AsyncioStream": "._bridge",
        "config_from_loop": "._callbacks",
        "on_loop": "._callbacks",
        "open_stream": "._bridge",
    },
)
SYNC: Final = Door(
    "sync",
    "Sync",
    "programs without an event loop",
    "completed",
    "in_caller",
    "config_from_thread",
    {
        "GroupView": "..bridge._views",
        "ServerView": "..bridge._views",
        "SyncServerRef": "._generated_ref",
        "ThreadBridge": "._wait",
        "completed": "._wait",
        "config_from_thread": "._wait",
        "in_caller": "._wait",
    },
)
HOMES: Final = {
    "Any": "typing",
    "partial": "functools",
    "AbstractAsyncContextManager": "contextlib",
    "explained_methods": ".._misuse",
    "anchored": "..servers._sources",
    "trio": "",
}
"""Name → module, for what bodies use."""

STREAMS: Final = {"subscribe": "ResourceUpdated", "watch_events": "Event"}
"""Method that opens a stream → the class of its items."""

OWN: Final = {
    "add": "return self._server("
    "{wait}(self._bridge.call(self, partial(self._target.add, {adapt}(self._bridge, config)))))",
    "list_tools": "{wait}(self._bridge.call(self, trio.lowlevel.checkpoint))\nreturn {wait}(self._permitted(context))",
    "reload": "adapted = [{adapt}(self._bridge, anchored(config)) for config in configs]\n"
    "return {wait}(self._bridge.call(self, partial(self._target.reload, *adapted)))",
    "remove": "{wait}(self._bridge.call(self, partial(self._target.remove, name)))\n"
    "self._bridge.adapted.pop(name, None)",
    "replace": "return self._server("
    "{wait}(self._bridge.call(self, partial(self._target.replace, {adapt}(self._bridge, config)))))",
}
"""Method of a group → its body, with the words of a `Door`. It calls functions of the program on the program's side."""

CALLBACKS: Final = ("progress", "show")
"""The parameters that are functions of the program."""

Method = ast.FunctionDef | ast.AsyncFunctionDef


def written(door: Door) -> dict[str, str]:
    """Return the text of the files of a door, by their paths in the package. It is formatted when it is stored."""
    return {
        f"{door.folder}/_generated_ref.py": _module(door, "ref", "ServerRef", "ServerView", REF),
        f"{door.folder}/_generated_group.py": _module(door, "group", "ServerGroup", "GroupView", GROUP),
    }


def _module(door: Door, what: str, original: str, base: str, sources: dict[str, list[str]]) -> str:
    homes = dict(HOMES)
    methods: list[str] = []
    for path, classes in sources.items():
        tree = parse(PACKAGE / path)
        homes |= dict(_imported(tree, path))
        text = (PACKAGE / path).read_text()
        for found in (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in classes):
            methods += _methods(door, original, found, text.splitlines())
    if original == "ServerGroup":
        base = f"GroupView[{door.prefix}ServerRef]"
        methods.insert(0, _server(door))
    lines = [
        f"class {door.prefix}{original}({base}):",
        f'    """A `mcp_actors.{original}` for {door.words}{_more(what)}."""',
    ]
    lines += ["", "    __slots__ = ()", ""]
    if door is SYNC:
        lines += ["    _bridge: ThreadBridge", ""]
    body = "\n".join(["@explained_methods", *lines, "\n\n".join(methods), ""])
    head = (
        f'"""The methods of a {what} for {door.words}.\n\nWritten by ``python -m tests.doors``; do not change it.\n"""'
    )
    future = "from __future__ import annotations"
    return "\n\n".join([head, future, _imports(body, homes | door.others), "", body])


def _more(what: str) -> str:
    return "" if what == "ref" else ": a mapping of names to its references"


def _server(door: Door) -> str:
    kind = f"{door.prefix}ServerRef"
    return f"    def _server(self, ref: ServerRef, /) -> {kind}:\n        return {kind}(self._bridge, ref)"


def _imported(tree: ast.Module, path: str) -> Iterator[tuple[str, str]]:
    """Yield what a file imports: the name and the module, from a door's point of view."""
    folders = path.split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            above = folders[: len(folders) + 1 - node.level] if node.level else []
            inside = ".".join([*above, *([node.module] if node.module else [])])
            for each in node.names:
                public = inside.startswith("servers") and each.name in mcp_actors.servers.__all__
                room = "servers" if public else re.sub(r"^(servers\.\w+)\._\w+$", r"\1", inside)
                module = room if node.level else node.module
                yield each.asname or each.name, f"{'..' * bool(node.level)}{module}"


def _imports(body: str, homes: dict[str, str]) -> str:
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    homes |= {"ServerRef": "..servers", "ResourceUpdated": "..servers", "Event": "..kernel"}
    lines = [f"from {homes[name]} import {name}" if homes[name] else f"import {name}" for name in used & homes.keys()]
    return "\n".join(sorted(lines))


def _methods(door: Door, original: str, found: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    known = {node.name: node for node in found.body if isinstance(node, Method)}
    for node in found.body:
        if not isinstance(node, Method) or node.name.startswith("_"):
            continue
        if node.name in ("send_tool_call", *(f"send_{name}" for name in known)):
            continue  # prepares a request for the view
        if node.name in STREAMS and door is SYNC:
            continue  # a thread reads no stream
        yield _method(door, original, node, known, lines)


def _method(door: Door, original: str, node: Method, known: dict[str, Method], lines: list[str]) -> str:
    send = known.get({"call_tool": "send_tool_call"}.get(node.name, f"send_{node.name}"))
    taken = node.args
    is_async = door is BRIDGE and node.name not in STREAMS
    returns = ast.unparse(node.returns) if node.returns else ""
    if node.name in STREAMS:
        returns = f"AbstractAsyncContextManager[AsyncioStream[{STREAMS[node.name]}]]"
    start = f"    {'async ' * is_async}def {node.name}({ast.unparse(taken)}) -> {returns}:"
    start = re.sub(r"-> Server(Ref|Group):", rf"-> {door.prefix}Server\1:", start)
    doc = "\n".join(lines[node.body[0].lineno - 1 : node.body[0].end_lineno])
    body = [f"        {line}" for line in _body(door, original, node, taken, send).splitlines()]
    return "\n".join([start, _documentation(door, doc), *body])


def _documentation(door: Door, doc: str) -> str:
    """Return a docstring in the words of a door."""
    doc = re.sub(
        r"\n\n +Raises:\n +RuntimeError: the caller is in another thread\.\n +", "", doc
    )  # a view crosses threads
    if door is BRIDGE:
        return doc.replace("print(servers.tree())", "print(await servers.tree())")
    for old, new in (("*Cancellation*", "*Ctrl-C*"), ("``await ", "``"), ("``async ", "``"), ("an async ", "a ")):
        doc = doc.replace(old, new)
    return doc


def _body(door: Door, original: str, node: Method, taken: ast.arguments, send: Method | None) -> str:
    if original == "ServerGroup" and node.name in OWN:
        return OWN[node.name].format(wait=door.wait, adapt=door.adapt)
    if node.name == "call":
        text = "\n".join(ast.unparse(each) for each in node.body[1:])
        return text if door is BRIDGE else text.replace("await ", "")
    method = f"self._target.{node.name if send is None else send.name}"
    given = _given(door, taken)
    fn = f"partial({', '.join([method, *given])})" if given else method
    if node.name in STREAMS:
        return f"return open_stream(self._bridge, self, {fn})"
    if not isinstance(node, ast.AsyncFunctionDef):
        asked = f"self._step({fn})"
    else:
        asked = f"self._bridge.{'call' if send is None else 'ask'}(self, {fn})"
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    before = _options(door, taken)
    return f"{before}{'return ' * (returns != 'None')}{door.wait}({asked})"


def _options(door: Door, taken: ast.arguments) -> str:
    """Return the lines that adapt the callback among ``**options``."""
    if taken.kwarg is None or taken.kwarg.arg != "options":
        return ""
    adapted = f"options['progress'] = {door.call}(self._bridge, progress)"
    return f"if (progress := options.get('progress')) is not None:\n    {adapted}\n"


def _given(door: Door, taken: ast.arguments) -> list[str]:
    positional = [each.arg for each in (*taken.posonlyargs, *taken.args) if each.arg != "self"]
    given = list(positional)
    if taken.vararg is not None:
        given.append(f"*{taken.vararg.arg}")
    for each in taken.kwonlyargs:
        value = each.arg
        if value in CALLBACKS:
            value = f"None if {value} is None else {door.call}(self._bridge, {value})"
        given.append(f"{each.arg}={value}")
    if taken.kwarg is not None:
        given.append(f"**{taken.kwarg.arg}")
    return given


def main() -> None:
    """Write the files, in the format of the others."""
    texts = {PACKAGE / path: text for door in (BRIDGE, SYNC) for path, text in written(door).items()}
    for path, text in texts.items():
        path.write_text(text)
    for command in (["check", "--fix", "--quiet", "--select=I"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, *map(str, texts)], check=True)


if __name__ == "__main__":
    main()
