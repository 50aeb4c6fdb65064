"""Every block of code on a page is run: in the README, in the documentation, and in the docstrings that it shows.

Pages hold their code themselves, so that they can be read anywhere. A block of Python, and the text that it prints, is
part of an example, word for word, which ``test_examples.py`` runs. Configurations are loaded, and commands for a
terminal are run here.
"""

from __future__ import annotations

import ast
import re
import shlex
import stat
import textwrap
from collections.abc import Callable, Iterator
from functools import cache, partial
from inspect import signature
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from mcp_actors import (
    ConnectFailed,
    HealthPolicy,
    Http,
    RestartPolicy,
    RetryPolicy,
    ServerConfig,
    Stdio,
    ToolFilter,
    load_config,
    open_servers,
)
from mcp_actors.auth import OAuth

from .cli.terminal import accept_found
from .forkserver import interpreter, start_python
from .source import EXAMPLES, FENCE, PACKAGE, PAGES, ROOT, Block, blocks, parse, project, python_files
from .test_examples import PLACES, SCRIPTS, TIMEOUT, agrees, examples, missing, readers_environment

BLOCKS: Final = blocks(*PAGES)
RUN: Final = {"python", "text", "json", "toml", "console", "bash", "yaml", "ini", "dockerfile"}
"""The languages of the blocks that the tests below run, or whose programs they find. The last three are files for the
gateway over HTTP, which ``gateway/http/test_page.py`` reads."""

NO_CODE: Final = {"": "─", "{toctree}": ":maxdepth:", "{eval-rst}": ".. ", "{glossary}": "\n  "}
"""The other kinds of blocks, drawings and three directives of Sphinx, and what shows that one is of its kind."""

PROGRAMS: Final = [(EXAMPLES / path).read_text() for path in [*examples(), *PLACES]]
Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

DEFINITIONS: Final = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

INSTALL: Final = re.compile(
    r"(?:\.venv/bin/python -m )?pip install (?:--quiet )?(?:--no-compile )?(?:--editable )?'[\w.-]+\[([\w-]+)\]'"
)
NEEDED: Final = {
    *("annotations", "trio"),
    *("ServerConfig", "Stdio", "open_servers"),
    *("ChildSpec", "open_actor", "open_supervisor"),
}
"""The names that a page may import without showing their use, because every reader's own program uses them."""

TYPED: Final = {
    "python3 -m venv .venv": "whoever runs these tests",
    ".venv/bin/python -m pytest --slice": "whoever runs these tests",
    ".venv/bin/python examples/main_job.py": "test_main_job.py",
}
"""Commands that show nothing on their page, and by whom they are run."""


def marked(*languages: str) -> list[pytest.ParameterSet]:
    """Return the blocks of all pages in some languages."""
    return [pytest.param(block, id=str(block)) for block in BLOCKS if block.language in languages]


def above(block: Block, language: str) -> Block:
    """Return the last block in a language before another one, on the same page."""
    return [each for each in blocks(block.page) if each.language == language and each.line < block.line][-1]


def is_part_of(text: str, source: str) -> bool:
    """Return True if a source has these whole lines, indented or not."""
    return any(f"\n{textwrap.indent(text, ' ' * depth)}\n" in f"\n{source}\n" for depth in (0, 4, 8, 12))


@cache
def parsed(text: str) -> ast.Module:
    """Parse code of a page, which may be indented, or end before the body of a statement."""
    code = textwrap.dedent(text)
    return ast.parse(f"{code} pass" if code.endswith(":") else code)


def shows(text: str, source: str) -> bool:
    """Return True if code on a page is part of a program; of the imports above its code it may leave some out."""
    if is_part_of(text, source):
        return True
    imported, rest = behind_imports(text)
    return bool(imported) and imported <= modules_of(source) and (not rest or is_part_of(rest, source))


@cache
def behind_imports(text: str) -> tuple[set[tuple[str, str]], str]:
    """Return the names that code on a page imports at its top, each with its module, and the code that follows."""
    imports = list(takewhile(lambda node: isinstance(node, (ast.Import, ast.ImportFrom)), parsed(text).body))
    rest = "\n".join(text.splitlines()[imports[-1].end_lineno if imports else 0 :]).strip("\n")
    return {name for node in imports for name in modules_in(node)}, rest


@cache
def modules_of(program: str) -> set[tuple[str, str]]:
    """Return the names that a program imports anywhere, each with its module."""
    return modules_in(ast.parse(program))


def modules_in(tree: ast.AST) -> set[tuple[str, str]]:
    """Return the names that code imports, each with its module."""
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {(getattr(node, "module", None) or "", each.name) for node in imports for each in node.names}


