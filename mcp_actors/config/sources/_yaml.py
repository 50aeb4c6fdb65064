"""Read YAML, strictly: the few things of it that a configuration needs.

YAML guesses types: ``no`` is false, ``1.10`` is 1.1, and ``12:30:00`` is 45000. Here a plain scalar is a string, except
where a value of another type is meant (`typed_keys`): there, ``true``, ``false``, ``null`` and numbers as JSON has them
are values of these types, and everything else is a string all the same.

Refused, each with its line: doubled keys, of which only the last would count; aliases, by which a short file becomes
gigabytes; tags, which call constructors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from ..._errors import ConfigError
from ..formats import bad

MAX_NODES: Final = 20_000
MAX_DEPTH: Final = 64

_OF_JSON: Final = re.compile(r"true|false|null|-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?")
_SHOWN: Final = 80  # characters of the parser's message


@attrs.frozen
class Document:
    """One document of a file: its data, and the line on which it begins."""

    data: Any
    line: int


def read_documents(source: str, text: str, typed_keys: frozenset[str]) -> list[Document]:
    """Return the documents of a file.

    Args:
        source: the file, for messages.
        text: its content.
        typed_keys: the keys below which values may be numbers, booleans or null.

    Raises:
        ConfigError: this is not valid YAML, or it is refused; the message has the line. Or PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise bad(source, "", "PyYAML is not installed; run: pip install 'mcp-actors[yaml]'") from None
    try:
        return list(_Reader(source, yaml.parse(text, Loader=yaml.SafeLoader), typed_keys).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}" if mark is not None else ""
        said = str(error.problem or error.context)[:_SHOWN]
        raise bad(f"{source}{where}", "", f"this is not valid YAML: {said}") from None
    except yaml.YAMLError:
        raise bad(source, "", "this is not valid YAML: it has a character that YAML does not allow") from None


@attrs.define
class _Reader:
    """Builds data from the events of a parser."""

    source: str
    events: Iterator[Any]
    typed_keys: frozenset[str]
    nodes: int = 0

    def documents(self) -> Iterator[Document]:
        """Yield the documents that are not empty."""
        import yaml

        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                first = next(self.events)
                data = self._node(first, typed=False, depth=0)
                if data is not None:
                    yield Document(data, first.start_mark.line + 1)

    def _node(self, event: Any, *, typed: bool, depth: int) -> Any:
        """Return the data of the node that begins with an event, and take the events of it."""
        import yaml

        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            problem = "has too many values" if self.nodes > MAX_NODES else "is nested too deeply"
            raise self._bad(event, f"the file {problem}; check that it is the right one")
        if isinstance(event, yaml.AliasEvent):
            raise self._bad(event, "this is an alias (*…), which is not supported; write the value again")
        if event.tag is not None and event.tag != "!":
            raise self._bad(event, "this is a tag (!…), which is not supported; remove it")
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event, typed=typed)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._node(each, typed=typed, depth=depth + 1) for each in self._until(yaml.SequenceEndEvent)]
        made: dict[str, Any] = {}
        for key in self._until(yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise self._bad(key, "this key is not a string; write a string")
            name = self._node(key, typed=False, depth=depth + 1)
            if name is None:
                raise self._bad(key, "this key is empty; write a string")
            if name in made:
                raise self._bad(key, f"the key {json.dumps(name)} appears more than once; remove all but one")
            below = typed or name in self.typed_keys
            made[name] = self._node(next(self.events), typed=below, depth=depth + 1)
        return made

    def _until(self, end: type) -> Iterator[Any]:
        for event in self.events:
            if isinstance(event, end):
                return
            yield event

    def _bad(self, event: Any, problem: str) -> ConfigError:
        return bad(f"{self.source}:{event.start_mark.line + 1}", "", problem)


def _scalar(event: Any, *, typed: bool) -> Any:
    """Return a scalar: text in quotes is text, a plain one that is empty is None."""
    plain, text = event.implicit[0], event.value
    if plain and text == "":
        return None
    return json.loads(text) if plain and typed and _OF_JSON.fullmatch(text) else text
