"""Use a configuration that was found only if it is trusted.

A configuration decides which programs run, so any user who can write it can run any program as the user of this
command. A file that is named with ``--config`` was chosen by the user. A file in the current folder may have come with
a foreign project, or the folder may belong to another user.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from .._plain_text import plain_text
from .._user_files import replace_file, user_directory
from ..config.formats import load_servers, read_bytes
from ._output import Output
from ._problems import Failure
from ._session import describe


def require_trust(found: Path, output: Output, answer: Callable[[str], str | None]) -> None:
    """Print the name of a file that was found, and refuse it unless the user can trust it.

    Only the user and root may be able to write the file. At a terminal the user is asked, once for each content of it.

    Args:
        found: the file.
        output: prints its name.
        answer: asks the user a question and returns the answer, None for no answer.

    Raises:
        Failure: other users can write the file, or the user rejects it.
        ConfigError: the file cannot be read.
    """
    for kind, path, status in _paths_to_check(found):
        if reason := _writable_by_others(status):
            problem = f"{kind} {plain_text(str(path))} {reason}, so others could make it run any program as you"
            raise Failure(f"{problem}; review the file, then name it: --config {found}")
    content, _ = read_bytes(str(found))
    output.note(f"using {found}")
    if sys.stdin.isatty() and output.messages.is_terminal:
        _ask_once(found, hashlib.sha256(content).hexdigest(), answer)


# --- other users ---------------------------------------------------------------------------------------------------


def _paths_to_check(found: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Yield the paths that decide on the content of a file: the file, a link to it, and the folders of both."""
    real = Path(os.path.realpath(found))
    yield "the file", found, os.lstat(found)
    yield "the file", real, os.stat(real)
    for folder in dict.fromkeys((Path.cwd(), Path(os.path.abspath(found)).parent, real.parent)):
        yield "the folder", folder, os.stat(folder)


def _writable_by_others(status: os.stat_result) -> str | None:
    """Return why another user can write a file, or replace it in its folder; None if only the user and root can."""
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
    """Return True for the group of root, and for the private group that many systems create for each user."""
    user = _name_of(pwd.getpwuid, os.geteuid())
    return group == 0 or _name_of(grp.getgrgid, group) == user


def _name_of(entry: Callable[[int], tuple[object, ...]], number: int) -> str:
    try:
        return str(entry(number)[0])
    except KeyError:
        return str(number)


# --- the user ------------------------------------------------------------------------------------------------------


def _ask_once(found: Path, content: str, answer: Callable[[str], str | None]) -> None:
    path = os.path.abspath(found)
    accepted = _accepted()
    if accepted.get(path) == content:
        return
    runs = "".join(f"    {line}\n" for line in _programs_of(found))
    reply = answer(f"{plain_text(path)} is new or has changed. It starts:\n{runs}Continue? [y/N] ") or ""
    if reply.strip().lower() not in ("y", "yes"):
        raise Failure(f"{found} was not accepted and nothing was started; answer y, or name it: --config {found}")
    with suppress(OSError):  # the question is asked again next time
        replace_file(_state_file(), json.dumps({**accepted, path: content}).encode())


def _programs_of(found: Path) -> Iterator[str]:
    """Yield a line for each server of a file, also for those that need an input or are disabled."""
    for server in load_servers(str(found), lambda question: question.options[0] if question.options else "…").servers:
        yield plain_text(f"{server.name}: {describe(server.transport)}")


def _state_file() -> Path:
    return user_directory("state") / "accepted.json"


def _accepted() -> dict[str, str]:
    """Return the accepted files: path → hash of the content."""
    try:
        found = json.loads(_state_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
