"""Everything that is checked, one session each. ``nox`` runs what a change needs; ``nox -s NAME`` runs one."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2025.5"
nox.options.sessions = ["lint", "typing", "tests", "examples", "docs"]
nox.options.reuse_existing_virtualenvs = True

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
OLDEST = PYTHONS[0]
EXTRAS = ["agent-framework", "cli", "langchain", "openai-agents", "postgres", "pydantic-ai", "yaml"]
"""What users add to the package; the other extras are for work on it."""

SIMULATED = {"tests/servers/test_life_model.py", "tests/simulate/test_simulate.py"}
"""The tests that ``simulate`` runs at full size."""

SIZED = re.compile(r"\b(FULL_SIZE|number_of|run_programs|hypothesis)\b")
"""What the source of a test has whose size an environment variable raises (``tests/programs.py``)."""

PROGRAMS = sorted(
    {"tests/bridge/test_acceptance.py", "tests/servers/test_dispatch.py"}  # their cases are in other modules
    | {path.as_posix() for path in Path("tests").rglob("test_*.py") if SIZED.search(path.read_text())} - SIMULATED
)

CLUSTER = [
    "tests/hosts",
    *(
        f"tests/test_examples.py::test_an_example_prints_what_its_docstring_says[pages/howto_{name}.py]"
        for name in ("more_processes_ray", "temporal")
    ),
]
"""The tests that need Ray or Temporal."""

PATIENT = ["-o", "faulthandler_timeout=3600"]
"""Options of pytest for tests that take minutes: the time after which one of them counts as hanging."""

WHEEL_CHECK = """
import importlib.resources, pathlib, sys
import mcp_actors, mcp_actors.kernel

assert importlib.resources.files("mcp_actors").joinpath("py.typed").is_file()
assert pathlib.Path(sys.prefix) in pathlib.Path(mcp_actors.__file__).parents, mcp_actors.__file__
for name in mcp_actors.__all__:
    getattr(mcp_actors, name)
