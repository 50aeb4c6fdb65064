"""Streamlit: all sessions and reruns share servers that a cached resource has opened.

Run it with ``streamlit run streamlit_app.py``.
"""

from __future__ import annotations

from contextlib import ExitStack

import streamlit as st

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.sync import SyncServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


@st.cache_resource
def servers() -> SyncServerGroup:
    """Open servers once in this process: Streamlit runs the script again for each change of a widget."""
    return ExitStack().enter_context(open_servers(TIME, drain_timeout=5))


zone = st.text_input("Time zone", "Europe/Paris")
try:
    st.json(servers()["time"].call("get_current_time", timezone=zone))
except ServerError as error:
    st.error(str(error))
