"""No configuration makes the loader raise what it does not promise, and none makes it show a secret."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from mcp_actors import ConfigError
from mcp_actors.config import LoadedConfig, load_config
from mcp_actors.config._template import check_variables
from mcp_actors.config.formats import _keys
from mcp_actors.config.formats._keys import SETTABLE
from mcp_actors.config.formats._programs import SECTION_WRITERS
from tests.programs import number_of

CANARY = "s3cret-canary"
"""The value of every secret, which must not be shown anywhere."""

ENVIRON = {"SECRET": CANARY, "EMPTY": "", "BREAK": f"{CANARY}\n", "REFERENCE": f"${{{CANARY}"}

references = ["${SECRET}", "${UNSET}", "${UNSET:-${SECRET}}", "${", "$${x}", "${input:key}", "${input:none}", "${/}"]
words = ["https://example.com/mcp", "http://example.com", "server.py", "stdio", "http", "ws", "é", "\ud800", "a b", "0"]
texts = st.sampled_from(["", "x", "\0", *references, *words])
secrets = st.sampled_from(
    [CANARY, f"Bearer {CANARY}", f"${{UNSET:-{CANARY}}}", f"{CANARY}${{", f"{CANARY}\n", f"é{CANARY}"]
)
places = [
    f"https://user:{CANARY}@example.com/mcp",
    f"https://example.com/sse?key={CANARY}",
    f"http://{CANARY}@a.example",
]
broken = [
    f"https://u:{CANARY}@${{UNSET}}/",
    f"https://[{CANARY}@x",
    f"https://exam ple.com?{CANARY}",
    f"//u:{CANARY}@x:y",
]
urls = st.sampled_from([*places, *broken, "${SECRET}", "https://${SECRET}@a.example", "https://[${SECRET}"])
numbers = st.sampled_from([0, 1, -1, True, False, 3.5, 1e308, float("inf"), float("nan"), 10**400])
junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | numbers | texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(texts, children, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["A", "Authorization", "x-key", "", "a b", "\0", f"A={CANARY}", f"Authorization: {CANARY}"])
credentials = junk | st.dictionaries(names, secrets | texts | numbers | st.none(), max_size=3)

VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "env": credentials,
    "headers": credentials,
    "http_headers": credentials,
    "env_http_headers": st.dictionaries(names, st.sampled_from(["SECRET", "UNSET", CANARY]), max_size=2) | junk,
    "bearer_token": secrets | junk,
    "bearer_token_env_var": st.sampled_from(["SECRET", "UNSET", CANARY, f"Bearer {CANARY}"]) | junk,
    "auth": secrets | junk,
    "url": urls | texts | junk,
    "httpUrl": urls | junk,
    "args": st.lists(texts | numbers, max_size=3) | junk | secrets,
    "command": texts | junk,
    "enabled": st.booleans() | junk,
    "required": st.booleans() | junk,
    "mcp_actors": st.dictionaries(st.sampled_from(sorted(SETTABLE)) | texts, junk, max_size=3) | junk,
}
keys = st.sampled_from(sorted(_keys.KNOWN)) | st.sampled_from(sorted(VALUES)) | texts


@st.composite
def entries(draw: st.DrawFn) -> Any:
    chosen = draw(st.lists(keys, max_size=6, unique=True))
    return {key: draw(VALUES.get(key, junk)) for key in chosen}


inputs = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["key", "other"]) | junk},
        optional={
            "type": st.sampled_from(["promptString", "pickString"]) | junk,
            "default": secrets | junk,
            "options": junk,
        },
    )
    | junk,
    max_size=2,
)
documents = st.dictionaries(
    st.sampled_from(sorted(SECTION_WRITERS)) | texts,
    st.dictionaries(st.sampled_from(["docs", "a b", ""]) | texts, entries() | junk | urls, max_size=4) | junk,
    max_size=3,
)


@st.composite
def configurations(draw: st.DrawFn) -> Any:
    document = draw(documents)
    if draw(st.booleans()):
        document["inputs"] = draw(inputs | junk)
    return document


@contextlib.contextmanager
def environment() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(ENVIRON)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def everything_shown(loaded: LoadedConfig) -> str:
    """Return all that the loader shows of a configuration, also when its servers are about to be connected to."""
    shown = [repr(loaded), repr(loaded.failed), *loaded.warnings]
    shown += ["".join(traceback.format_exception(error)) for error in loaded.errors]
    for server in loaded.servers:
        shown.append(repr(server))
        try:
            check_variables(server.transport, os.environ, where=server.name)
        except ConfigError as error:
            shown.append("".join(traceback.format_exception_only(error)))
    return "\n".join(shown)


@settings(max_examples=number_of(400))
@given(configurations(), st.sampled_from([None, CANARY, 3, "x"]))
def test_no_configuration_is_too_strange(document: Any, answer: Any) -> None:
    with environment():
        loaded = load_config(document, ask=None if answer is None else lambda _: answer)
        assert CANARY not in everything_shown(loaded)
        for error in loaded.errors:
            assert isinstance(error, ConfigError)
            assert error.source == "a mapping"
            assert str(error).startswith("a mapping: ")


@given(st.data())
@settings(max_examples=number_of(200))
def test_nor_is_any_file_that_was_cut_or_mangled(data: st.DataObject) -> None:
    text = json.dumps(
        data.draw(configurations().map(_without_big_numbers)), indent=data.draw(st.sampled_from([None, 1]))
    )
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text)))
        mangled = data.draw(
            st.sampled_from(["", "{", "}", "[", "]", ",", ":", '"', "//", "/*", "\\", "\0", "\ufeff", "é"])
        )
        text = text[:at] + mangled + text[at + data.draw(st.integers(0, 2)) :]
    suffix = data.draw(st.sampled_from([".json", ".toml", ""]))
    encoding = data.draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1"]))
    with tempfile.TemporaryDirectory() as folder, environment():
        path = Path(folder) / f"mcp{suffix}"
        path.write_bytes(text.encode(encoding, errors="replace"))
        loaded = load_config(path, ask=lambda _: CANARY)
        assert CANARY not in everything_shown(loaded)


@given(st.binary(max_size=200), st.sampled_from(["mcp.json", "mcp.toml", "mcp"]))
def test_nor_are_any_bytes(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        loaded = load_config(path)
        assert loaded.servers == ()
        assert len(loaded.errors) == 1


def _without_big_numbers(value: Any) -> Any:
    """JSON can hold larger numbers than Python writes."""
    if isinstance(value, dict):
        return {key: _without_big_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_big_numbers(each) for each in value]
    return 0 if isinstance(value, int) and value > 10**300 else value