def literals() -> Iterator[pytest.ParameterSet]:
    """Yield the literal blocks of public docstrings: what is indented below ``::``."""
    for path in python_files(PACKAGE):
        if "::\n\n" not in path.read_text():
            continue
        for node in ast.walk(parse(path)):
            name = path.name if isinstance(node, ast.Module) else getattr(node, "name", "_")
            if not isinstance(node, Documented) or (name != "__init__.py" and name.startswith("_")):
                continue
            for literal in re.findall(r"::\n\n((?:(?: {4}.*)?\n)+)", f"{ast.get_docstring(node)}\n"):
                if "-->" in literal:  # a drawing
                    continue
                place = f"{path.relative_to(PACKAGE)}-{name}"
                yield pytest.param(textwrap.dedent(literal).strip("\n"), id=place)


def test_there_is_no_code_in_blocks_of_another_kind() -> None:
    others = [block for block in BLOCKS if block.language not in RUN]
    assert {block.language for block in others} <= NO_CODE.keys()
    assert [str(block) for block in others if NO_CODE[block.language] not in block.text] == []
    assert [str(block) for block in others if re.search(r"^\.\. (code|literal)", block.text, re.MULTILINE)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_there_is_no_code_outside_the_blocks(page: Path) -> None:
    """Neither indented, nor in a fence within a list or of tildes."""
    prose = FENCE.sub("", page.read_text())
    assert re.findall(r"^~~~.*|^ +```.*|^\n {4}.*", prose, re.MULTILINE) == []


def test_code_has_at_most_88_columns_which_is_what_a_page_has_room_for() -> None:
    wide = [block for block in BLOCKS if block.language in {"python", "json", "toml", ""}]
    assert [str(block) for block in wide if any(len(line) > 88 for line in block.text.splitlines())] == []


@pytest.mark.parametrize("block", marked("python"))
def test_a_block_of_python_is_part_of_an_example(block: Block) -> None:
    assert any(shows(block.text, program) for program in PROGRAMS), f"{block}: no example has this:\n{block.text}"


def names_in(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Return the names that code reads (`ast.Load`) or sets (`ast.Store`)."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def imports_in(tree: ast.AST) -> set[str]:
    """Return the names that code imports."""
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {each.asname or each.name.partition(".")[0] for node in imports for each in node.names}


def definitions_in(tree: ast.AST) -> set[str]:
    """Return the names of the classes and functions that code defines, and of the variables that it sets."""
    return {node.name for node in ast.walk(tree) if isinstance(node, DEFINITIONS)} | names_in(tree, ast.Store)


@cache
def given_by(program: str) -> set[str]:
    """Return the names that a program imports, or defines outside of its functions and classes."""
    tree = ast.parse(program)
    tops = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    variables = {name for node in tops for name in names_in(node, ast.Store)}
    return imports_in(tree) | variables | {node.name for node in tree.body if isinstance(node, DEFINITIONS)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_on_a_page_have_their_imports_and_definitions(page: Path) -> None:
    """D-96: `open_servers` is in three modules, and an example that is linked to is not read.

    An import is in the same block or above it, and a definition anywhere on the page.
    """
    shown = [block for block in blocks(page) if block.language == "python"]
    trees = [parsed(block.text) for block in shown]
    imported: set[str] = set()
    defined = {name for tree in trees for name in definitions_in(tree)}
    lacking = []
    for block, tree in zip(shown, trees, strict=True):
        imported |= imports_in(tree)
        arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        used = names_in(tree, ast.Load) - arguments - imported - defined
        programs = [sorted(used & given_by(program)) for program in PROGRAMS if shows(block.text, program)]
        lacking += [(str(block), names) for names in sorted(programs, key=len)[:1] if names]
    assert lacking == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_imports_only_what_it_names(page: Path) -> None:
    """In its code, or in its text; and what every program needs that opens a server or an actor."""
    trees = [parsed(block.text) for block in blocks(page) if block.language == "python"]
    named = {name for tree in trees for name in names_in(tree, ast.Load)} | NEEDED
    named |= set(re.findall(r"\w+", FENCE.sub("", page.read_text())))
    assert {name for tree in trees for name in imports_in(tree)} <= named


@pytest.mark.parametrize("block", marked("text"))
def test_a_block_of_text_is_what_the_example_with_the_code_above_it_prints(block: Block) -> None:
    code = above(block, "python").text
    assert any(is_part_of(block.text, program) for program in PROGRAMS if shows(code, program)), block.text


@pytest.mark.parametrize("literal", list(literals()))
def test_a_block_in_a_docstring_of_the_reference_is_part_of_an_example(literal: str) -> None:
    assert any(is_part_of(literal, program) for program in PROGRAMS), f"no example has this:\n{literal}"


@pytest.mark.parametrize("program", sorted((EXAMPLES / "pages").glob("*.py")), ids=lambda path: path.name)
def test_a_program_for_the_pages_is_shown_on_one(program: Path) -> None:
    source = program.read_text()
    assert any(shows(block.text, source) for block in BLOCKS if block.language == "python")


def test_every_other_example_is_linked_to_by_a_page() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    linked = [path for path in [*examples(), *PLACES] if not path.startswith("pages/")]
    unknown = [path for path in linked if f"examples/{path})" not in pages]
    assert unknown == []


@pytest.mark.parametrize("block", marked("json", "toml"))
def test_a_configuration_loads_and_nothing_is_wrong_with_it(block: Block, tmp_path: Path) -> None:
    file = tmp_path / f"mcp.{block.language}"
    file.write_text(block.text)
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    loaded = load_config(file, ask=lambda question: f"an answer for {question.id}")
    assert loaded.servers
    assert (loaded.errors, loaded.warnings) == ((), ())


@pytest.mark.parametrize("block", marked("console"))
def test_what_is_typed_in_a_terminal_shows_what_the_page_says(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a session run in a folder that has the configuration above it as ``.mcp.json``, accepted."""
    pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")
    configuration = above(block, "json").text
    if lacking := missing(configuration):
        pytest.skip(lacking)
    (tmp_path / ".mcp.json").write_text(configuration)
    (tmp_path / ".mcp.json").chmod(stat.S_IRUSR | stat.S_IWUSR)
    environment = readers_environment(tmp_path, interpreter())
    monkeypatch.setenv("XDG_STATE_HOME", environment["XDG_STATE_HOME"])
    accept_found(tmp_path)
    shown = []
    for command in re.findall(r"^\$ (.*)$", block.text, re.MULTILINE):
        script, *words = shlex.split(command)
        with (tmp_path / "shown").open("w+") as file:
            run = partial(start_python, cwd=tmp_path, env=environment, stdout=file, stderr=file)
            with run(SCRIPTS / script, *words) as program:
                program.wait(TIMEOUT)
            file.seek(0)
            shown.append(f"$ {command}\n{file.read()}")
    assert agrees("".join(shown), f"{block.text}\n"), "".join(shown)


@pytest.mark.parametrize("block", marked("bash"))
def test_a_command_to_type_is_run_by_another_test_or_installs_an_extra_of_the_project(block: Block) -> None:
    for command in re.split(r" && |\n", block.text):
        if found := INSTALL.fullmatch(command):
            assert found[1] in project()["optional-dependencies"]
        else:
            assert command in TYPED


OPENED: Final[dict[str, Callable[..., Any]]] = {
    "ServerConfig": ServerConfig,
    "open_servers": open_servers,
    "Stdio": Stdio,
    "Http": Http,
    "OAuth": OAuth,
    "HealthPolicy": HealthPolicy,
    "RestartPolicy": RestartPolicy,
    "RetryPolicy": RetryPolicy,
    "ToolFilter": ToolFilter,
}
"""What a program configures servers with."""


@pytest.mark.parametrize("name", OPENED)
def test_each_parameter_of_a_configuration_is_on_a_page_for_users(name: str) -> None:
    """In code or between backticks, on another page than the reference and those for contributors."""
    others = {"reference", "design"}
    text = "".join(page.read_text() for page in PAGES if not others & set(page.parts))
    code = " ".join(re.findall(r"^```.*?^```$|`[^`\n]+`", text, re.MULTILINE | re.DOTALL))
    parameters = [
        each.name for each in signature(OPENED[name]).parameters.values() if each.kind is not each.VAR_POSITIONAL
    ]
    assert [each for each in parameters if not re.search(rf"\b{each}\b", code)] == []


async def test_the_first_code_about_failures_reads_every_kind_of_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a process that exits, of a command that does not exist, and of an entry that is misspelt."""
    page = ROOT / "docs" / "howto" / "errors.md"
    code = next(block.text for block in blocks(page) if block.language == "python" and "import" not in block.text)
    entries = {
        "exits": {"command": "sh", "args": ["-c", "echo no gas >&2; exit 3"]},
        "missing": {"command": "no-such-command"},
        "misspelt": {"comand": "mcp-server-time"},
    }
    async with open_servers({"mcpServers": entries}) as servers:
        exec(code, {"servers": servers, "ConnectFailed": ConnectFailed})
    told = capsys.readouterr().out
    assert "exits: its process exited with code 3: no gas" in told
    assert "command 'no-such-command' not found" in told
    assert "neither 'command' nor 'url' is given" in told
