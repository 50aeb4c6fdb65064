"""Validate the arguments and the result of a tool call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import pydantic_core

from .._errors import InvalidArguments, InvalidResult
from .._foreign import Log
from ._schemas import Schema, Violation, dotted, kind_of, listed, required_of

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from ._tools import ListedTool

logger = Log("mcp_actors.catalog")

Validation = Literal["required", "schema", "off"]
"""The extent of validation: required arguments only, everything in the schemas, or nothing."""

_DEPTH: Final = 30  # steps into arguments that cannot be written, to find the one that cannot; some contain themselves


class ToolChecks:
    """Checks of the arguments and results of one server's tools.

    An instance belongs to one listing; `updated` returns one for the next. A tool that is not listed is not checked, so
    the server decides whether it exists.

    Modes:

    - ``"required"``: the arguments can be written as a JSON object, and required ones are present. The first result of
      each tool on a connection is compared with its output schema, and a difference is logged;
    - ``"schema"``: in addition, the arguments match the tool's input schema, and structured content its output schema.
      A schema is a foreign program, so this mode is optional, and a check runs for at most a tenth of a second;
    - ``"off"``: nothing.

    Args:
        server: the configured name of the server.
        tools: the listed tools. If several have the same name, the first one counts.
        mode: the mode.
        mask: masks credentials in the text of the server. Default: none are known.
    """

    def __init__(
        self,
        server: str,
        tools: Iterable[ListedTool] = (),
        mode: Validation = "required",
        mask: Callable[[str], str] = str,
    ) -> None:
        self._server = server
        self._mask = mask
        self._mode: Validation = mode
        self._tools: dict[str, ListedTool] = {}
        self._checks: dict[str, _ToolCheck] = {}  # of called tools: a list may be long, and few of its tools are called
        for tool in tools if mode != "off" else ():
            self._tools.setdefault(tool.name, tool)
        self._samples: set[str] = set()  # of these tools the next result is a sample
        self.sample()

    def sample(self) -> None:
        """Compare the next result of each tool with its output schema, in mode ``"required"``: a connection begins."""
        if self._mode == "required":
            self._samples = {name for name, tool in self._tools.items() if tool.output_schema is not None}

    def updated(self, tools: Iterable[ListedTool]) -> ToolChecks:
        """Return the checks for another listing, with the compiled schemas of unchanged tools."""
        new = ToolChecks(self._server, tools, self._mode, self._mask)
        for name, check in self._checks.items():
            if check.used and name in new._tools and check.is_of(new._tools[name]):
                new._checks[name] = check
                if name not in self._samples:
                    new._samples.discard(name)
        return new

    def _check(self, name: str) -> _ToolCheck | None:
        """Return the check of a tool, made when it is first needed; None if the tool is not listed."""
        check = self._checks.get(name)
        if check is None and name in self._tools:
            check = self._checks[name] = _ToolCheck(self._server, self._tools[name], self._mask)
        return check

    def check_arguments(self, tool: str, arguments: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Check the arguments of a call.

        Returns:
            The arguments to send, as a copy in JSON values: the caller's later changes cannot affect arguments that
            have been checked. None stays None. (With ``"off"`` only the outermost object is copied.)

        Raises:
            InvalidArguments: the arguments are not valid for the tool.
        """
        return self.written(tool, arguments)[0]

    def written(self, tool: str, arguments: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, bytes | None]:
        """Check the arguments of a call, and return them as `check_arguments` does, and as JSON text.

        There is no text for None, and in mode ``"off"``, in which the arguments may be no JSON.
        """
        if self._mode == "off":
            return None if arguments is None else dict(arguments), None
        sendable, text = ({}, None) if arguments is None else self._sendable(tool, arguments)
        check = self._check(tool)
        if check is not None:
            for name in check.required:
                if name not in sendable:
                    raise self._missing(tool, sendable, check.required)
            if self._mode == "schema" and (found := check.input.violation(sendable)) is not None:
                raise self._refused(tool, *found)
        return None if arguments is None else sendable, text

    def checks_result_of(self, tool: str) -> bool:
        """Return True if the next result of a tool is checked."""
        return self._mode == "schema" or tool in self._samples

    def check_result(self, tool: str, result: CallToolResult) -> None:
        """Check the result of a tool, or log what is wrong with a sample. With ``is_error`` it may contain anything.

        Raises:
            InvalidResult: its structured content does not match the output schema, in mode ``"schema"``.
        """
        if result.is_error or not self.checks_result_of(tool):
            return
        self._samples.discard(tool)
        check = self._check(tool)
        if check is None or check.output is None:
            return
        content = result.structured_content
        if content is None and "structured_content" not in result.model_fields_set:
            found: tuple[Violation, int] | None = Violation((), "is missing"), 1
        else:
            found = check.output.violation(content)
        if found is None:
            return
        phrase = self._phrase("structured_content", *found)
        problem = f"its result does not match its output schema: {phrase}"
        if self._mode == "schema":
            raise self._broken(tool, result, problem, found[0])
        remedy = "it is returned nevertheless; fix the server, or set validate='schema' to refuse such results"
        logger.warning("%s: %s; %s", self._who(tool), problem, remedy)

    def check_request(self, tool: str, meta: Mapping[str, Any] | None) -> None:
        """Check the name of the tool and the ``_meta`` of a call, in every mode.

        Raises:
            InvalidArguments: one of them cannot be written as JSON.
        """
        given: object = tool
        if not isinstance(given, str) or not (given.isascii() or _can_be_written(given)):
            unsendable = " that cannot be sent" if isinstance(given, str) else ""
            found = Violation((), f"is {kind_of(given)}{unsendable}", "the name of a tool")
            raise self._refused(ascii(given), found, root="name")
        if meta is not None:
            self._sendable(tool, meta, root="meta")

    def _sendable(self, tool: str, values: Any, *, root: str = "arguments") -> tuple[dict[str, Any], bytes]:
        """Return the arguments, or the part of the request that `root` names, as JSON values and as text."""
        if type(values) is not dict and not isinstance(values, Mapping):
            raise self._refused(tool, Violation((), f"is {kind_of(values)}", "an object"), root=root)
        for name in values:
            if not isinstance(name, str):
                raise self._refused(tool, Violation((), f"has the key {name!r:.40}", "strings as keys"), root=root)
        try:
            return _as_json(values if type(values) is dict else dict(values))
        except Exception:  # foreign objects may raise anything when they are serialized
            raise self._refused(tool, _unwritable(dict(values)), root=root) from None

    # --- the errors ---------------------------------------------------------------------------------------------

    def _missing(self, tool: str, given: Mapping[str, Any], required: tuple[str, ...]) -> InvalidArguments:
        missing = [name for name in required if name not in given]
        more = f", like {listed(missing[1:])}" if missing[1:] else ""
        found = f"is missing{more} (the tool requires {listed(required)})"
        return self._refused(tool, Violation((missing[0],), found))

    def _refused(
        self, tool: str, violation: Violation, problems: int = 1, *, root: str = "arguments"
    ) -> InvalidArguments:
        phrase = self._phrase(root, violation, problems)
        return InvalidArguments(
            f"{self._who(tool)}: {phrase}; correct that and call again; nothing was sent",
            server=self._server,
            tool=tool,
            path=violation.path,
        )

    def _broken(self, tool: str, result: CallToolResult, problem: str, violation: Violation) -> InvalidResult:
        return InvalidResult(
            f"{self._who(tool)}: {problem}; the tool has run, and this error carries its result; use that, or set "
            "validate='required'",
            server=self._server,
            tool=tool,
            path=violation.path,
            result=result,
        )

    def _phrase(self, root: str, violation: Violation, problems: int) -> str:
        expected = f"; expected {violation.expected}" if violation.expected is not None else ""
        more = "" if problems == 1 else f" (and {problems - 1} more)"
        path = tuple(self._mask(each) if isinstance(each, str) else each for each in violation.path)
        return f"{dotted(root, path)} {violation.found}{expected}{more}"

    def _who(self, tool: str) -> str:
        return f"server {self._server!r}: tool {self._mask(tool)!r:.80}"