print("mcp_actors", mcp_actors.__version__, "offers", len(mcp_actors.__all__), "names")
"""


@nox.session(python=OLDEST)
def lint(session: nox.Session) -> None:
    """Check style and format; the house's own numbers are checked by tests/test_style.py."""
    session.install("--editable", ".[lint]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session(python=OLDEST)
def typing(session: nox.Session) -> None:
    """Check types, that every public name has them, and what four checkers accept and refuse."""
    session.install("--editable", ".[test,typing]")
    session.run("mypy")
    session.run("pyright", "--verifytypes", "mcp_actors", "--ignoreexternal")
    session.run("pyright", "--project", "tests/pyright.json")
    session.run("python", "-m", "tests.typing")


@nox.session(python=OLDEST)
def newest_checkers(session: nox.Session) -> None:
    """Ask the newest versions of the four type checkers, not those that are installed already."""
    session.install("--editable", ".[test,typing]")
    session.install("--upgrade", "mypy", "pyrefly", "pyright[nodejs]", "ty")
    session.run("python", "-m", "tests.typing")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests and measure coverage: the package as configured, the kernel completely."""
    session.install("--editable", ".[test]")
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    session.run("coverage", "combine", "--quiet")
    if not session.posargs:
        session.run("coverage", "report")
        session.run("coverage", "report", "--include=mcp_actors/kernel/*", "--fail-under=100")


@nox.session(python=OLDEST)
def durations(session: nox.Session) -> None:
    """Measure what each test costs, twice, and choose from that the tests of the README's command: half an hour."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "tests.durations")


@nox.session(python=OLDEST)
def elsewhere(session: nox.Session) -> None:
    """Run the README's commands as another user, in a path with blanks, with little else; then without a network."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "tests.elsewhere", *session.posargs)


@nox.session(python=OLDEST)
def slow(session: nox.Session) -> None:
    """Run the tests that wait as long as users do: with default values, which takes minutes."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "pytest", *PATIENT, *(session.posargs or ["tests/slow"]))


@nox.session(python=OLDEST)
def programs(session: nox.Session) -> None:
    """Run thousands of random programs and long storms, from a new seed each time; they print it."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "pytest", *PATIENT, *(session.posargs or PROGRAMS), env={"FULL_SIZE": "1"})


@nox.session(python=OLDEST)
def httpx2(session: nox.Session) -> None:
    """Run the tests of HTTP with httpx2's own transport in place of ours, as with a proxy; both must pass them."""
    session.install("--editable", ".[test]")
    folders = ["tests/servers", "tests/dialects", "tests/auth", "tests/gateway/http"]
    session.run("python", "-m", "pytest", *(session.posargs or folders), env={"HTTP": "httpx2"})


@nox.session(python=OLDEST)
def simulate(session: nox.Session) -> None:
    """Simulate groups of servers and disturb programs of actors: ``nox -s simulate -- --programs --minutes 60``.

    Without arguments, ten thousand of each. A seed that fails is drawn: ``nox -s simulate -- --seed 7``.
    """
    session.install("--editable", ".[test]")
    session.run("python", "-m", "tests.simulate", *session.posargs)
    if not session.posargs:  # the model of one server, with more replicas and operations than in the suite
        session.run("python", "-m", "pytest", *PATIENT, "tests/servers/test_life_model.py", env={"FULL_SIZE": "1"})
        session.run("python", "-m", "tests.simulate", "--programs")


@nox.session(python=OLDEST)
def mutants(session: nox.Session) -> None:
    """Change the pure decisions in hundreds of ways; a change that no test catches is an error, unless explained."""
    session.install("--editable", ".[test]", "mutmut>=3.8.1")
    session.run("python", "-m", "tests.mutants")


@nox.session(python=OLDEST)
def rooms(session: nox.Session) -> None:
    """Change eight random lines of each room, and run the tests of that room: ``nox -s rooms -- --seed 46``."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "tests.mutants.rooms", *session.posargs)


@nox.session(python=OLDEST)
def cold(session: nox.Session) -> None:
    """Run every program of the tests in an interpreter of its own, which imports all it needs, and not in a fork."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs, env={"COLD": "1"})


@nox.session(python=OLDEST)
def lowest(session: nox.Session) -> None:
    """Run the tests with the lowest version of every dependency, also of the extras, that pyproject.toml allows."""
    constraints = Path(session.create_tmp()) / "lowest.txt"
    constraints.write_text("\n".join(lowest_versions()) + "\n")
    session.install("--editable", ".[test]", "--constraint", str(constraints))
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python=OLDEST)
def examples(session: nox.Session) -> None:
    """Run every example, also the one that needs real servers, and all that the pages show."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "pytest", "tests/test_examples.py", "tests/test_pages.py", "tests/test_main_job.py")


@nox.session(python=OLDEST)
def docs(session: nox.Session) -> None:
    """Record and draw the pictures, and build the documentation; a warning is an error."""
    session.install("--editable", ".[cli,demo,docs]")
    session.run("python", "docs/_recording.py")
    session.run("python", "docs/_pictures.py")
    session.run("sphinx-build", "-EnW", "--keep-going", "-b", "html", "docs", "docs/_build/html")


@nox.session(python=OLDEST)
def bench(session: nox.Session) -> None:
    """Measure what a call, an import and an idle actor cost, also beside others; a bound that is missed is an error."""
    session.install("--editable", ".[bench,test]")
    env = {}
    if not session.posargs or "gateway" in session.posargs:
        folder = Path(session.create_tmp()).resolve() / "mcp-proxy"  # it needs version 1 of the SDK
        env["MCP_PROXY_PYTHON"] = python = str(folder / "bin" / "python")
        session.run("python", "-m", "venv", str(folder))
        session.run(python, "-m", "pip", "install", "--quiet", "mcp-proxy>=0.13", external=True)
    session.run("python", "-m", "tests.benchmarks", *session.posargs, env=env)


@nox.session(python=OLDEST)
def instructions(session: nox.Session) -> None:
    """Count the instructions of tool calls, which no other load changes: ``nox -s instructions -- progress:stdio``."""
    if shutil.which("valgrind") is None:
        session.skip("Valgrind is not installed; `apt-get install valgrind` installs it on Debian and Ubuntu")
    session.install("--editable", ".[test]")
    parts = [f"instructions:{part}" for part in session.posargs] or ["instructions"]
    session.run("python", "-m", "tests.benchmarks", *parts)


@nox.session(python=OLDEST)
def soak(session: nox.Session) -> None:
    """Trouble twenty real servers for a minute, and open a thousand lazy ones: ``nox -s soak -- --minutes 60``."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "tests.soak.thousand")
    session.run("python", "-m", "tests.soak", *session.posargs)


