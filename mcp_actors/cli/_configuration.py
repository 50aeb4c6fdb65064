"""Find, trust and load the configuration of a command.

A configuration decides which programs run. So a file that the user did not name is used only if the user accepts the
content. Servers may also be typed: a URL, or a command after ``--``.

Owns: the user's answers; the loaded configuration.
Writes: hashes of accepted files; the command's output; questions to the user.
Calls: catalog, config, config.formats, _completion, _output.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import re
import shlex
import stat
import sys
import termios
from collections.abc import Callable, Collection, Container, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from select import select
from shutil import which
from typing import Final
from urllib.parse import urlsplit

import attrs

from .._errors import ConfigError
from .._misuse import nearest
from .._text import plain_text
from .._user_files import replace_file, user_directory
from ..catalog._names import DEFAULT_NAMING
from ..config import Ask, Http, Input, LoadedConfig, Rank, ServerConfig, Stdio, dump_config
from ..config._sources import stamp_of
from ..config._template import INTERPRETERS
from ..config.formats import Content, load_servers, name_of, read_bytes
from ..config.formats._load import with_overrides
from ._completion import DEFAULT_FILES
from ._output import Failure, Misuse, Output, unknown


def load(file: str | None, names: Sequence[str], output: Output) -> LoadedConfig:
    """Load a configuration file, or typed servers. At a terminal, ask for inputs.

    Args:
        file: None loads the first of `DEFAULT_FILES` that exists.
        names: each server's name (as in the file or as shown), URL or command (see `typed`); empty means all.
        output: prints the name of a found file.

    Raises:
        ConfigError: the file is missing, or cannot be read or parsed.
        Misuse: the file has no such server.
        Failure: a found file is not trusted.
    """
    if names and all(map(_is_typed, names)):
        return LoadedConfig(tuple(map(_typed_server, names)), source="the command line")
    return _load_named(*_chosen(file, names, output), names)


def load_tool(
    file: str | None, words: Sequence[str], output: Output, *, lists: bool = False
) -> tuple[LoadedConfig, list[str]]:
    """Load the server of a tool: SERVER TOOL, SERVER/TOOL, or the tool's public name.

    With `lists`, words may be servers alone. Errors are as for `load`.

    Returns:
        The configuration of all servers that the words may mean, and the remaining words, the tool first.
    """
    first, *rest = words or [""]
    if not words or (_is_typed(first) and lists and (len(rest) != 1 or _is_typed(rest[0]))):
        return load(file, words, output), []
    if _is_typed(first):
        return load(file, [first], output), rest
    file, content = _chosen(file, [first], output)
    everything = _load(file, (), None, content)
    known = [*(server.name for server in everything.servers), *everything.failed]
    servers, tool = _servers_of(first, known)
    unnamed = not (lists or tool or (name := server_name_of(first)) in known or nearest(name, known) or _no_name(first))
    if unnamed and all("=" in word or word.startswith(("{", "@")) for word in rest):
        problem = f"{everything.source}: there is no server {first!r}; the server of a tool comes before it"
        line = shlex.join(["mcp-actors", "call", *(known if len(known) == 1 else ["SERVER"]), first, *rest])
        raise unknown(f"{problem}: {line}", first, known, "servers")
    if lists and any("=" in word for word in rest) and not any(map(_is_typed, rest)):
        line = shlex.join(["mcp-actors", "call", first, *rest])
        raise Misuse(f"tools shows a tool, and takes no arguments; to call it, write {line}")
    others = [word for word in rest if not _is_typed(word) and server_name_of(word) not in known]
    if lists and not tool and others != rest[:1]:
        servers, rest = list(words), []
    return _load_named(file, content, servers), [*tool, *rest]


def _servers_of(word: str, known: Sequence[str]) -> tuple[list[str], list[str]]:
    if (split := split_tool(word, known)) is not None:
        server, tool = split
        return [server], [] if tool is None else [tool]
    # A name is ambiguous if a server is called `a` and another one `a__b`.
    prefixes = {name: DEFAULT_NAMING.format(server=name, tool="") for name in known}
    if named := [name for name, prefix in prefixes.items() if word.startswith(_ILLEGAL.sub("_", prefix))]:
        return named, [word]
    if not nearest(server_name_of(word), known) and not _no_name(word):
        word = word.partition("/")[0]  # for the error about an unknown server
    return [word], []


def split_tool(word: str, known: Collection[str]) -> tuple[str, str | None] | None:
    """Return the server and the tool in ``SERVER`` or ``SERVER/TOOL``; None without a known server.

    A dot or a colon may replace the slash, as in other programs. Names may contain a slash, so the longest name of a
    server wins.
    """
    if server_name_of(word) in known:
        return word, None
    for place in (place for place in range(len(word) - 1, 0, -1) if word[place] in "/.:"):
        if server_name_of(word[:place]) in known:
            return word[:place], word[place + 1 :]
    return None


def _load_named(file: str, content: Content | None, names: Sequence[str]) -> LoadedConfig:
    typed_ones = tuple(_typed_server(name) for name in names if _is_typed(name))
    names = [name for name in names if not _is_typed(name)]
    loaded = _load(file, names, _ask_for_input if sys.stdin.isatty() else None, content)
    return attrs.evolve(loaded, servers=(*loaded.servers, *typed_ones))


def load_unasked(file: str | None, names: Sequence[str] = (), content: Content | None = None) -> LoadedConfig:
    """Load a configuration to look at, without asking for inputs or trust. Do not start the servers.

    Arguments and errors are as for `load`; `content` is that of the file, if read already.
    """
    return _load(file or str(find_file()), names, lambda asked: asked.options[0] if asked.options else "…", content)


def followed(
    file: str | None, names: Sequence[str], output: Output
) -> tuple[LoadedConfig, FollowedFile | LoadedConfig]:
    """Return the servers of a long-running command, and the source: a file, or typed servers.

    Arguments and errors are those of `load`.
    """
    if any(map(_is_typed, names)):
        if not all(map(_is_typed, names)):
            remedy = "leave out the names, or the URL and the command"
            raise Misuse(f"watch follows either a file or what is typed; {remedy}")
        loaded = load(file, names, output)
        return loaded, loaded
    source = FollowedFile(file, names, output)
    return source.loaded, source


class FollowedFile:
    """The configuration of a long-running command, as a source of `open_servers`.

    A changed file is not used if it was found, not named: the user never accepted the new content.
    """

    interval = 1.0
    settles = True

    def __init__(self, file: str | None, names: Sequence[str], output: Output) -> None:
        self._file, content = _chosen(file, names, output)
        self._names = names
        self._answers: dict[str, str | None] = {}
        self._asks = sys.stdin.isatty()
        # With only some servers loaded, variables that override values of the rest would be errors. CODE permits them.
        self.rank = Rank.CODE if names else Rank.FILE
        self._accepted = None if content is None else content[0]
        self.loaded = _load(self._file, names, self._answer, content)
        self._asks = False

    @property
    def name(self) -> str:
        """The absolute path."""
        return self.loaded.source

    def look(self) -> Hashable:
        """Return the file's identity, size and time; None without a file."""
        return stamp_of(self._file)

    def read(self) -> tuple[LoadedConfig, ...]:
        """Load the file again, with earlier answers of the user."""
        content = read_bytes(self._file)
        if self._accepted is not None and content[0] != self._accepted:
            problem = "the file has changed; run this command again to review and use it"
            raise ConfigError(f"{self._file}: {problem}", source=self._file)
        loaded = load_servers(self._file, self._answer, _only(self._names), content=content)
        return (_selected(loaded, self._names),)

    def _answer(self, question: Input) -> str | None:
        if self._asks:
            self._answers[question.id] = _ask_for_input(question)
        return self._answers.get(question.id)


