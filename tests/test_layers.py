"""Imports go downward only, from layer to layer and from file to file, and only to what is declared.

Every import counts, also those inside functions, under ``TYPE_CHECKING`` and in ``import_module("…")``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from .source import PACKAGE, parse, project, python_files

LAYERS: Final = {
    "_backoff": 0,
    "_collapse": 0,
    "_errors": 0,
    "_exports": 0,
    "_foreign": 0,
    "_misuse": 0,
    "_patched": 0,
    "_pickling": 0,
    "_python": 0,
    "_sdk": 0,
    "_tasks": 0,
    "_json": 0,
    "_text": 0,
    "_user_files": 0,
    "kernel": 1,
    "auth": 1,
    "catalog": 1,
    "config": 1,
    "transports": 2,
    "servers": 3,
    "bridge": 4,
    "gateway": 4,
    "observe": 4,
    "adapters": 4,
    "sync": 4,
    "testing": 4,
    "cli": 5,
    "hosts": 5,
    "__main__": 5,
    "_pytest_plugin": 5,
}
"""The folders and top-level modules of the package, and the layer each is in. The diagram is in ``__init__.py``."""

SIDEWAYS: Final = {
    ("adapters", "bridge"),
    ("auth", "config"),
    ("gateway", "observe"),
    ("sync", "bridge"),
    ("__main__", "cli"),
}
"""Which folder may import which in its own layer. The single files of layer 0 may import each other."""

FACADE: Final = {"_backoff", "_errors", "_exports", "_patched", "catalog", "config", "kernel", "servers"}
"""What the façade may name."""

KERNEL_NEEDS: Final = {"attr", "attrs", "outcome", "sniffio", "trio"}
"""What the kernel may import besides the standard library and layer 0."""

FOR_TYPE_CHECKERS: Final = "typing_extensions"
"""Known to every type checker, so modules may import it for them only, and nothing has to be installed."""

NEED_EXTRAS: Final = {"auth._stores", "config._sources", "config._tables"}
"""The modules outside the folders of extras that need one, and import it in functions."""

ONLY_IN_BRIDGE: Final = {"asyncio", "trio_asyncio"}
"""Imported in functions of the bridge and nowhere else: importing `trio_asyncio` changes asyncio for the process.

