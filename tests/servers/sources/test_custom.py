"""Sources that programs write themselves, and several of one name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcp_actors import ConfigError, LoadedConfig, open_servers
from mcp_actors.config import FileSource

from ..houses import absent
from .written import A_WHILE, Written, lazy, save


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "read() returned NoneType"),
        ("abc", "read() returned str"),
        ([1], "read() returned list of int"),
        (LoadedConfig(()), "read() returned LoadedConfig"),
    ],
)
async def test_a_source_that_returns_anything_else_is_an_error_of_its_own(
    answer: Any, problem: str, clock: MockClock
) -> None:
    """C-21: the other sources are followed all the same."""

    class Wrong(Written):
        def read(self) -> tuple[LoadedConfig, ...]:
            return super().read() if self.version == 1 else answer

    wrong, table = Wrong("wrong", (absent("w", connect="lazy"),)), Written("table")
    async with open_servers(wrong, table, watch=True) as group:
        wrong.version += 1
        table.write(absent("t", connect="lazy"))
        await trio.sleep(A_WHILE)
        assert [*group] == ["w", "t"]
        remedy = "return a tuple of LoadedConfig: (load_config(...),)"
        assert {name: str(error) for name, error in group.errors.items()} == {"wrong": f"wrong: {problem}; {remedy}"}
    with pytest.raises(ConfigError, match="a tuple of LoadedConfig"):
        async with open_servers(wrong, strict=True):
            raise AssertionError("unreachable")


@pytest.mark.parametrize("how", ["opened", "reloaded"])
async def test_two_sources_of_one_name_are_refused(how: str, clock: MockClock, file: Path) -> None:
    """Each would get the content of the other."""
    one, two = (Written("table", (absent(name, connect="lazy"),)) for name in "ab")
    save(file, lazy("f"))
    pairs: tuple[tuple[Any, Any, str], ...] = ((one, two, "table"), (file, FileSource(file), str(file)))
    for first, second, name in pairs:
        with pytest.raises(ConfigError) as caught:
            await (_open(first, second) if how == "opened" else _reload(first, second))
        remedy = "remove one of them, or give it another name"
        assert str(caught.value) == f"two sources have the name {name!r}; {remedy}"


async def _open(*sources: Any) -> None:
    async with open_servers(*sources):
        raise AssertionError("unreachable")


async def _reload(*sources: Any) -> None:
    async with open_servers(sources[0]) as group:
        await group.reload(*sources)