def _chosen(file: str | None, names: Sequence[str], output: Output) -> tuple[str, Content | None]:
    """Return the file of a command and, if found, the accepted content."""
    if file is not None:
        return file, None
    found = find_file(names)
    return str(found), require_trust(found, output)


def _load(file: str, names: Sequence[str], ask: Ask | None, content: Content | None) -> LoadedConfig:
    loaded = load_servers(file, ask, _only(names), content=content)
    if loaded.source in loaded.failed:
        raise loaded.failed[loaded.source]
    loaded = with_overrides(loaded)
    known = [*(server.name for server in loaded.servers), *loaded.failed]
    for word in names:
        name = server_name_of(word, known)
        if name not in known:
            _check_name(word)
            error = unknown(f"{loaded.source}: there is no server {name!r}", name, known, "servers")
            is_program = which(word) is not None and not nearest(name, known)
            raise Misuse(f"{error}; to try this program, write it after '--': -- {word}") if is_program else error
    return _selected(loaded, names)


def _only(names: Sequence[str]) -> frozenset[str] | None:
    return frozenset(each for name in names for each in _possible_names(name)) if names else None


def _selected(loaded: LoadedConfig, names: Sequence[str]) -> LoadedConfig:
    if not names:
        return loaded
    known = {server.name: server for server in loaded.servers}
    wanted = dict.fromkeys(server_name_of(name, {**known, **loaded.failed}) for name in names)
    failed = {name: error for name, error in loaded.failed.items() if name in wanted or name == loaded.source}
    # A server that is named is wanted, also if its entry says `disabled`.
    servers = tuple(attrs.evolve(known[name], enabled=True) for name in wanted if name in known)
    return attrs.evolve(loaded, servers=servers, failed=failed, errors=tuple(failed.values()))