For type checkers only, the bridge may import them anywhere.
"""


OFFERS: Final = {
    "bridge": "_block _bridge _callbacks _open _views",
    "catalog": "_names _pins _schemas _tools",
    "config": "_hooks _oauth _policies _sources _template _tools _transports _values formats._dump formats._entry "
    "formats._file formats._load formats._programs",
    "gateway": "_control _daemon _front _listen _network _own _serve _session",
    "servers": "_admission _failures _session _sources",
}
"""The private files of a folder that other folders use, for things that are of no use to programs."""


ORDER: Final = {
    "adapters": "_offer _agent_framework _langchain _langchain_middleware _openai_agents _pydantic_ai",
    "auth": "_exchange _stores _flow _receiver _tokens _sign_in",
    "bridge": "_bridge _signals _block _callbacks _views _generated_ref _generated_group _open",
    "catalog": "_names _tools _schemas _validation _pins _snapshot",
    "cli": "_interrupt _output _completion _configuration _connect _call _read _sign_in _check _pins _config "
    "_gateway _control _http _attach_hosts _app _run _start",
    "config": "_validators _values _policies _hooks _tools _oauth _transports _template _server formats "
    "_sources _tables",
    "config.formats": "_file _inputs _programs _keys _entry _load _dump",
    "gateway": "_daemon _relay attach _listen _network _budget _output _front _control _calls _news _own _session "
    "_serve http",
    "gateway.http": "_wire _access _streamable _door _page",
    "hosts": "ray",
    "kernel": "_circles _events _envelope _mailbox _record _ref _later _timers _handlers _actor _serving _requests "
    "_incarnation _restart _table _children _supervisor _pool _open",
    "observe": "_metrics _health",
    "servers": "_eras _dialects _rules _attempts _deadlines _admission _catalog _dispatcher _session record requests "
    "_failures connection ref _sources _watch group",
    "servers.connection": "_callbacks _upkeep _streams _direct _negotiation _actor",
    "servers.group": "_memory _tree _loop _lifecycle _facts _group _open",
    "servers.record": "_states _status _health _subscriptions _wanted _life _record",
    "servers.ref": "_operations _facts _caller _prompts _ref",
    "servers.requests": "_request _lists _upkeep _tools",
    "sync": "_wait _generated_ref _generated_group _servers",
    "testing": "_leftovers _signal _recorder _relay _behavior _connections _server",
    "transports": "_credentials _logs _request_table _exchange _messages _dialects _link _in_process stdio socket http "
    "_open",
    "transports.http": "_failures _bodies _proxies _http11 _transport _client _link _session _sse _streamable",
    "transports.socket": "_handshake _link",
    "transports.stdio": "_landlock _pipes _command _process _link",
}
"""The files and folders of each folder, from the lowest to the highest: none imports a later one."""

APART: Final = {
    ("transports.http", "transports.stdio"),
    ("transports.http", "transports.socket"),
    ("servers._rules", "servers._eras"),
    ("servers._sources", "servers.record"),
    ("servers._sources", "servers.connection"),
    ("servers.connection", "servers._deadlines"),
    ("servers.group", "servers.requests"),
}
"""Which of them, besides, does not know which below it."""

DEEPEST: Final = 2
"""How deep folders are below the package at most."""


class Import(NamedTuple):
    """One imported module, as seen from the module that imports it."""

    importer: str
    """Dotted, relative to the package: ``"kernel._ref"``; the façade is ``""``."""
    line: int
    target: str
    """Dotted and absolute: ``"mcp_actors.kernel._ref"``, ``"trio"``."""
    in_function: bool
    for_types: bool = False
    """Under ``if TYPE_CHECKING``."""

    @property
    def place(self) -> str:
        return self.importer.partition(".")[0]

    @property
    def goes_to(self) -> str | None:
        """The folder or top-level module of the package that is imported; None if it is foreign; ``""``: the façade."""
        package, _, rest = self.target.partition(".")
        return rest.partition(".")[0] if package == PACKAGE.name else None

    def __str__(self) -> str:
        return f"{self.importer or 'the façade'}, line {self.line}, imports {self.target}"


def imports(package: Path) -> list[Import]:
    """List every import in a package."""
    return [found for path in python_files(package) for found in imports_of(path, package)]


@cache  # for the tests of this file; none changes a file
def imports_of(path: Path, package: Path) -> list[Import]:
    parts = path.relative_to(package).with_suffix("").parts
    is_folder = parts[-1] == "__init__"
    importer = parts[:-1] if is_folder else parts
    home = (package.name, *importer) if is_folder else (package.name, *importer[:-1])
    return [
        Import(".".join(importer), getattr(node, "lineno", 0), target, in_function=in_function, for_types=for_types)
        for node, in_function, for_types in _placed(parse(path), "import_" in path.read_text())
        for target in _targets(node, home)
    ]


def _placed(tree: ast.AST, expressions: bool) -> Iterator[tuple[ast.AST, bool, bool]]:
    """Yield the statements of a tree, and the `expressions`, and if they are in a function and for type checkers."""
    left = [(tree, False, False)]
    while left:
        node, in_function, for_types = left.pop()
        yield node, in_function, for_types
        in_function, for_types = in_function or _is_function(node), for_types or _is_for_types(node)
        children = ast.iter_child_nodes(node)
        left += [(each, in_function, for_types) for each in children if expressions or not isinstance(each, ast.expr)]


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _targets(node: ast.AST, home: tuple[str, ...]) -> Iterator[str]:
    """Yield what a statement imports. ``from a import b`` yields ``a.b``, because `b` may be a module."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            base = home[: len(home) - level + 1] if level else ()
            prefix = ".".join((*base, *([module] if module else [])))
            yield from (f"{prefix}.{alias.name}" for alias in names)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(target)), *_]):
            if name in ("import_module", "__import__"):
                yield target


def layer_problem(found: Import) -> str | None:
    """Say what is wrong with an import within the package, if anything is."""
    to = found.goes_to
    if to is None or to == found.place:
        return None
    if found.place == "":
        return None if to in FACADE else f"{found}, which is not for the façade"
    if to not in LAYERS:
        return f"{found}: import from the folder that defines it, not from the façade"
    if LAYERS[to] == 0 or LAYERS[to] < LAYERS[found.place] or (found.place, to) in SIDEWAYS:
        return None
    return f"{found}, which is not below it"


def wall_problem(found: Import) -> str | None:
    """Say what is wrong with an import across the wall of a folder or a file, if anything is."""
    if (owner := owner_of(found)) and not _is_in(found.importer, owner):
        return f"{found}: import what the room offers"
    _, _, target = found.target.partition(".")
    if any(_is_in(found.importer, one) and _is_in(target, other) for one, other in APART):
        return f"{found}, which it does without"
    for folder, order in ORDER.items():
        below = order.split()
        one, other = (_entry(name, folder) for name in (found.importer, target))
        if one in below and other in below and one != other and below.index(other) > below.index(one):
            return f"{found}, which is above it"
    return None


def _entry(name: str, folder: str) -> str:
    """Return which file or folder of a folder a module is, or is in."""
    return name.removeprefix(f"{folder}.").partition(".")[0] if _is_in(name, folder) else ""


