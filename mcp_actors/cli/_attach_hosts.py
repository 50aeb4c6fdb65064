"""Move another program's servers into our file, and back: ``config attach``.

Here a *host* is a program such as Cursor, and *our file* a configuration file of mcp-actors. In the host's file, one
entry replaces the moved servers, and all else stays, comments included. So the text is edited, not written anew.

Owns: nothing.
Writes: the host's file; its backup; our file; the command's output.
Calls: config, config.formats, _config, _output.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from .._errors import ConfigError
from .._python import our_python
from .._user_files import replace_file
from ..config._values import literal
from ..config.formats import decode, is_unsupported, load_config, read_bytes
from ..config.formats._file import parse, without_comments
from ..config.formats._load import runs_us
from ..config.formats._programs import find_sections, is_comment, project_of
from ._config import json_of, toml_of
from ._output import Failure, Misuse, Output

ENTRY_NAME: Final = "mcp-actors"
"""The name of our entry in the file of a host."""

_COPY_SUFFIX: Final = ".before-mcp-actors"
_HOSTS_ON_MACOS: Final = "~/Library/Application Support"

HOSTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "claude": ("mcpServers", "~/.claude.json", "~/.claude.json"),
    "claude-desktop": (
        "mcpServers",
        "~/.config/Claude/claude_desktop_config.json",
        f"{_HOSTS_ON_MACOS}/Claude/claude_desktop_config.json",
    ),
    "cursor": ("mcpServers", "~/.cursor/mcp.json", "~/.cursor/mcp.json"),
    "vscode": ("servers", "~/.config/Code/User/mcp.json", f"{_HOSTS_ON_MACOS}/Code/User/mcp.json"),
    "codex": ("mcp_servers", "~/.codex/config.toml", "~/.codex/config.toml"),
}
"""Host → the key of its servers, then its user-wide file on Linux, then the one on macOS."""


def attach_host(host: str, file: str | None, to: str | None, output: Output) -> int:
    now = HostFile(host, file)
    ours = os.path.abspath(os.path.expanduser(to or now.attached_to or f"~/.config/mcp-actors/{host}.json"))
    if os.path.realpath(ours) == now.path or not ours.endswith(".json"):
        raise Misuse(f"--to {ours!r} is not a file of its own in JSON; name one that ends in .json")
    reasons = {name: now.reason_to_stay(name) for name in now.entries if not is_comment(name)}
    moved = {name: now.moved(name) for name, reason in reasons.items() if reason is None}
    for name, reason in reasons.items():
        if reason is not None and name != ENTRY_NAME:
            output.line((name, "bold"), f"  stays: {reason}")
    if not moved:
        output.line(f"nothing to move in {now.path}")
        return 0
    if ENTRY_NAME in now.entries and ENTRY_NAME not in moved and now.attached_to != ours:
        elsewhere = (
            f"is attached to {now.attached_to}" if now.attached_to else f"has a server {ENTRY_NAME!r} that stays"
        )
        raise Failure(f"{now.path} {elsewhere}; undo that, or rename the server; nothing was changed")
    attach = os.path.abspath(Path(__file__).parent.parent / "gateway" / "attach.py")
    python = our_python("mcp-actors config attach", attach)
    entry = {"command": python, "args": ["-I", "-S", attach, "--config", ours]}
    entry = entry if now.is_toml else {"type": "stdio", **entry}
    if now.attached_to == ours:
        entry = {**now.entries[ENTRY_NAME], **entry}  # the host may have added keys, such as approvals
    text = now.replaced({*moved, ENTRY_NAME}, now.as_members({ENTRY_NAME: entry}))
    now.check(text, {name: each for name, each in now.entries.items() if name not in moved} | {ENTRY_NAME: entry})
    before, document = _read_ours(ours)
    kept = document.setdefault(now.section, {})
    for name, each in moved.items():
        if kept.setdefault(name, each) != each:
            remedy = "rename one of them, or choose --to; nothing was changed"
            raise Failure(f"{ours} has another server {name!r}; {remedy}")
    copy = next(path for path in _copies(now.path) if not os.path.lexists(path))
    _write_all((copy, None, now.data), (ours, before, json_of(document).encode()), (now.path, now.data, text.encode()))
    output.line(f"moved to {ours}: {', '.join(moved)}")
    undo = f"mcp-actors config attach {host} --undo" + (f" --file {file}" if file else "")
    output.note(f"{now.path} was copied to {copy}; start {host} again to use this; undo it with: {undo}")
    return 0


def detach_host(host: str, file: str | None, output: Output) -> int:
    """Move the servers of a host back. Our file keeps servers that other hosts use.

    Only our file and the copies of the host's file say what to move back.
    """
    now = HostFile(host, file)
    ours = now.attached_to
    if ours is None:
        raise Failure(f"{now.path} has no entry of config attach, or it was changed; there is nothing to undo")
    old, document = _read_ours(ours)
    kept = document.get(now.section, {})
    now.text_of_ours()
    copies = _copies_of(now)
    # The newest copy first, because an older one lacks later changes. A copy whose servers are gone from our file has
    # been moved back already, and counts only if no other fits.
    fitting = [each for each in reversed(copies) if each.became(now)]
    before = next((each for each in fitting if each.moved_to(now).keys() & kept.keys()), next(iter(fitting), None))
    if before is not None:
        text, moved = before.text, before.moved_to(now)
    else:
        moved = _moved_back(now, ours, old is not None, kept, copies)
        text = now.replaced({ENTRY_NAME}, now.as_members(moved))
        now.check(text, {name: each for name, each in now.entries.items() if name != ENTRY_NAME} | moved)
        output.note(f"no copy of {now.path} fits any more; its servers are as in {ours}, and all else is as it was")
    used = _used_by_others(now, ours, kept)
    for name in [name for name in moved if name in kept]:
        if kept[name] != moved[name]:
            output.warning(f"server {name!r} was changed in {ours} and stays there; {now.path} has it as it was")
        elif name in used:
            output.note(f"server {name!r} also stays in {ours}, because {used[name]} uses it")
        else:
            del kept[name]
    new = json_of(document).encode() if kept or document.keys() - {now.section} else None
    _write_all((now.path, now.data, text.encode()), (ours, old, new))
    output.line(f"moved back to {now.path}: {', '.join(moved)}")
    return 0


def _moved_back(
    now: HostFile, ours: str, exists: bool, kept: Mapping[str, Any], copies: Collection[HostFile]
) -> dict[str, Any]:
    """Return the servers to move back if no copy fits."""
    known = _names_in(copies, kept)
    moved = {name: each for name, each in kept.items() if name in known}
    if not moved:
        problem = f"has none of the servers of {now.path}" if exists else "is missing"
        raise Failure(
            f"{ours} {problem}, and no copy of {now.path} fits any more; copy the servers that you want from one of "
            f"{now.path}{_COPY_SUFFIX}*, and remove the entry {ENTRY_NAME!r}; nothing was changed"
        )
    if twice := ", ".join(moved.keys() & (now.entries.keys() - {ENTRY_NAME})):
        raise Failure(f"{now.path} has {twice} again, which {ours} has too; rename one; nothing was changed")
    return moved


def _used_by_others(now: HostFile, ours: str, kept: Collection[str]) -> dict[str, str]:
    """Return server → the file of another host that uses the server. Only the usual files are read."""
    used = dict[str, str]()
    for host, (section, _, _) in HOSTS.items():
        with suppress(ConfigError, Failure):
            other = HostFile(host, None)
            if section == now.section and other.path != now.path and other.attached_to == ours:
                used.update(dict.fromkeys(_names_in(_copies_of(other), kept), other.path))
    return used


def _names_in(copies: Collection[HostFile], kept: Collection[str]) -> Collection[str]:
    """Return the servers in the copies of a host's file; without copies, all in our file."""
    return {name for each in copies for name in each.entries} if copies else kept


