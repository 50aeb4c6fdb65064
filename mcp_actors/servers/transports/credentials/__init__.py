"""Resolve, renew and mask the credentials of one connection.

For all transports. It uses `basics`, and nothing else of `transports`.
"""

from __future__ import annotations

from ._discretion import discreet as discreet, install_filters as install_filters
from ._masker import Masked as Masked, Masker as Masker
from ._renewal import (
    Credentials as Credentials,
    Renewal as Renewal,
    named_credentials as named_credentials,
    resolve_credentials as resolve_credentials,
)