def owner_of(found: Import) -> str | None:
    """Return the folder whose private file is imported; None for a public one, or a file of layer 0."""
    target = found.target.partition(".")[2]
    owner = re.match(r"((?!_)\w+(?:\.(?!_)\w+)*)\._", target)
    if found.goes_to is None or owner is None or any(_is_in(target, each) for each in _offered()):
        return None
    return owner[1]


@cache
def _offered() -> frozenset[str]:
    return frozenset(f"{folder}.{name}" for folder, names in OFFERS.items() for name in names.split())


def _is_in(name: str, module: str) -> bool:
    return f"{name}.".startswith(f"{module}.")


@cache
def installed() -> Mapping[str, list[str]]:
    """Which distributions provide an importable name; looked up once, since that reads the whole environment."""
    return packages_distributions()


def foreign_problem(found: Import, declared: set[str], optional: set[str]) -> str | None:
    """Say what is wrong with an import from outside the package, if anything is."""
    name = found.target.partition(".")[0]
    if found.goes_to is not None or name == "__future__":
        return None
    if name in ONLY_IN_BRIDGE and not (found.place == "bridge" and (found.in_function or found.for_types)):
        return f"{found}: that belongs into a function of the bridge"
    if name in sys.stdlib_module_names or (found.for_types and name == FOR_TYPE_CHECKERS):
        return None
    if found.place == "kernel" and name not in KERNEL_NEEDS:
        return f"{found}: the kernel does without"
    if found.place == "_errors" and name != "trio" and not found.for_types:
        return f"{found}: errors need the standard library and trio only"
    extra = found.place in ("adapters", "cli", "hosts", "_pytest_plugin") or found.importer in NEED_EXTRAS
    allowed = declared | optional if extra else declared
    distributions = {_normal(name) for name in installed().get(name, [name])}
    return None if distributions & allowed else f"{found}: declare its distribution in pyproject.toml"


def is_private_to_sdk(found: Import) -> bool:
    """Return True for a private module or name of the SDK, which any release may change."""
    return found.target.startswith("mcp.") and "._" in found.target


def declared_distributions() -> tuple[set[str], set[str]]:
    """Return what the package depends on, always and by an extra."""
    table = project()
    extras = [requirement for extra in table["optional-dependencies"].values() for requirement in extra]
    return {_distribution(line) for line in table["dependencies"]}, {_distribution(line) for line in extras}