# --- The file of a host -----------------------------------------------------------------------------------------------


class Span(NamedTuple):
    """A server's place in a text, and where to cut if another server precedes."""

    name: str
    cut: int
    start: int
    end: int


class HostFile:
    """The file of a host, the usual one by default: content, servers, and their places in the text.

    `project` is the project's folder, by default from the path. Moved servers start there.
    """

    def __init__(self, host: str, file: str | None, project: str | None = None) -> None:
        self.host = host
        self.section, on_linux, on_macos = HOSTS[host]
        path = os.path.expanduser(file or (on_macos if sys.platform == "darwin" else on_linux))
        self.path = os.path.realpath(path)
        if file is None and not os.path.exists(self.path):
            remedy = f"name the file of a project: mcp-actors config attach {host} --file FILE"
            raise Failure(f"{self.path}: file not found, so {host} has no servers for all projects; {remedy}")
        self.data, _ = read_bytes(self.path)
        self.text = decode(self.path, self.data)
        self.document = parse(self.path, self.text)
        if self.text.encode() != self.data:
            raise Failure(f"{self.path} has a byte order mark; save it as plain UTF-8; nothing was changed")
        self.entries = dict(find_sections(self.path, self.document)).get(self.section) or {}
        if not self.entries:
            raise Failure(f"{self.path} has no servers under {self.section!r}; name another file with --file")
        self.spans = [*(_toml_spans if self.is_toml else _json_spans)(self.text, self.section)]
        self.project = project or project_of(self.path)

    @property
    def is_toml(self) -> bool:
        return self.section == "mcp_servers"

    @property
    def attached_to(self) -> str | None:
        """Our file, as our entry names it; None without an entry."""
        match self.entries.get(ENTRY_NAME):
            case {"args": [*_, "--config", str(ours)] as args} if runs_us("", args):
                return ours
        return None

    def reason_to_stay(self, name: str) -> str | None:
        entry = self.entries[name]
        if not isinstance(entry, Mapping) or name not in {span.name for span in self.spans}:
            return "it is not an object (or a table) of its own"
        if runs_us(entry.get("command"), entry.get("args")):
            return "it runs mcp-actors itself"
        try:
            variable = re.search(r"\$\{(?:input:|workspaceFolder|CLAUDE_)[^}]*\}?", json.dumps(entry))
        except TypeError:
            return "it has a date, which JSON does not have"
        if variable is not None:
            return f"only the host knows {variable[0]}"
        # Without these keys the server is the same, and the host asks for more approvals.
        needed = entry.keys() - {"timeout", "alwaysAllow", "autoApprove", "trust"}
        if unknown := sorted(key for key in needed if is_unsupported(key, entry[key])):
            return f"only the host knows what {unknown[0]!r} does"
        errors = load_config({self.section: {name: entry}}, source=self.path).errors
        return str(errors[0]) if errors else None

    def moved(self, name: str) -> dict[str, Any]:
        entry = dict(self.entries[name])
        cwd = entry.get("cwd") or ""
        if self.project is not None and "command" in entry and not str(cwd).startswith(("${", "~")):
            entry["cwd"] = os.path.join(literal(self.project), cwd).rstrip("/")
        return entry

    def as_members(self, servers: Mapping[str, Any]) -> str:
        if self.is_toml:
            return toml_of({self.section: servers})
        start = self.spans[0].start
        lead = self.text[self.text.rfind("\n", 0, start) + 1 : start]
        indent, separator = (None, ", ") if lead.strip() else (2, ",\n")
        texts = (f"{json.dumps(name)}: {json.dumps(each, indent=indent)}" for name, each in servers.items())
        return separator.join(texts).replace("\n", f"\n{lead}")

    def replaced(self, gone: Collection[str], new: str) -> str:
        """Put `new` in the place of the first of the servers `gone`, and cut the rest."""
        text, chosen = self.text, [span for span in self.spans if span.name in gone]
        for span in reversed(chosen):
            start, piece = (span.start, new) if span is chosen[0] else (span.cut, "")
            text = f"{text[:start]}{piece}{text[span.end :]}"
        return text

    def became(self, now: HostFile) -> bool:
        """Return whether `attach_host` turned this file into `now`."""
        gone = self.moved_to(now).keys()
        return bool(gone) and self.replaced({*gone, ENTRY_NAME}, now.text_of_ours()) == now.text

    def moved_to(self, now: HostFile) -> dict[str, Any]:
        """Return the entries that a later file lacks, as our file has them."""
        gone = self.entries.keys() - now.entries.keys()
        if self.attached_to is None:
            gone |= self.entries.keys() & {ENTRY_NAME}  # another server that had this name
        return {name: self.moved(name) for name in self.entries if name in gone}

    def text_of_ours(self) -> str:
        """Return the text of our entry, which must be in one place."""
        spans = [span for span in self.spans if span.name == ENTRY_NAME]
        if len(spans) != 1:
            problem = f"the entry {ENTRY_NAME!r} is not in one place of the text"
            raise Failure(f"{self.path}: {problem}; write it as one object, or one [table]; nothing was changed")
        return self.text[spans[0].start : spans[0].end]

    def check(self, text: str, entries: Mapping[str, Any]) -> None:
        """Check that a text has exactly the servers `entries`, and all else as before."""
        with suppress(ConfigError):
            if parse(self.path, text) == {**self.document, self.section: entries}:
                return
        problem = "the text of its servers cannot be replaced alone; write each as one object, or one [table]"
        raise Failure(f"{self.path}: {problem}; nothing was changed")


