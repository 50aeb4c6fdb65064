"""Errors of a group; translate the kernel's failures into them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define

from ..._collapse import caused_by, first_of, leaves
from ..._errors import ActorStartError, RestartLimitReached, ServerError, ServerUnavailable, ToolNotFound
from ..._misuse import nearest
from ..record import PARKED
from ._tree import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ...catalog import CatalogSnapshot
    from ..record import ServerRecord
    from ._roster import Roster


@define
class Phase:
    """How far a group has come; ``started`` is True once its block runs."""

    started: bool = False


@contextmanager
def translate(roster: Roster) -> Iterator[Phase]:
    """Raise errors about servers instead of the kernel's errors about the group's supervisor."""
    phase = Phase()
    failure: BaseException
    try:
        yield phase
    except ActorStartError as exc:
        if phase.started:
            raise
        failure = _start_failure(roster.records.values(), exc)
    except RestartLimitReached as exc:
        if exc.actor != GROUP:
            raise
        records = roster.records.values()
        failure = (_unavailable(records) or exc) if phase.started else _start_failure(records, exc)
    except BaseExceptionGroup as group:
        # Not `group.split`, which recurses through the groups that the block has raised.
        others = [exc for exc in group.exceptions if not (isinstance(exc, RestartLimitReached) and exc.actor == GROUP)]
        unavailable = _unavailable(roster.records.values())
        if not others or len(others) == len(group.exceptions) or unavailable is None:
            raise
        failure = unavailable
        if not all(_is_echo(each, unavailable) for each in others):
            failure = BaseExceptionGroup(group.message, [failure, *others])
    else:
        return
    # Not `from exc`: the kernel's account of its actors would only bury the server's own cause in the traceback.
    raise failure from failure.__cause__


def closed() -> ServerUnavailable:
    """Return the error for a change of a group after its block."""
    return ServerUnavailable(
        "this group of servers cannot be changed because its open_servers() block has exited; open it again",
        server="*",
        state="stopped",
    )


def _start_failure(records: Iterable[ServerRecord], exc: Exception) -> BaseException:
    """Return the first failed connect in configured order; the others become its notes."""
    failures = [cause for cause in (_connect_failure(record) for record in records) if cause is not None]
    return first_of(failures) if failures else exc


def _connect_failure(record: ServerRecord) -> Exception | None:
    gave_up = record.config.on_failure == "raise" and record.life.state in PARKED
    return record.life.last_error if record.required or gave_up else None


def _unavailable(records: Iterable[ServerRecord]) -> ServerUnavailable | None:
    """Return the error for the server that ended its group; None if a defect ended it."""
    record = next((r for r in records if r.life.state in PARKED and r.config.on_failure == "raise"), None)
    if record is None:
        return None
    name = record.config.name
    failure = ServerUnavailable(
        f"server {name!r} has failed and closed its group (on_failure='raise'): {record.life.last_error}; fix that, or "
        "set on_failure='park' to keep the other servers",
        server=name,
        state=record.life.state,
        last_error=record.life.last_error,
    )
    return caused_by(failure, record.life.last_error)


def _is_echo(others: BaseException, failure: ServerUnavailable) -> bool:
    """Return True if the block raised only errors about the same server that ended it."""
    return all(isinstance(leaf, ServerError) and leaf.server == failure.server for leaf in leaves(others))


def tool_not_found(
    public_name: str, known: CatalogSnapshot, *, silent: Mapping[str, str], hidden: Sequence[str], naming: str
) -> ToolNotFound:
    """Return the error for a public name that no tool has.

    Args:
        public_name: the name that was asked for.
        known: all tools.
        silent: the servers that show no tools now, and the state of each.
        hidden: the servers with tools that wait for approval, each with their number.
        naming: the template of the public names.
    """
    hints = []
    # The name of a tool that is not shown now: the similar tool of another server would be no substitute.
    if not any(_names_tool_of(server, public_name, naming) for server in silent):
        near = [tool.public_name for tool in known if tool.name == public_name]  # its own name, as `ServerRef` takes it
        near = near[:3] or nearest(public_name, (tool.public_name for tool in known), 3)
        hints.append(f"did you mean {' or '.join(map(repr, near))}?" if near else f"{len(known)} tools are known")
    if silent:
        shown = ", ".join(f"{server} ({state})" for server, state in silent.items())
        hints.append(f"servers not serving now: {shown}")
    if hidden:
        hints.append(f"servers with tools that wait for approval (see tool_changes): {', '.join(hidden)}")
    return ToolNotFound(f"tool {public_name!r} not found; {'; '.join(hints)}", server="*")


def _names_tool_of(server: str, public_name: str, naming: str) -> bool:
    """Return True if a public name has the form of those of a server's tools."""
    before, _, after = naming.format(server=server, tool="\0").partition("\0")
    return server in before + after and public_name.startswith(before) and public_name.endswith(after)
