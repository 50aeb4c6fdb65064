"""Configuration of the documentation. The build needs no network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mcp_actors

sys.path.insert(0, str(Path(__file__).parent))
import _examples
import _guarantees
import _inventories
import _machines
import _pictures
import _search
import _terms

project = "mcp_actors"
author = "mcp_actors contributors"
copyright = "mcp_actors contributors"
release = version = mcp_actors.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxcontrib_trio",
]
exclude_patterns = ["_build", "changes"]

html_theme = "furo"
html_title = f"mcp_actors {release}"
html_static_path = ["pictures", "_static"]
html_css_files = ["pictures.css", "pages.css"]
html_search_scorer = str(Path(__file__).parent / "_search.js")

# A button copies code, and of what is typed in a terminal the commands. Output and drawings have none.
copybutton_selector = "div:not(.highlight-text, .highlight-none, .highlight-default) > div.highlight > pre"
copybutton_prompt_text = "$ "

myst_heading_anchors = 3

highlight_language = "none"  # a block without a language is a drawing

default_role = "py:obj"
nitpicky = True
suppress_warnings = ["ref.python"]  # `Backoff` is in two modules, as the kernel is usable alone; either will do
# Names of this project, of Python, of Trio and of the SDK must resolve; prose writes them in full. Not checked are:
nitpick_ignore_regex = [
    (r"py:.*", r"trio\.TaskStatus"),  # has no entry in Trio's documentation
    (r"py:.*", r"(?!(mcp_actors|asyncio|collections|datetime|json|math|mcp|mcp_types|os|random|ssl|trio)\.).*"),
    (r"py:.*", r"mcp_actors\.(\w+\.)*_.*"),  # private names in signatures
    (r"py:.*", r"mcp_actors\.kernel\.(CallFor|CallWith|Receives)"),  # for type checkers only
]

intersphinx_mapping = _inventories.mapping()
intersphinx_cache_limit = 0

python_use_unqualified_type_names = True
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
# Adapters are described without their frameworks.
autodoc_mock_imports = ["agent_framework", "agents", "langchain", "langchain_core", "pydantic_ai", "ray"]
autodoc_default_options = {"members": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False


def keep_colons(app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from reading the first line of a property, "The servers: …", as its type (a handler of Sphinx)."""
    if what in ("attribute", "property"):
        lines.insert(0, "")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", keep_colons, priority=400)  # napoleon's has 500
    app.connect("builder-inited", _examples.write)
    app.connect("builder-inited", _machines.write_signatures)
    app.connect("source-read", _examples.link)
    app.connect("source-read", _guarantees.fill)
    app.connect("source-read", _pictures.fill)
    app.connect("source-read", _machines.keep)
    app.connect("source-read", _terms.fill)
    app.connect("source-read", _search.fill)
    app.connect("build-finished", _machines.write)
    app.connect("build-finished", _search.check)
