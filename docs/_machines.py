"""Write the documentation for programs that read it: ``llms.txt``, each page as Markdown, and one page of signatures.

``llms.txt`` has the guides by task, as `docs/howto/index.md` has them, with links to the Markdown of each page.
``llms-full.txt`` has all pages. The page of signatures is made of the package, so it is current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import attrs

import mcp_actors

DOCS: Final = Path(__file__).parent
FOLDERS: Final = (
    "",
    ".bridge",
    ".sync",
    ".adapters",
    ".kernel",
    ".config",
    ".auth",
    ".catalog",
    ".servers",
    ".observe",
)
FOLDERS_FOR_FEW: Final = (".testing", ".gateway", ".hosts")
SUMMARY: Final = f"""# mcp_actors {mcp_actors.__version__}

> {(mcp_actors.__doc__ or "").partition(chr(10))[0]} On Trio `from mcp_actors import open_servers`, on asyncio
> `from mcp_actors.bridge import open_servers`, without an event loop `from mcp_actors.sync import open_servers`.
"""
LINK: Final = re.compile(r"\[([^]\n]*)\]\((?!https?:)([\w./-]+?)\.md(#[\w-]*)?\)")


def signatures() -> str:
    """Return the page of signatures, in Markdown."""
    parts = ["# Signatures", "Read this page to see every public name with its signature, on one page."]
    for folder in (*FOLDERS, *FOLDERS_FOR_FEW):
        module = import_module(f"mcp_actors{folder}")
        lines = [line for name in module.__all__ for line in _signature(module, name)]
        parts += [f"## {module.__name__}", "```text\n" + "\n".join(lines) + "\n```"]
    return "\n\n".join(parts) + "\n"


def _signature(module: Any, name: str) -> Iterator[str]:
    try:
        thing = getattr(module, name)
    except ImportError:  # of a framework
        yield name
        return
    if not isinstance(thing, type):
        yield _line(name, thing) if inspect.isfunction(thing) else name
        return
    yield _line(name, thing)
    for each, member in inspect.getmembers(thing):
        if each.startswith("_") or issubclass(thing, BaseException):
            continue
        if inspect.isfunction(member) and member.__module__.startswith("mcp_actors"):
            yield "    " + _line(each, member)
        elif isinstance(member, property):
            yield f"    {each}: {inspect.signature(member.fget).return_annotation}" if member.fget else f"    {each}"


class _Source(str):
    """A text that a signature shows as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _line(name: str, thing: Any) -> str:
    inner = inspect.unwrap(thing)
    kind = "class" if isinstance(thing, type) else "async def" if inspect.iscoroutinefunction(inner) else "def"
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"{kind} {name}(…)"
    parameters = [
        each.replace(
            annotation=_written(each.annotation),
            default=_Source("...") if each.default is attrs.NOTHING else each.default,
        )
        for each in signature.parameters.values()
    ]
    shown = str(signature.replace(parameters=parameters, return_annotation=_written(signature.return_annotation)))
    if inner is not thing:  # a generator function that opens a block
        shown = re.sub(r"-> (Async)?Iterator\[", r"-> Abstract\1ContextManager[", shown)
    return f"{kind} {name}{re.sub(r' at 0x[0-9a-f]+', '', shown)}"


def _written(annotation: Any) -> Any:
    annotation = getattr(annotation, "__forward_arg__", annotation)
    return _Source(annotation) if isinstance(annotation, str) else annotation


def write_signatures(app: Any) -> None:
    """Write the page of signatures (a handler of Sphinx' ``builder-inited``)."""
    page = DOCS / "examples" / "reference" / "signatures.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(signatures())


def keep(app: Any, name: str, source: list[str]) -> None:
    """Keep the Markdown of a page, as the other handlers have filled it (a handler of ``source-read``)."""
    if not hasattr(app.env, "markdown"):
        app.env.markdown = {}
    app.env.markdown[name] = source[0]


def write(app: Any, exception: Exception | None) -> None:
    """Write the Markdown of all pages, and the two files for models (a handler of ``build-finished``)."""
    if exception is None and app.builder.format == "html":
        for path, text in files(getattr(app.env, "markdown", {})).items():
            target = Path(app.outdir) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)


def files(pages: dict[str, str]) -> dict[str, str]:
    """Return the files: path → text."""
    tasks = re.sub(r"```\{toctree\}.*?```\n*", "", pages["howto/index"].partition("\n")[2], flags=re.DOTALL)
    tasks = re.sub(r"\[\]\(([\w./-]+)\.md(#[\w-]*)?\)", lambda m: f"[{m[1]}]({m[1]}.md{m[2] or ''})", tasks)
    tasks = LINK.sub(lambda m: f"[{m[1]}]({_from_root('howto', m[2])}.md{m[3] or ''})", tasks)
    others = [name for name in sorted(pages) if not name.startswith(("howto/", "examples/pages/", "design/decisions/"))]
    rest = "\n".join(f"- [{_title(pages[name])}]({name}.md)" for name in others)
    found = {f"{name}.md": text for name, text in pages.items()}
    order = [*sorted(pages, key=lambda name: (not name.startswith("tutorial"), not name.startswith("howto/"), name))]
    found["llms.txt"] = f"{SUMMARY}\n{tasks.strip()}\n\n## Other pages\n\n{rest}\n"
    found["llms-full.txt"] = "\n\n".join([SUMMARY, *(pages[name] for name in order if "decisions/" not in name)])
    return found


def _from_root(folder: str, link: str) -> str:
    return link.removeprefix("../") if link.startswith("../") else f"{folder}/{link}"


def _title(text: str) -> str:
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else "page"
