"""One authorization server for all tests here; each test has counts of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .authority import Authority, run_authority


@pytest.fixture(scope="package")
def authority_process(npm_packages: None) -> Iterator[Authority]:
    """The process with the two servers."""
    with run_authority() as authority:
        yield authority


@pytest.fixture
def authority(authority_process: Authority) -> Authority:
    """An authorization server with an MCP server, as new."""
    authority_process.set(reset=True)
    return authority_process
