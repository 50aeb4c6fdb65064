"""Turn one entry of a configuration file into a `ServerConfig`.

Imported by ``_load`` only. This room uses the places and inputs of the folder around it, and the configuration classes
that it makes.
"""

from __future__ import annotations

from ._entry import is_enabled as is_enabled, read_entry as read_entry
from ._keys import SERVER as SERVER, SETTINGS as SETTINGS, TRANSPORT as TRANSPORT, WITH_EFFECT as WITH_EFFECT
from ._settings import SETTABLE as SETTABLE
from ._surroundings import Surroundings as Surroundings
from ._variables import Nameable as Nameable
