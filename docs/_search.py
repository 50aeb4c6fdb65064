"""Make the site's search find a page by the words that people type.

``search.toml`` lists the words of each page. They become main entries of the page's index, which the search ranks above
everything else. After a build each word is looked up in ``searchindex.js`` as the search does it.

``searches.toml`` lists whole searches, which ``_search.js`` ranks. After a build, the scripts of the site do them, if
Node.js is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

from sphinx.errors import ExtensionError

WORDS: Final[dict[str, list[str]]] = tomllib.loads((Path(__file__).parent / "search.toml").read_text())
"""Page → words."""

SEARCHES: Final[dict[str, list[str]]] = tomllib.loads((Path(__file__).parent / "searches.toml").read_text())
"""Page → whole searches."""

SCRIPTS: Final = ["searchtools.js", "language_data.js"]
"""The scripts in ``_static`` that a page of the site loads to search. The second one includes ``_search.js``."""

BROWSER: Final = """
const window = globalThis;
const document = { getElementById: () => null, documentElement: { dataset: {} } };
const SPHINX_HIGHLIGHT_ENABLED = false, _ready = () => {}, _ = (text) => text;
"""
ASK: Final = """
const find = (query) => Search._performSearch(...Search._parseQuery(query)).at(-1)?.[0] ?? null;
console.log(JSON.stringify(QUERIES.map(find)));
"""


def fill(app: Any, name: str, source: list[str]) -> None:
    """Add a page's words to its index (a handler of Sphinx' ``source-read``)."""
    if name in WORDS:
        entries = ", ".join(f"! {word}" for word in WORDS[name])
        source[0] = re.sub(r"\A(# .*\n)", rf"\1\n```{{index}} {entries}\n```\n", source[0])


def check(app: Any, failure: Exception | None) -> None:
    """Fail the build if a word does not find its page (a handler of Sphinx' ``build-finished``)."""
    # Sphinx keeps the main entries of changed pages only, so nothing can be said after an incremental build.
    if failure is not None or app.builder.name != "html" or not app.fresh_env_used:
        return
    text = (Path(app.outdir) / "searchindex.js").read_text()
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    wrong = [
        f"{word!r} finds {found}, not only {page!r}"
        for page, words in WORDS.items()
        for word in words
        if (found := first(index, word)) - {"glossary"} != {page} - {"glossary"}
    ]
    wrong += [
        f"{query!r} finds {found}, not {page!r}" for query, page, found in searched(Path(app.outdir)) if found != page
    ]
    if wrong:
        raise ExtensionError("search.toml: " + "; ".join(wrong))


def first(index: dict[str, Any], word: str) -> set[str]:
    """Return the pages that a search for a word shows first: those that have it as a main entry.

    The glossary may be among them, because each of its terms is one.
    """
    entries = index["indexentries"].get(word.lower(), [])
    return {index["docnames"][page] for page, _, is_main in entries if is_main}


def searched(site: Path) -> list[tuple[str, str, str | None]]:
    """Return each whole search, its page, and the page that the site shows first; nothing without Node.js."""
    if (node := shutil.which("node")) is None:
        return []
    asked = [(query, page) for page, queries in SEARCHES.items() for query in queries]
    scripts = [(site / "_static" / name).read_text() for name in SCRIPTS]
    queries = f"const QUERIES = {json.dumps([query for query, _ in asked])};"
    program = "\n".join([BROWSER, *scripts, (site / "searchindex.js").read_text(), queries, ASK])
    shown = subprocess.run([node, "-"], input=program, capture_output=True, check=True, text=True).stdout
    return [(*each, found) for each, found in zip(asked, json.loads(shown), strict=True)]