@nox.session(python=OLDEST)
def load(session: nox.Session) -> None:
    """Make many calls to servers and hosts that are killed again and again: ``nox -s load -- --calls 1000000``."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "tests.load", *session.posargs)


@nox.session(python=OLDEST)
def cluster(session: nox.Session) -> None:
    """Kill and suspend hosts and nodes of a cluster of Ray on this machine; compare calls through it with Ray's own."""
    try:
        session.install("--editable", ".[cluster,test]")
    except CommandFailed:
        session.skip("Ray or Temporal cannot be installed here; see the error of pip")
    session.run("python", "-m", "pytest", "-n", "0", *PATIENT, *(session.posargs or CLUSTER))
    if not session.posargs:
        session.run("python", "-m", "tests.benchmarks", "ray")


@nox.session(python=OLDEST)
def compare(session: nox.Session) -> None:
    """Let a server die in a call of four clients; outcomes that changed are an error: ``nox -s compare -- --write``."""
    session.install("--upgrade", "--upgrade-strategy", "eager", "--editable", ".[bench]")  # the newest clients
    session.run("python", "-m", "tests.compare.side_by_side", *session.posargs)


@nox.session(python=OLDEST)
def places(session: nox.Session) -> None:
    """Run the programs of examples/places/ with their frameworks, as users do: ``nox -s places -- -k Celery``."""
    session.install("--editable", ".[places,test]")
    words = ["-n", "0", "tests/places", "tests/test_patched.py", *session.posargs]
    session.run("python", "-m", "pytest", *PATIENT, *words, env={"PLACES": "1"})


@nox.session(python=OLDEST)
def field(session: nox.Session) -> None:
    """Commit dozens of faults to this client and nine others, in an hour: ``nox -s field -- --clients strands``."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "tests.compare", *session.posargs)


@nox.session(python=OLDEST)
def conformance(session: nox.Session) -> None:
    """Play the client in all scenarios of MCP's conformance suite: ``nox -s conformance -- 2026-07-28 --asyncio``."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "tests.conformance", *session.posargs)


@nox.session(python=OLDEST, name="conformance-gateway")
def conformance_gateway(session: nox.Session) -> None:
    """Compare the gateway over HTTP with the server behind it, by the suite's scenarios for servers."""
    session.install("--editable", ".[test]")
    session.run("python", "-m", "tests.conformance.gateway", *session.posargs)


@nox.session(python=OLDEST)
def otp(session: nox.Session) -> None:
    """Compare random programs on Erlang/OTP's supervisor and on ours: ``nox -s otp -- --programs 20000 --seed 1``."""
    if shutil.which("erlc") is None:
        session.skip("Erlang/OTP is not installed; `apt-get install erlang-base` installs it on Debian and Ubuntu")
    session.install("--editable", ".[test]")
    session.run("python", "-m", "tests.kernel.otp", *session.posargs)


@nox.session(python=OLDEST)
def build(session: nox.Session) -> None:
    """Build sdist and wheel, and use the wheel from an empty directory."""
    session.install("build")
    folder = Path(session.create_tmp()).resolve()
    session.run("python", "-m", "build", "--outdir", str(folder / "dist"))
    [wheel] = sorted((folder / "dist").glob("*.whl"))
    session.install("--force-reinstall", f"{wheel}[cli]")
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    session.chdir(empty)
    session.run("python", "-I", "-c", WHEEL_CHECK)
    session.run("mcp-actors", "--version")


@nox.session(python=OLDEST)
def container(session: nox.Session) -> None:
    """Build the image of the page about HTTP from this checkout with podman, and call a tool in it."""
    session.install("build", "--editable", ".[test]")
    wheels = Path(session.create_tmp()).resolve() / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)  # old ones of this project have the same name
    session.run("python", "-m", "build", "--wheel", "--outdir", str(wheels))
    [wheel] = wheels.glob("*.whl")
    file = Path("docs/howto/gateway_http.md").read_text()
    [version] = re.findall(r"^FROM python:([\d.]+)", file, re.MULTILINE)
    [packages] = re.findall(r"^RUN pip install --no-cache-dir '[^']+' ([^\\\n]+)", file, re.MULTILINE)
    options = ["--only-binary=:all:", f"--python-version={version}", f"--dest={wheels}"]
    session.run("python", "-m", "pip", "download", *options, f"{wheel}[cli]", *packages.split())
    words = ["-n", "0", "-rs", *(session.posargs or ["tests/gateway/http/test_container.py"])]
    session.run("python", "-m", "pytest", *words, env={"CONTAINER_WHEELS": str(wheels)})


def lowest_versions() -> list[str]:
    """Turn the lower bounds of what users install into pins: ``trio>=0.31.0`` becomes ``trio==0.31.0``."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *(each for name in EXTRAS for each in project["optional-dependencies"][name])]
    return [re.sub(r">=([\w.]+)(,<[\w.]+)?", r"==\1", requirement) for requirement in required]
