"""Read intervals such as ``"30s"``, ``"5m"`` and ``"1h"``."""

from __future__ import annotations

import re
from typing import Final

from ..._errors import ConfigError
from .._validators import is_positive, shown

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_INTERVAL: Final = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<unit>[smhd]?)", re.ASCII)


def seconds_of(interval: object, where: str) -> float:
    """Return an interval in seconds.

    Args:
        interval: a positive number of seconds, or a str with a unit.
        where: names the option in the error.

    Raises:
        ConfigError: it is neither.
    """
    seconds: object = interval
    if isinstance(interval, str) and (found := _INTERVAL.fullmatch(interval)):
        seconds = float(found["number"]) * _UNITS[found["unit"]]
    if isinstance(seconds, (int, float)) and is_positive(seconds):
        return float(seconds)
    problem = f'{shown(interval)} is not an interval; write a number of seconds, or "30s", "5m", "1h"'
    raise ConfigError(f"{where}: {problem}", source=where)
