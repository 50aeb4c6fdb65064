"""The public surface: sorted, small, complete, lazily loaded, and called by its public name."""

from __future__ import annotations

import ast
import json
import os
import pickle
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import ClassVar, Final

import pytest

import mcp_actors
from mcp_actors import _exports

from .importing import importing, python
from .source import FOLDERS, PACKAGE, parse, project


def public_things(module: ModuleType) -> dict[str, object]:
    """Return the public classes and functions of a module."""
    things = {name: getattr(module, name) for name in module.__all__}
    return {name: thing for name, thing in things.items() if isinstance(thing, (type, FunctionType))}


def test_the_facade_is_sorted_and_small() -> None:
    assert mcp_actors.__all__ == sorted(mcp_actors.__all__)
    assert len(mcp_actors.__all__) == len(set(mcp_actors.__all__)) <= 41


@pytest.mark.parametrize("name", mcp_actors.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(mcp_actors, name) is getattr(import_module(mcp_actors._HOMES[name]), name)


def test_type_checkers_and_programs_see_the_same_names_from_the_same_modules() -> None:
    seen = {
        alias.name: node.module
        for node in ast.walk(parse(PACKAGE / "__init__.py"))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("mcp_actors")
        for alias in node.names
    }
    assert seen == mcp_actors._HOMES
    assert sorted(mcp_actors._HOMES) == mcp_actors.__all__


def test_type_checkers_can_read_all_public_names() -> None:
    added = [
        name
        for node in parse(PACKAGE / "__init__.py").body  # not in a block that may be hidden from them
        if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "__all__"
        for name in ast.literal_eval(node.value)
    ]
    assert sorted(added) == mcp_actors.__all__


def test_dir_lists_public_names_before_they_are_fetched() -> None:
    assert importing()["names of the facade"] == []


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'mcp_actors' has no attribute 'Server'"):
        _ = mcp_actors.Server  # type: ignore[attr-defined]  # that is what is tested


def test_the_version_is_that_of_the_distribution() -> None:
    assert mcp_actors.__version__ == project()["version"] == version("mcp-actors")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_lists_what_it_exports_in_order(folder: str) -> None:
    module = import_module(f"mcp_actors.{folder}")
    assert module.__all__ == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("name", mcp_actors.__all__)
def test_things_of_the_facade_say_that_they_live_there(name: str) -> None:
    thing = getattr(mcp_actors, name)
    if isinstance(thing, (type, FunctionType)):
        assert thing.__module__ == "mcp_actors"


@pytest.mark.parametrize("folder", FOLDERS)
def test_things_of_a_folder_say_that_they_live_there_or_in_the_facade(folder: str) -> None:
    module = import_module(f"mcp_actors.{folder}")
    things = public_things(module)
    homes = {name: thing.__module__ for name, thing in things.items()}
    # The façade may offer another thing under the same name, as the bridge does.
    expected = {
        name: "mcp_actors" if getattr(mcp_actors, name, None) is thing else module.__name__
        for name, thing in things.items()
    }
    assert homes == expected


def test_every_error_lives_where_it_is_exported() -> None:
    assert importing()["homes of errors"] == ["mcp_actors", "mcp_actors.kernel", "mcp_actors.servers"]


def test_kernel_names_are_exported_by_the_kernel_only() -> None:
    kernel = import_module("mcp_actors.kernel")
    shared = {"Backoff", "McpActorsError"}
    assert set(kernel.__all__) & set(mcp_actors.__all__) <= shared


def test_an_error_can_be_pickled_by_its_public_name() -> None:
    assert pickle.loads(pickle.dumps(mcp_actors.ConnectFailed)) is mcp_actors.ConnectFailed


def test_the_kernel_is_usable_alone() -> None:
    """It loads no other module than Trio and attrs do, but those of the standard library."""
    assert importing()["with the kernel"] == ["mcp_actors"]
    assert importing()["json with the kernel"] is False


def test_the_facade_imports_nothing_by_itself() -> None:
    assert importing()["with the facade"] == ["mcp_actors"]


def test_servers_import_nothing_that_only_some_programs_use() -> None:
    assert importing()["with servers"] == []


class TestNamesThatAreFetchedLater:
    FOLDERS: ClassVar = ["auth", "config", "transports/http"]

    @pytest.mark.parametrize("folder", FOLDERS)
    def test_type_checkers_and_programs_see_the_same_names_from_the_same_modules(self, folder: str) -> None:
        tree = parse(PACKAGE / folder / "__init__.py")
        for_types = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
        seen = {
            alias.asname or alias.name: f".{node.module}"
            for block in for_types
            for node in ast.walk(block)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        [homes] = [
            ast.literal_eval(node.args[1])
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "fetch_later"
        ]
        assert seen == {name: module for module, names in homes.items() for name in names.split()}
        assert all(names.split() == sorted(names.split()) for names in homes.values())

    def test_dir_lists_them_before_they_are_fetched(self) -> None:
        assert importing()["names of config"] == []

    def test_a_name_that_does_not_exist_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match=r"module 'mcp_actors\.config' has no attribute 'load_confg'"):
            _ = import_module("mcp_actors.config").load_confg

    def test_all_names_of_a_module_are_published_with_the_first(self) -> None:
        assert importing()["homes of config"] == ["mcp_actors", "mcp_actors.config"]

    def test_an_import_of_everything_fetches_them(self) -> None:
        assert importing()["home of a source"] == "mcp_actors.config"


def test_windows_is_refused_with_an_explanation() -> None:
    code = (
        "import sys; sys.platform = 'win32'\n"
        "try:\n    import mcp_actors\n"
        "except ImportError as error:\n    print(error)"
    )
    assert (
        python("-c", code).stdout
        == "mcp_actors runs on Linux and macOS, not on Windows yet; under Windows, use it inside WSL\n"
    )


class TestPublish:
    def thing(self, module: str) -> type:
        return type("Thing", (), {"__module__": module})

    @pytest.mark.parametrize("module", ["mcp_actors._errors", "mcp_actors.kernel._ref", "mcp_actors._a.b"])
    def test_what_a_private_module_defines_gets_a_public_home(self, module: str) -> None:
        thing = self.thing(module)
        _exports.publish("mcp_actors.kernel", {"Thing": thing})
        assert thing.__module__ == "mcp_actors.kernel"

    @pytest.mark.parametrize(
        "module", ["mcp_actors", "mcp_actors.kernel", "_collections", "trio._core", "mcp_actorsx._a"]
    )
    def test_what_has_a_public_home_or_is_foreign_stays(self, module: str) -> None:
        thing = self.thing(module)
        _exports.publish("mcp_actors.config", {"Thing": thing})
        assert thing.__module__ == module

    def test_private_names_and_constants_are_left_alone(self) -> None:
        thing = self.thing("mcp_actors._errors")
        _exports.publish("mcp_actors", {"_Thing": thing, "LIMIT": 3, "Alias": list[int]})
        assert thing.__module__ == "mcp_actors._errors"

    def test_functions_are_published_too(self) -> None:
        def open_thing() -> None: ...

        open_thing.__module__ = "mcp_actors.servers._group"
        _exports.publish("mcp_actors", {"open_thing": open_thing})
        assert open_thing.__module__ == "mcp_actors"

    @pytest.mark.parametrize(
        ("module", "home"), [("mcp_actors.servers._open", "mcp_actors"), ("mcp_actors.bridge._open", "elsewhere")]
    )
    def test_the_facade_is_the_home_of_the_thing_that_it_offers_and_not_of_its_name(
        self, module: str, home: str
    ) -> None:
        thing = self.thing(module)
        _exports.publish("elsewhere", {"open_servers": thing})
        assert thing.__module__ == home


TOO_OLD = (
    "mcp_actors: requires the package mcp in version 2.3 or later, and 1.26.0 is installed; "
    "run: pip install --upgrade 'mcp>=2.3'"
)


OF_THE_SDK: Final = [
    "from mcp_actors import open_servers",
    *(f"import mcp_actors.{each}" for each in ("auth", "bridge", "catalog", "config", "servers")),
    "from mcp_actors.adapters import McpClient",
    "import mcp_actors.transports.http",
]
"""Statements that import it."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a path with the package ``mcp`` of a version that lacks most of what this package imports."""
    tmp_path = tmp_path_factory.mktemp("old")
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "__init__.py").write_text("")
    (tmp_path / "mcp" / "types.py").write_text("class Tool: ...\n")
    (tmp_path / "mcp-1.26.0.dist-info").mkdir()
    (tmp_path / "mcp-1.26.0.dist-info" / "METADATA").write_text("Name: mcp\nVersion: 1.26.0\n")
    return os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])