def _distribution(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return _normal(found[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_imports_go_downward_only() -> None:
    assert [problem for found in imports(PACKAGE) if (problem := layer_problem(found))] == []


def test_no_file_knows_one_above_it() -> None:
    assert [problem for found in imports(PACKAGE) if (problem := wall_problem(found))] == []


def test_every_file_and_folder_has_its_place_in_its_folder() -> None:
    faces = [face.parent for name in ORDER if "." not in name for face in (PACKAGE / name).rglob("__init__.py")]
    inside = {
        name_of(folder / "__init__.py"): {
            path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
        }
        - {"__init__"}
        for folder in faces
    }
    assert inside == {folder: {*order.split()} for folder, order in ORDER.items()}


def test_no_folder_is_deep() -> None:
    assert {folder for folder in ORDER if folder.count(".") >= DEEPEST} == set()


def test_no_private_name_of_the_sdk_is_imported() -> None:
    assert [found for found in imports(PACKAGE) if is_private_to_sdk(found)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import mcp.client._probe",
        "from mcp.shared import _stream",
        "if TYPE_CHECKING:\n    from mcp.client._probe import a",
    ],
)
def test_a_private_name_of_the_sdk_would_be_noticed(line: str, tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(line)
    assert [is_private_to_sdk(found) for found in imports(tmp_path)] == [True]


def test_foreign_imports_are_declared_and_where_they_belong() -> None:
    declared, optional = declared_distributions()
    assert [problem for found in imports(PACKAGE) if (problem := foreign_problem(found, declared, optional))] == []


def circles() -> list[list[str]]:
    """List the groups of modules that import each other in a circle, for type checkers or at run time."""
    modules = {name_of(path) for path in python_files(PACKAGE)} - {""}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for found in imports(PACKAGE):
        target = found.target.removeprefix(f"{PACKAGE.name}.")
        target = target if target in modules else target.rpartition(".")[0]
        if found.importer in modules and target in modules and target != found.importer:
            graph[found.importer].add(target)
    return strongly_connected(graph)


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def strongly_connected(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """List the sets of nodes that can reach each other, of two nodes or more."""
    reach = {node: reachable(graph, node) for node in graph}
    groups = {tuple(sorted({node, *(to for to in reach[node] if node in reach[to])})) for node in graph}
    return sorted([*group] for group in groups if len(group) > 1)


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        for to in graph[todo.pop()] - found:
            found.add(to)
            todo.append(to)
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even for type checkers."""
    assert circles() == []


def test_a_circle_is_found() -> None:
    assert strongly_connected({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_every_folder_and_top_level_module_has_a_layer_and_there_are_no_others() -> None:
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found - {"__init__"} == LAYERS.keys()


def test_the_diagram_in_the_facade_shows_every_layer() -> None:
    diagram: dict[str, int] = {}
    for line in (PACKAGE / "__init__.py").read_text().splitlines():
        if found := re.match(r"#\s+L(\d)\s+((?:\w+\s+)+)", line):
            diagram.update({name: int(found[1]) for name in found[2].split() if name in LAYERS})
    assert diagram == LAYERS


@pytest.mark.parametrize(
    ("path", "code", "complaint"),
    [
        ("kernel/_a.py", "from mcp_actors.servers import x", "which is not below it"),
        ("kernel/_a.py", "from ..config._b import x", "which is not below it"),
        ("kernel/_a.py", "from .. import config", "which is not below it"),
        ("kernel/__init__.py", "from ..catalog import x", "which is not below it"),
        ("kernel/_a.py", "def f():\n    import mcp_actors.cli", "which is not below it"),
        ("kernel/_a.py", "import importlib\nimportlib.import_module('mcp_actors.servers')", "which is not below it"),
        ("bridge/_a.py", "from mcp_actors import adapters", "which is not below it"),
        ("servers/_a.py", "from mcp_actors import Stdio", "not from the façade"),
        ("__init__.py", "from mcp_actors.bridge import x", "not for the façade"),
        ("kernel/_a.py", "import mcp.types", "the kernel does without"),
        ("_errors.py", "import attrs", "standard library and trio only"),
        ("servers/_a.py", "import requests", "declare its distribution"),
        ("servers/_a.py", "import pytest", "declare its distribution"),
        ("servers/_a.py", "def f():\n    import asyncio", "a function of the bridge"),
        ("servers/_a.py", "from ..transports._b import x", "what the room offers"),
        ("servers/record/_a.py", "from ..requests import x", "above it"),
        ("servers/record/_life.py", "if TYPE_CHECKING:\n    from ._record import x", "above it"),
        ("servers/_rules.py", "from .record import x", "above it"),
        ("transports/stdio/_a.py", "from ..http import x", "above it"),
        ("transports/http/_a.py", "from ..stdio import x", "does without"),
        ("servers/ref/_a.py", "from ..record._b import x", "what the room offers"),
        ("transports/_a.py", "from ..servers import x", "which is not below it"),
        ("config/_a.py", "from .formats._b import x", "what the room offers"),
        ("servers/_a.py", "from ..config._b import x", "what the room offers"),
        ("bridge/_a.py", "import trio_asyncio", "a function of the bridge"),
        ("servers/_a.py", "if TYPE_CHECKING:\n    import asyncio", "a function of the bridge"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, path: str, code: str, complaint: str) -> None:
    [problem] = problems_of(tmp_path, path, code)
    assert complaint in problem


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("kernel/_a.py", "import trio, attrs, outcome, math\nfrom ._b import x\nfrom .._errors import y"),
        ("kernel/__init__.py", "from ._a import x\nfrom .._exports import publish\nfrom .. import _errors"),
        ("servers/_a.py", "import mcp.types\nfrom ..kernel import x\nfrom mcp_actors.config import y"),
        ("adapters/_a.py", "from ..bridge import x"),
        ("bridge/_a.py", "def f():\n    import asyncio\n    import trio_asyncio"),
        ("bridge/_a.py", "if TYPE_CHECKING:\n    import asyncio"),
        ("servers/_a.py", "from ..transports import open_link"),
        ("servers/_a.py", "from ..config._values import mask_url"),
        ("servers/__init__.py", "from .group import open_servers"),
        ("servers/group/_a.py", "from ..ref import x"),
        ("transports/_a.py", "from .._tasks import x\nfrom ._b import y\nfrom ..config import z"),
        ("__init__.py", "from mcp_actors.servers import x as x"),
    ],
)
def test_an_allowed_import_is_not_complained_about(tmp_path: Path, path: str, code: str) -> None:
    assert problems_of(tmp_path, path, code) == []


def problems_of(folder: Path, path: str, code: str) -> list[str]:
    """Check a package that consists of one file."""
    file = folder / PACKAGE.name / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    declared, optional = declared_distributions()
    found = imports(folder / PACKAGE.name)
    problems = [layer_problem(one) or wall_problem(one) or foreign_problem(one, declared, optional) for one in found]
    return [problem for problem in problems if problem is not None]