# --- Servers that were typed: a URL, or a command after ``--`` --------------------------------------------------------


COMMAND: Final = "$ "
"""Begins a typed command line in the place of a name; names have neither ``$`` nor spaces."""

_WEB_URL: Final = re.compile(r"https?://", re.IGNORECASE)

_ADDRESS: Final = re.compile(r"[\w.-]+:\d+(/|$)|[\w-]+(\.[\w-]+)*\.[a-z]{2,}/", re.IGNORECASE)

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that public names of tools replace by ``_``."""


def _no_name(word: str) -> str | None:
    """Return the remedy for a file, an address or several names in place of a server."""
    if _ADDRESS.match(word):
        scheme = "http" if word.startswith(("localhost", "127.")) else "https"
        return f"write its URL with the scheme: {scheme}://{word}"
    if not os.path.isfile(word):
        return f"separate names by spaces: {' '.join(filter(None, word.split(',')))}" if "," in word else None
    if word.endswith((".json", ".toml")):
        return f"to use that file, write --config {shlex.quote(word)}"
    line = shlex.join(filter(None, (INTERPRETERS.get(Path(word).suffix), word)))
    return f"a server's command follows '--': -- {line}"


def _check_name(word: str) -> None:
    if remedy := _no_name(word):
        raise Misuse(f"{word!r} is not the name of a server; {remedy}")


def typed(words: Sequence[str]) -> list[str]:
    """Move the command after ``--`` to the place of the first server."""
    place = words.index("--")
    if not place or not words[place + 1 :]:
        raise Misuse("a server's command follows '--': mcp-actors tools -- npx -y some-server")
    return [words[0], f"{COMMAND}{shlex.join(words[place + 1 :])}", *words[1:place]]


def _is_typed(name: str) -> bool:
    return name.startswith(COMMAND) or _WEB_URL.match(name) is not None


def _typed_server(name: str) -> ServerConfig:
    if name.startswith(COMMAND):
        command, *arguments = shlex.split(name.removeprefix(COMMAND))
        return ServerConfig(_as_name(os.path.basename(command)), Stdio(command, arguments))
    return ServerConfig(_as_name(urlsplit(name).netloc.rpartition("@")[2]), Http(name))


def _as_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-")[:64] or "server"


def find_file(names: Sequence[str] = ()) -> Path:
    """Return the file of this folder. Without a file, refuse an address or a file in the place of a server."""
    for place in DEFAULT_FILES:
        if Path(place).exists():
            return Path(place)
    for word in names:
        _check_name(word)
    problem = f"no configuration file in this folder ({', '.join(DEFAULT_FILES)})"
    raise ConfigError(f"{problem}; name one with --config FILE, or type a URL, or a command after --")


def server_name_of(name: str, known: Container[str] = ()) -> str:
    """Return a server's name in this package, for this or the file's name. `known` has all names in this package."""
    *others, usual = _possible_names(name)
    return next((each for each in others if each in known), usual)


def _possible_names(name: str) -> list[str]:
    """Return the possible names in this package for a name in a file, the usual one last."""
    try:
        usual = name_of("", "", name)
    except ConfigError:
        return [name]
    return [usual] if usual == name else [name_of("", "", name, (usual,)), usual]


# --- Ask at the terminal ----------------------------------------------------------------------------------------------


_TERMINAL: Final = "/dev/tty"


def _ask_for_input(question: Input) -> str | None:
    """Ask on the terminal, or on stderr without one. Return None for an empty answer, or at the end of stdin."""
    choices = f" ({', '.join(question.options)})" if question.options else ""
    # The file may belong to a foreign project, so its text must not act on the terminal.
    prompt = plain_text(f"{question.description or question.id}{choices}") + ": "
    stdin = sys.stdin.fileno()
    with _terminal() as terminal, _hidden(stdin) if question.password else nullcontext():
        shown = sys.stderr.fileno() if terminal is None else terminal
        return _reply(stdin, shown, prompt).decode(sys.stdin.encoding).rstrip("\n") or None


@contextmanager
def _terminal() -> Iterator[int | None]:
    """Open the terminal, whatever the streams are; None if the user cannot be asked on it."""
    # Without a stream on the terminal, another program runs this command and would wait for an answer for ever.
    if not any(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        yield None
        return
    try:
        terminal = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        # In the background, a read would suspend the whole job (SIGTTIN) before the question is seen.
        yield terminal if os.tcgetpgrp(terminal) == os.getpgrp() else None
    finally:
        os.close(terminal)


def _reply(terminal: int, shown: int, question: str) -> bytes:
    """Write a question to `shown`, and read a line; without a line end if the input ends first."""
    left = question.encode(errors="backslashreplace")
    line = b""
    try:
        # A write may take only a part. The end of a question about trust has the number of servers.
        while left:
            left = left[os.write(shown, left) :]
        while not line.endswith(b"\n"):
            # If Ctrl-C comes just before a read, Python handles it when the read ends. So wait in steps. Read single
            # bytes: several lines may have been typed before. The others are for later questions, or for the shell.
            if select([terminal], (), (), 0.1)[0]:
                if not (piece := os.read(terminal, 1)):
                    break
                line += piece
    finally:
        if not line.endswith(b"\n"):
            os.write(shown, b"\n")  # also after Ctrl-C: the next text must not follow the question on its line
    return line


@contextmanager
def _hidden(terminal: int) -> Iterator[None]:
    """In the block, show only the ends of lines that are typed. Drop what was typed before, which was shown."""
    before = termios.tcgetattr(terminal)
    flags = before[3] & ~termios.ECHO | termios.ECHONL
    try:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, [*before[:3], flags, *before[4:]])
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


# --- Use a configuration that was found only if it is trusted ---------------------------------------------------------

# Any user who can write a configuration can run programs as the user of this command. ``--config`` is the user's own
# choice. A file in the current folder may have come with a foreign project, or the folder may belong to another user.
#
# The file is read once. The user accepts these bytes, and the command uses them: with a second read, a file replaced
# between the question and the start would pass.


_SPACES: Final = re.compile(r"(?<=\S) {16,}")  # not those that indent a line


def require_trust(found: Path, output: Output) -> Content:
    """Print the name of a found file, and return the content if the user trusts it. Do not read the file again.

    Only the user and root may be able to write the file. If servers are configured and the content was never accepted,
    ask at the terminal.

    Raises:
        Failure: other users can write the file, or the user rejects the content or cannot be asked.
    """
    for kind, path, status in _paths_to_check(found):
        if reason := _writable_by_others(status):
            problem = f"{kind} {plain_text(str(path))} {reason}, so others could make it run any program as you"
            raise Failure(f"{problem}; review the file, then name it: --config {found}")
    content = read_bytes(str(found))
    output.note(f"using {found}")
    accepted = _hash_of(content[0]) in _accepted().get(os.path.abspath(found), ())
    if not accepted and (review := _FileReview.of(found, content)).servers:
        _ask(found, review)
        with suppress(OSError, RuntimeError):  # the question is asked again next time
            accept(found, content[0])
    return content


# --- other users ---------------------------------------------------------------------------------------------------


def _paths_to_check(found: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Yield the paths that decide on the content: the file, the target of a link, and the folders."""
    real = Path(os.path.realpath(found))
    yield "the file", found, os.lstat(found)
    yield "the file", real, os.stat(real)
    for folder in dict.fromkeys((Path.cwd(), Path(os.path.abspath(found)).parent, real.parent)):
        yield "the folder", folder, os.stat(folder)