@pytest.fixture(scope="module")
def errors(path: str) -> dict[str, str]:
    """Execute each statement in a fork of its own, of one new interpreter; return the error of each."""
    lines = (
        "import os",
        f"for statement in {OF_THE_SDK}:",
        "    if os.fork() == 0:",
        "        try:",
        "            exec(statement)",
        "        except ImportError as error:",
        "            print({statement: str(error)}, flush=True)",
        "        os._exit(0)",
        "    os.wait()",
    )
    found: dict[str, str] = {}
    for line in python("-c", "\n".join(lines), PYTHONPATH=path).stdout.splitlines():
        found |= ast.literal_eval(line)
    return found


class TestAnOldSdk:
    @pytest.mark.parametrize("statement", OF_THE_SDK)
    def test_it_is_named_with_the_version_that_is_needed(self, errors: dict[str, str], statement: str) -> None:
        """C-51: at the first import of anything that needs it."""
        assert errors[statement] == TOO_OLD

    def test_the_command_line_says_so_too(self, path: str) -> None:
        """C-51."""
        done = python("-m", "mcp_actors", "check", "--json", PYTHONPATH=path)
        assert done.returncode == 1
        assert json.loads(done.stdout) == {"error": TOO_OLD}
        assert done.stderr == f"error: {TOO_OLD}\n"

    def test_the_kernel_does_not_mind(self, path: str) -> None:
        """C-51."""
        assert python("-c", "import mcp_actors.kernel", PYTHONPATH=path).returncode == 0

    def test_the_oldest_version_is_that_of_the_project(self) -> None:
        """C-51."""
        from mcp_actors._sdk import OLDEST

        assert f"mcp>={OLDEST[0]}.{OLDEST[1]},<3" in project()["dependencies"]

    @pytest.mark.parametrize(
        ("installed", "fits"), [("2.3.0", True), ("2.10", True), ("3.0", True), ("2.2.9", False), ("dev", True)]
    )
    def test_versions_are_compared_by_their_numbers(
        self, installed: str, fits: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C-51."""
        from mcp_actors import _sdk

        monkeypatch.setattr(_sdk, "version", lambda name: installed)
        assert (_sdk.sdk_problem() is None) is fits

    def test_without_metadata_the_import_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """C-51: as in a zip file."""
        from mcp_actors import _sdk

        monkeypatch.setattr(sys, "path", [])
        assert _sdk.sdk_problem() is None

    @pytest.mark.parametrize("line", ["from mcp_actors import Http", "import mcp_actors.bridge; mcp_actors.Http"])
    def test_a_program_with_the_name_of_the_sdk_is_refused_with_a_remedy(self, tmp_path: Path, line: str) -> None:
        program = tmp_path / "mcp.py"
        program.write_text(line)
        done = python(str(program))
        assert done.stderr.splitlines()[-1] == (
            f"ImportError: mcp_actors: {program} hides the package mcp, because it has the same name; rename that file"
        )

    def test_a_folder_with_the_name_of_the_sdk_hides_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from mcp_actors import _sdk

        (tmp_path / "mcp").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
        assert _sdk.sdk_problem() is None
        found = PathFinder.find_spec("mcp")
        assert found is not None
        assert found.origin == import_module("mcp").__file__
