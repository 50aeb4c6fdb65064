"""Print or convert a configuration: ``config show`` and ``config convert``.

``show`` masks possible credentials, and names the source of each value. ``convert`` writes nothing if the target format
cannot express a server. No server is started, so the file need not be trusted.

Owns: nothing.
Writes: the command's output; the converted file.
Calls: config, config.formats, _configuration, _output.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from .._errors import ConfigError
from .._text import plain_text
from .._user_files import replace_file
from ..config import LoadedConfig, dump_config, mask_url
from ..config._values import Part, Reference, mask_args, parse, references
from ..config.formats import decode, name_of, read_bytes
from ..config.formats._dump import has_literal
from ..config.formats._file import parse as parse_file
from ..config.formats._load import CONNECT_TIMEOUT, Override, fitting
from ..config.formats._programs import find_sections, switched_off
from ._configuration import find_file, load_unasked
from ._output import Failure, Output

_OWN_SECTION: Final = "mcp_actors"

# --- ``mcp-actors config show`` ---------------------------------------------------------------------------------------


async def show_config(names: Sequence[str], config: str | None, output: Output) -> int:
    file = config or str(find_file())
    content = read_bytes(file)
    loaded = load_unasked(file, names, content)
    written, shown = _written(loaded.source, content[0]), []
    for server in loaded.servers:
        dumped = dump_config([server], literals=True)["mcpServers"][server.name]
        values = [
            {"key": key, "value": _masked(key, value), "from": _origin(server.name, *written[server.name], key)}
            for key, value in _flat(dumped)
        ]
        variables = {name: name in os.environ for name in sorted(_variables(dumped))}
        output.line((server.name, "bold"), (f"  {loaded.source}", "dim"))
        for each in values:
            value = json.dumps(each["value"], ensure_ascii=False)
            output.line(f"  {each['key']} = {value}", (f"  {each['from']}", "dim"))
        for name, is_set in variables.items():
            output.line(f"  ${{{name}}} = ", ("***", "") if is_set else ("not set", "yellow"))
        shown.append({"name": server.name, "source": loaded.source, "values": values, "variables": variables})
    output.json(shown)
    return output.errors(loaded.errors)


def _flat(value: Mapping[str, Any], begin: str = "") -> Iterator[tuple[str, Any]]:
    for key, each in value.items():
        if isinstance(each, Mapping):
            yield from _flat(each, f"{begin}{key}.")
        else:
            yield f"{begin}{key}", each


def _masked(key: str, value: Any) -> Any:
    """Mask a possible credential in a value; variables are shown as written."""
    if key == "url":
        return mask_url(value)
    if key == "args":
        return list(mask_args(tuple(value)))
    if key.startswith(("env.", "headers.")) or key in (f"{_OWN_SECTION}.auth", "oauth.clientSecret"):
        return "***" if has_literal(parse(value, where=key)) else value
    return value


def _variables(value: object) -> set[str]:
    if isinstance(value, str):
        parts = parse(value, where="")
        return {each.name for each in references(parts) if not each.text.startswith("input:")}
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return set().union(*map(_variables, items))


def _written(source: str, data: bytes) -> dict[str, tuple[str, Any, str]]:
    """Return server → the place of the entry, the entry, and the list that disables the server, if any."""
    found: dict[str, tuple[str, Any, str]] = {}
    document = parse_file(source, decode(source, data))
    for section, entries in find_sections(source, document):
        off = switched_off(source, document, entries)
        for key, entry in entries.items():
            with suppress(ConfigError):  # the server is not loaded
                name = name_of(source, section, key, entries)
                found.setdefault(name, (f"{section}.{key}" if section else key, entry, off.get(key, "")))
    return found


def _origin(server: str, place: str, entry: Any, off: str, key: str) -> str:
    """Return the environment variable, the list or the key that sets a value; for a default, the entry."""
    if off and key == "enabled":
        return off
    field, _, part = key.removeprefix(f"{_OWN_SECTION}.").partition(".")

    def sets(override: Override) -> bool:
        return override.field == field and override.key.upper() in ("", part.upper())

    variable = next((each.variable for each in fitting(server, os.environ) if sets(each)), None)
    if variable is None and field == "connect_timeout" and os.environ.get(CONNECT_TIMEOUT):
        variable = CONNECT_TIMEOUT
    if variable is not None:
        return variable
    for name in key.split("."):
        if not isinstance(entry, Mapping) or name not in entry:
            break
        place, entry = f"{place}.{name}", entry[name]
    return place


# --- ``mcp-actors config convert`` ------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Target:
    """The format of another program. None stands for a feature that the format lacks.

    Attributes:
        variable: the form of an environment variable.
        disabled: the key and value of a disabled server.
        is_codex: whether the format is TOML with names of variables for credentials.
    """

    section: str
    variable: str | None = None
    inputs: bool = False
    disabled: tuple[str, bool] | None = None
    is_codex: bool = False


TARGETS: Final[Mapping[str, Target]] = {
    "claude": Target(section="mcpServers", variable="${{{}}}"),
    "cursor": Target(section="mcpServers", variable="${{env:{}}}"),
    "vscode": Target(section="servers", variable="${{env:{}}}", inputs=True),
    "zed": Target(section="context_servers", disabled=("enabled", False)),
    "codex": Target(section="mcp_servers", disabled=("enabled", False), is_codex=True),
}


async def convert_config(
    form: str, names: Sequence[str], config: str | None, to: str | None, output: Output, *, literals: bool
) -> int:
    loaded = load_unasked(config, names)
    problems = [*map(str, loaded.errors)]
    document = _converted(loaded, form, problems, literals=literals)
    if problems:
        for problem in problems:
            output.error(problem)
        remedy = f"name the servers without it: config convert {form} SERVER…, and add the others to {form} yourself"
        raise Failure(f"nothing was written; correct that, or {remedy}")
    for server in loaded.servers:
        if settings := document[TARGETS[form].section][server.name].get(_OWN_SECTION):
            output.warning(f"server {server.name!r}: only mcp_actors uses: {', '.join(settings)}")
    text = toml_of(document) if TARGETS[form].is_codex else json_of(document)
    if to is None:
        output.text(text.rstrip("\n"))
    else:
        _write(Path(to), text)
    return 0


def _write(path: Path, text: str) -> None:
    shown = plain_text(str(path))
    if os.path.lexists(path):
        raise Failure(f"{shown} exists, and nothing was written; choose another name, or move it away")
    try:
        replace_file(path, text.encode(), private=False)
    except OSError as error:
        raise Failure(f"{shown} cannot be written: {error.strerror}; choose another place") from None


def _converted(loaded: LoadedConfig, form: str, problems: list[str], *, literals: bool) -> dict[str, Any]:
    target = TARGETS[form]
    document: dict[str, Any] = {target.section: {}}
    inputs: dict[str, Any] = {}
    for server in loaded.servers:
        try:
            dumped = dump_config([server], literals=literals)
        except ConfigError as error:
            found = (error, *getattr(error, "__notes__", ()))
            problems += [str(each).replace("pass literals=True", "add --literals") for each in found]
            continue
        converting = _Converting(server.name, form)
        document[target.section][server.name] = converting.entry(dumped["mcpServers"][server.name])
        problems += converting.problems
        inputs |= {each["id"]: each for each in dumped.get("inputs", ())}
    return document | ({"inputs": [*inputs.values()]} if inputs else {})


@attrs.frozen
class _Converting:
    """Converts one server, and collects values that the target cannot express."""

    server: str
    form: str
    problems: list[str] = attrs.field(factory=list)

    def entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        target, entry = TARGETS[self.form], dict(entry)
        settings = dict(entry.pop(_OWN_SECTION, {}))
        if "auth" in settings:
            entry["headers"] = {**entry.get("headers", {}), "Authorization": f"Bearer {settings.pop('auth')}"}
        if entry.pop("enabled", True) is False:
            if target.disabled is None:
                self._refuse("enabled", "a server cannot be disabled")
            else:
                entry.update([target.disabled])
        if target.is_codex:
            settings = self._of_codex(entry, settings)
        entry = {key: self._value(key, value) for key, value in entry.items()}
        return entry | ({_OWN_SECTION: settings} if settings else {})

    def _of_codex(self, entry: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        """Move variables to Codex's keys for names of variables."""
        if entry.pop("type", None) == "sse":
            self._refuse("type", "HTTP with SSE is not supported")
        env, headers = entry.pop("env", {}), entry.pop("headers", {})
        passed = [name for name, value in env.items() if value == f"${{{name}}}"] + [*settings.pop("env_from", ())]
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        if token.startswith("${") and (name := _only_variable(token)):
            entry["bearer_token_env_var"] = name
            del headers["Authorization"]
        named = {key: name for key, value in headers.items() if (name := _only_variable(value))}
        parts = {
            "env": {name: value for name, value in env.items() if name not in passed},
            "env_vars": passed,
            "http_headers": {key: value for key, value in headers.items() if key not in named},
            "env_http_headers": named,
        }
        entry.update((key, value) for key, value in parts.items() if value)
        for name in [name for name, value in settings.items() if value is None]:
            self._refuse(f"{_OWN_SECTION}.{name}", "null is not supported")
        return settings

    def _value(self, place: str, value: Any) -> Any:
        if isinstance(value, str):
            parts = parse(value, where=place)
            return "".join(self._part(place, part) for part in parts)
        if isinstance(value, Mapping):
            return {key: self._value(f"{place}.{key}", each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._value(f"{place}[{index}]", each) for index, each in enumerate(value)]
        return value

    def _part(self, place: str, part: Part) -> str:
        target = TARGETS[self.form]
        if isinstance(part, str):
            # A literal '${' is written '$${' here; no other program has a form for it.
            return part if "${" not in part else self._refuse(place, "a literal '${' cannot be written")
        if part.text.startswith("input:"):
            return f"${{{part.text}}}" if target.inputs else self._refuse(place, "inputs are not supported")
        if target.variable is None:
            return self._refuse(place, "variables are not supported", f"${{{part.name}}}")
        if part.default is None:
            return target.variable.format(part.name)
        if self.form != "claude":
            return self._refuse(place, "defaults of variables are not supported", f"${{{part.name}:-…}}")
        return f"${{{part.text}}}"

    def _refuse(self, place: str, problem: str, found: str = "") -> str:
        where = f"server {self.server!r}: {place}"
        self.problems.append(f"{where}: {problem} by {self.form}{found and f', and it has {found}'}")
        return ""


def _only_variable(text: str) -> str | None:
    """Return the variable that is the whole text, unless the variable has a default."""
    match tuple(filter(None, parse(text, where=""))):
        case (Reference(text=written, name=name, default=None),) if not written.startswith("input:"):
            return name
    return None


def json_of(document: Mapping[str, Any]) -> str:
    return f"{json.dumps(document, indent=2, ensure_ascii=False)}\n"


def toml_of(document: Mapping[str, Any]) -> str:
    """Return sections of servers as TOML, a table for each server."""
    tables = [(section, name, entry) for section, servers in document.items() for name, entry in servers.items()]
    return "\n".join(
        f"[{section}.{_toml_value(name)}]\n" + "".join(f"{key} = {_toml_value(each)}\n" for key, each in entry.items())
        for section, name, entry in tables
    )


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml_value(key)} = {_toml_value(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    # Numbers, booleans and texts of JSON are TOML too, but for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