class _ToolCheck:
    """The schemas of one tool."""

    __slots__ = ("_tool", "input", "output", "required")

    def __init__(self, server: str, tool: ListedTool, mask: Callable[[str], str]) -> None:
        owner = f"server {server!r}: tool {mask(tool.name)!r:.80}"
        self._tool = tool
        self.required = required_of(tool.input_schema)
        self.input = Schema(tool.input_schema, f"{owner}: its input schema", mask)
        output = tool.output_schema
        self.output = None if output is None else Schema(output, f"{owner}: its output schema", mask)

    @property
    def used(self) -> bool:
        return self.input.used or (self.output is not None and self.output.used)

    def is_of(self, tool: ListedTool) -> bool:
        """Return whether a tool has the same schemas as JSON, where ``1`` is not ``true``."""
        return _text_of(self._tool) == _text_of(tool)


def _text_of(tool: ListedTool) -> str:
    return json.dumps([tool.input_schema, tool.output_schema], sort_keys=True, default=repr)


def _as_json(value: Any) -> tuple[Any, bytes]:
    """Return a value as the SDK will write it, and the text; raise if that is not possible."""
    # Write it and read it back, because each step refuses values that the other accepts. Writing refuses unpaired
    # surrogates and foreign objects; reading refuses integers of thousands of digits and values nested about 200 levels
    # deep, which the SDK's servers cannot read either. NaN is written as a constant for reading to refuse: the SDK
    # would silently send null instead. A request has two levels around its arguments.
    text = pydantic_core.to_json(value, exclude_none=True, inf_nan_mode="constants")
    return pydantic_core.from_json(b"[[%b]]" % text, allow_inf_nan=False)[0][0], text


def _unwritable(value: Any) -> Violation:
    """Find the innermost part that cannot be written, and return its path and kind."""
    path: list[str | int] = []
    around: set[int] = set()
    while id(value) not in around:
        around.add(id(value))
        step = next(((name, part) for name, part in _parts(value) if not _can_be_written(part)), None)
        if step is None or len(path) == _DEPTH:
            why = (
                " (nested too deeply, or with keys that are not strings)"
                if isinstance(value, (dict, list, tuple))
                else ""
            )
            return Violation(tuple(path), f"is {kind_of(value)}, which cannot be written as JSON{why}")
        path.append(step[0])
        value = step[1]
    return Violation(tuple(path), "contains itself, so it cannot be written as JSON")


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def _can_be_written(value: Any) -> bool:
    try:
        _as_json(value)
    except Exception:
        return False
    return True
