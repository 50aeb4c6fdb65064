"""A hundred processes share the tokens of one person for many expiries."""

from __future__ import annotations

from pathlib import Path

from ..auth.authority import run_authority
from ..auth.test_processes import share_a_token


async def test_a_hundred_processes_refresh_a_token_fifty_times(npm_packages: None, tmp_path: Path) -> None:
    with run_authority() as authority:
        await share_a_token(authority, tmp_path, processes=100, expiries=50)
