"""One tool of one server, as everybody may see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from .values import freeze


class ListedTool(Protocol):
    """A tool as a server lists it: the part of ``mcp.types.Tool`` that the catalogue keeps."""

    @property
    def name(self) -> str:
        """The name as the server calls it."""
        ...

    @property
    def title(self) -> str | None:
        """A name for people."""
        ...

    @property
    def description(self) -> str | None:
        """What it does, for the model."""
        ...

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments."""
        ...

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of structured results."""
        ...

    @property
    def annotations(self) -> Any:
        """The server's hints about it: a pydantic model, a mapping or None."""
        ...

    @property
    def meta(self) -> Mapping[str, Any] | None:
        """The ``_meta`` of the listing."""
        ...


def _frozen(value: Mapping[str, Any]) -> Mapping[str, Any]:
    frozen: Mapping[str, Any] = freeze(value)
    return frozen


def _frozen_or_none(value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if value is None else _frozen(value)


def wire_annotations(annotations: Any) -> Mapping[str, Any] | None:
    """Return annotations under the names they have on the wire (``readOnlyHint``), without those not given."""
    if annotations is None or isinstance(annotations, Mapping):
        return annotations
    dumped: dict[str, Any] = annotations.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def _task_support(tool: ListedTool) -> str:
    """Return what a tool says about tasks; only some versions of the protocol have a word for it."""
    if isinstance(tool, CatalogTool):
        return tool.task_support
    execution = getattr(tool, "execution", None)
    return getattr(execution, "task_support", None) or "forbidden"


@attrs.frozen(kw_only=True, repr=False)
class CatalogTool:
    """A tool of a server, under the public name by which the group calls it.

    It is immutable through and through: the schemas, annotations and meta are dicts and lists that refuse every
    change, and ``copy.deepcopy`` of one gives an ordinary one to work on. They can be given to `json.dumps` and to the
    SDKs of model providers as they are.

    Attributes:
        server: the configured name of the server that has it.
        name: its name as that server calls it.
        public_name: its name in the group, unique there; 1 to 64 of the characters ``A-Z a-z 0-9 _ -``.
        title: a name for people, if the server gave one.
        description: what it does, for the model, if the server said so.
        input_schema: the JSON schema of its arguments.
        output_schema: the JSON schema of its structured results, if the server gave one.
        annotations: the server's hints, under their wire names (``readOnlyHint`` …). A hint is a claim, not a fact.
        meta: the ``_meta`` of the listing.
        task_support: whether it can be run as a task (an MCP idea of its own, of 2025-11-25): ``"forbidden"``,
            ``"optional"`` or ``"required"``. One that requires it cannot be called from here.
        available: False while it is listed but its server is not serving, for example because it reconnects.
        deferred: True as long as its server has not listed it in this run: it is remembered from an earlier one. A call
            waits for the connection, and finds out then whether it is still there.
    """

    server: str
    name: str
    public_name: str
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] = attrs.field(converter=_frozen, hash=False)
    output_schema: Mapping[str, Any] | None = attrs.field(default=None, converter=_frozen_or_none, hash=False)
    annotations: Mapping[str, Any] | None = attrs.field(default=None, converter=_frozen_or_none, hash=False)
    meta: Mapping[str, Any] | None = attrs.field(default=None, converter=_frozen_or_none, hash=False)
    task_support: str = "forbidden"
    available: bool = True
    deferred: bool = False

    @classmethod
    def from_listing(
        cls, server: str, tool: ListedTool, public_name: str, *, available: bool = True, deferred: bool = False
    ) -> CatalogTool:
        """Return what the catalogue keeps of a tool as the server listed it; nothing is shared with `tool`.

        Args:
            server: the configured name of the server.
            tool: the listed tool: an ``mcp.types.Tool``, another `CatalogTool`, or anything with its attributes.
            public_name: the name it got (see `assign_names`).
            available: whether its server is serving right now.
            deferred: whether it is only remembered from an earlier run.
        """
        return cls(
            server=server,
            name=tool.name,
            public_name=public_name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            annotations=wire_annotations(tool.annotations),
            meta=tool.meta,
            task_support=_task_support(tool),
            available=available,
            deferred=deferred,
        )

    def __repr__(self) -> str:
        away = ", deferred" if self.deferred else "" if self.available else ", unavailable"
        return f"<CatalogTool {self.public_name!r}: {self.name!r} of server {self.server!r}{away}>"