def _json_spans(text: str, section: str) -> Iterator[Span]:
    with suppress(ValueError):
        json.loads(text)
        return _spans_in(text, section)
    return _spans_in(without_comments(text), section)


def _spans_in(text: str, section: str) -> Iterator[Span]:
    [place] = [value for name, _, value, _ in _members(text, text.index("{")) if name == section]
    before = 0
    for name, start, _, end in _members(text, place):
        yield Span(name, before or start, start, end)
        before = end


def _members(text: str, at: int) -> Iterator[tuple[str, int, int, int]]:
    """Yield name, start, start of the value, and end of each member of the JSON object at a place."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        yield name, at, value, end
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at


_DECODER: Final = json.JSONDecoder()
_BLANKS: Final = re.compile(r"\s*")


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _toml_spans(text: str, section: str) -> Iterator[Span]:
    heads = [
        (found.start(), tables) for found in _HEAD.finditer(text) if (tables := _parsed_line(found[0])) is not None
    ]
    for (start, tables), following in itertools.zip_longest(heads, [start for start, _ in heads[1:]]):
        within = tables.get(section)
        lines = text[start:following].splitlines(keepends=True)
        while not lines[-1].strip() or lines[-1].lstrip().startswith("#"):
            lines.pop()  # a comment belongs to the table below it
        if isinstance(within, Mapping) and within:
            yield Span(next(iter(within)), start, start, start + len("".join(lines)))


_HEAD: Final = re.compile(r"^[ \t]*\[[^\r\n]*", re.MULTILINE)


def _parsed_line(line: str) -> dict[str, Any] | None:
    """Return the tables that a line begins, unless the line is of an array or a string."""
    try:
        return tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None


# --- Read and write files ---------------------------------------------------------------------------------------------


def _read_ours(path: str) -> tuple[bytes | None, dict[str, Any]]:
    """Return the content of our file and the object in it."""
    if not os.path.lexists(path):
        return None, {}
    data, _ = read_bytes(path)
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not all(isinstance(each, dict) for each in document.values()):
        raise Failure(f"{path} is not JSON with servers, or has comments; choose another file with --to")
    return data, document


def _copies(path: str) -> Iterator[str]:
    """Yield the names for copies of a file, the oldest first, without end."""
    return (f"{path}{_COPY_SUFFIX}{number or ''}" for number in itertools.count())


def _copies_of(now: HostFile) -> list[HostFile]:
    found = list[HostFile]()
    for path in itertools.takewhile(os.path.lexists, _copies(now.path)):
        with suppress(ConfigError, Failure):
            found.append(HostFile(now.host, path, now.project))
    return found


def _write_all(*changes: tuple[str, bytes | None, bytes | None]) -> None:
    """Write files: each a path, the old content and the new content; None means no file.

    Raises:
        Failure: a file cannot be written, or was changed meanwhile. The files before it have their old content again.
    """
    done: list[tuple[str, bytes | None]] = []
    try:
        for path, old, new in changes:
            # Nothing locks these files, and a host may write its own at any time. So compare directly before the write,
            # and let a change by the host win. The order counts too: servers are in their new file before they leave
            # the old one, so a process killed in between loses none, and the next run completes the move.
            if (read_bytes(path)[0] if os.path.lexists(path) else None) != old:
                raise Failure(f"{path} was changed meanwhile; nothing was changed; run it again")
            done.append((path, old))
            _put(path, new)
    # Restore also after a Ctrl-C. An interrupted write may have replaced its file, so `done` names the file before.
    except BaseException as error:
        for path, old in reversed(done):
            with suppress(OSError):
                _put(path, old)
        if isinstance(error, OSError):
            problem = f"{done[-1][0]} cannot be written: {error.strerror}; nothing was changed; check its permissions"
            raise Failure(problem) from None
        raise


def _put(path: str, data: bytes | None) -> None:
    path = os.path.realpath(path)  # a link stays, and its file is replaced
    if data is None:
        Path(path).unlink(missing_ok=True)
    else:
        # A new file may contain credentials of the host, so only its owner can read it. An old file keeps its mode.
        replace_file(Path(path), data, private=not os.path.lexists(path))
