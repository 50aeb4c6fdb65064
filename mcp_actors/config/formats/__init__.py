"""Readers for the configuration files that people have."""

from __future__ import annotations

from ._inputs import Ask as Ask, Input as Input
from ._load import LoadedConfig as LoadedConfig, load_config as load_config

__all__ = ["Ask", "Input", "LoadedConfig", "load_config"]