def _writable_by_others(status: os.stat_result) -> str | None:
    """Return why another user can write or replace a file, or None."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to {_name_of(pwd.getpwuid, status.st_uid)}"
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        return None  # a link has no mode; in a sticky folder such as /tmp only the owner of a file can replace it
    if status.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if status.st_mode & stat.S_IWGRP and not _is_alone_in(status.st_gid):
        return f"can be written by the group {_name_of(grp.getgrgid, status.st_gid)}"
    return None


def _is_alone_in(group: int) -> bool:
    """Return True for root's group, and for the user's private group on many systems."""
    return group == 0 or _name_of(grp.getgrgid, group) == _name_of(pwd.getpwuid, os.geteuid())


def _name_of(entry: Callable[[int], tuple[object, ...]], number: int) -> str:
    try:
        return str(entry(number)[0])
    except KeyError:
        return str(number)


# --- the user ------------------------------------------------------------------------------------------------------


@attrs.frozen
class _FileReview:
    """The servers of a file, for review.

    Attributes:
        servers: all, also servers that are disabled or need an input.
    """

    servers: tuple[ServerConfig, ...]
    inputs: dict[str, Input]

    @classmethod
    def of(cls, found: Path, content: Content) -> _FileReview:
        """Read the servers of a file, without values from a person or the environment."""
        inputs: dict[str, Input] = {}

        def note(question: Input) -> str:
            inputs[question.id] = question
            return question.options[0] if question.options else "…"

        servers = load_servers(str(found), note, content=content).servers
        # Load once more by name: disabled servers have inputs too, and are used if a command names them.
        named = frozenset(server.name for server in servers)
        return cls(load_servers(str(found), note, named, content=content).servers, inputs)

    def __str__(self) -> str:
        """Return the servers as ASCII JSON, with a number for each long run of spaces.

        So no text of the file can act on the terminal, forge a line, reorder, hide or imitate characters, or fill the
        screen with blanks.
        """
        document = dump_config(self.servers, literals=True)
        if "inputs" in document:
            document["inputs"] = [
                attrs.asdict(self.inputs[each["id"]], filter=lambda field, value: value != field.default)
                if each["id"] in self.inputs
                else each
                for each in document["inputs"]
            ]
        return _SPACES.sub(lambda run: f"…{len(run[0])} spaces…", json.dumps(document, indent=2))


def _ask(found: Path, review: _FileReview) -> None:
    shown, number = str(review), len(review.servers)
    path = plain_text(os.path.abspath(found))
    with _terminal() as terminal:
        if terminal is None:
            problem = f"{found} was found, not named with --config, and its content was never accepted at a terminal"
            raise Failure(f"{problem}; nothing was started; review the file, then name it: --config {found}")
        size = f"{number} server{'' if number == 1 else 's'} in {_rows(shown, terminal)} rows of this terminal"
        question = f"{path} is new or has changed. It would start or contact:\n{shown}\n{size}. Continue? [y/N] "
        # Text that was typed or pasted before must not answer the question: a stray "y" would start foreign programs.
        termios.tcflush(terminal, termios.TCIFLUSH)
        reply = _reply(terminal, terminal, question)
    if reply.strip().lower() not in (b"y", b"yes"):
        raise Failure(f"{found} was not accepted and nothing was started; answer y, or name it: --config {found}")


def _rows(text: str, terminal: int) -> int:
    columns = os.get_terminal_size(terminal).columns or 80  # 0 if it is not known
    return sum(max(1, -(-len(line) // columns)) for line in text.splitlines())


# --- what was accepted ---------------------------------------------------------------------------------------------


def accept(found: Path, content: bytes) -> None:
    """Store that the user accepts this content of a file."""
    accepted, path, new = _accepted(), os.path.abspath(found), _hash_of(content)
    # Twenty contents of a file stay accepted, for people who switch between branches.
    kept = [*(each for each in accepted.get(path, ()) if each != new), new][-20:]
    replace_file(_state_file(), json.dumps({**accepted, path: kept}).encode())


def _accepted() -> dict[str, list[str]]:
    """Return file → hashes of accepted contents."""
    try:
        stored = json.loads(_state_file().read_text())
    except (OSError, ValueError, RuntimeError):
        return {}
    files = stored.items() if isinstance(stored, dict) else ()
    return {path: hashes for path, hashes in files if isinstance(hashes, list)}


def _hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _state_file() -> Path:
    return user_directory("state") / "accepted.json"
