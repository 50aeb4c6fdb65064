"""Render each example as a page: what it shows, its code, and its output.

The pages are written to ``docs/examples/`` before a build. Links to the files themselves, which also work in the
repository, lead to these pages.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parent
EXAMPLES: Final = DOCS.parent / "examples"
PAGES: Final = DOCS / "examples"

INDEX: Final = """# Examples

Read these programs to see a whole one. Each is run by a test, and prints the output that its page shows.

| program | |
|---|---|
{rows}

```{{toctree}}
:hidden:
:glob:

*
pages/index
```
"""

PARTS: Final = """# Programs and servers of other pages

Read these programs to run the code of a guide or of the tutorial, which shows the part that matters.

```{toctree}
:glob:

*
../patterns/*
../places/*
../servers/*
```
"""


def write(app: Any) -> None:
    """Write a page for each example (a handler of Sphinx' ``builder-inited``)."""
    rows = []
    for source in sorted(EXAMPLES.rglob("*.py")):
        name = source.relative_to(EXAMPLES)
        title, text = page(source)
        _write(PAGES / name.with_suffix(".md"), text)
        if len(name.parts) == 1 and not name.name.startswith("_"):
            rows.append(f"| [{name}]({name.stem}.md) | {title} |")
    configuration = (EXAMPLES / "mcp.json").read_text()
    _write(PAGES / "mcp.md", f"# mcp.json\n\nThe file that from_a_file.py opens.\n\n```json\n{configuration}```\n")
    _write(PAGES / "pages" / "index.md", PARTS)
    _write(PAGES / "index.md", INDEX.format(rows="\n".join(rows)))


def page(source: Path) -> tuple[str, str]:
    """Return the first line of an example's docstring, and its page."""
    text = source.read_text()
    tree = ast.parse(text)
    docstring = tree.body[0]
    assert isinstance(docstring, ast.Expr)
    prose, _, output = (ast.get_docstring(tree) or "").partition("\n\nPrints::\n")
    prose, _, log = prose.partition("\n\nLogs::\n")
    code = "\n".join(text.splitlines()[docstring.end_lineno :]).strip()
    parts = [f"# {source.name}", prose, f"```python\n{code}\n```"]
    if log:
        parts += ["It logs, on standard error:", f"```text\n{inspect.cleandoc(log)}\n```"]
    if output:
        parts += ["It prints:", f"```text\n{inspect.cleandoc(output)}\n```"]
    return prose.partition("\n")[0], "\n\n".join(parts) + "\n"


def link(app: Any, name: str, source: list[str]) -> None:
    """Let links to an example lead to its page (a handler of Sphinx' ``source-read``)."""
    source[0] = re.sub(r"\]\(((?:\.\./)*)\.\./examples/([\w/]+)\.(?:py|json)\)", r"](\1examples/\2.md)", source[0])


def _write(path: Path, text: str) -> None:
    """Write a file unless it has that text already, so that Sphinx reads only what has changed."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
