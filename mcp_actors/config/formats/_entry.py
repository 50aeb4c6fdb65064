"""Convert an entry of a configuration file to a `ServerConfig`.

The keys of an entry may be unknown, misplaced or contradictory; errors and warnings name the key. A person is asked for
inputs only after every ``${…}`` of the entry has been parsed.

Owns: arguments of the `ServerConfig`; arguments of its transport.
Writes: warnings; questions to a person.
Calls: config, _file, _keys, _programs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePath
from typing import Any, Final

from ..._errors import ConfigError
from ..._misuse import is_number
from .._server import ServerConfig
from .._template import EXPANDED, INTERPRETERS, RESOLVED, Kind, SourceFile, Transport, make_transport, texts_in
from .._values import FROM_FILE, INPUT, Written, literal, parse, references
from . import _keys
from ._file import as_object, bad, child, did_you_mean, found, nearest, shown_key
from ._keys import IN_PYTHON, SETTABLE, Fields, Surroundings, home_of, is_oauth, read_oauth, read_settings, read_tools
from ._programs import FOREIGN, SUBSTITUTION, Program, looks_like_entry

# --- The kind of a server ---------------------------------------------------------------------------------------------


def kind_of(entry: Mapping[str, Any], transport: Fields) -> Kind:
    """Return how the server is reached. Refuse contradictions, and an entry with no command, URL or socket."""
    source, path = transport.source, transport.path
    said = [key for key in ("type", "transport") if entry.get(key) is not None]
    kinds = {key: _declared(entry[key], child(path, key), source) for key in said}
    if len(set(kinds.values())) > 1:
        raise bad(source, path, "'type' and 'transport' differ; remove one of them")
    declared = next(iter(kinds.values()), None)
    given = [field for field in ("command", "url", "address") if field in transport.keys]
    names = [transport.keys[field].removeprefix(path).lstrip(".") for field in given]
    if len(given) > 1:
        raise bad(source, path, f"both {names[0]!r} and {names[1]!r} are given; remove one of them")
    if not given:
        raise bad(source, path, _nothing_to_reach(path, entry, declared, entry[said[0]] if said else None))
    if declared is not None and _REACHED_BY.get(declared, "url") != given[0]:
        problem = f"{said[0]!r} is {entry[said[0]]!r}, which contradicts {names[0]!r}; remove one of them"
        raise bad(source, path, problem)
    if declared is None and given[0] == "url":
        return "http" if "httpUrl" in entry else "url"
    return declared or ("stdio" if given[0] == "command" else "socket")


_REACHED_BY: Final[Mapping[Kind, str]] = {"stdio": "command", "socket": "address"}
"""Kind → the field that says where the server is; any other kind has a URL."""


def _nothing_to_reach(path: str, entry: Mapping[str, Any], declared: Kind | None, word: str | None) -> str:
    for key, inner in entry.items():
        if key not in _keys.TRANSPORT and looks_like_entry(inner):
            section, _, name = path.rpartition(".")
            quoted = f'in TOML a dot in a name needs quotes: [{section}."{name}.{key}"]'
            remedy = "move its keys out of it" if key in _keys.KNOWN else quoted
            return f"the server is one level deeper, in {shown_key(key)}; {remedy}"
    unknown = (key for key in entry if key not in _keys.KNOWN)
    near = next(filter(None, (did_you_mean(key, ("command", "url")) for key in unknown)), "")
    if declared is None:
        return f"neither 'command' nor 'url' is given; write the program to start, or the URL to connect to{near}"
    wanted = {"stdio": "command", "socket": "socket"}.get(declared, "url")
    return f"the type is {word!r}, but there is no {wanted!r}; write it{near}"


def _declared(word: object, place: str, source: str) -> Kind:
    kind = _keys.TRANSPORT_KINDS.get(re.sub("[-_ ]", "", word).lower()) if isinstance(word, str) else None
    if kind is None:
        choices = "'stdio', 'http', 'sse' or 'socket'"
        raise bad(source, place, f"found {found(word)}; write {choices}{did_you_mean(word, _keys.TRANSPORT_KINDS)}")
    return kind


def leave_out_unsuited(kind: Kind, transport: Fields, warn: Callable[[str, str], None]) -> None:
    """Drop the fields of other kinds of servers, with a warning."""
    reached = {"command": "a command", "address": "a socket"}.get(_REACHED_BY.get(kind, "url"), "a URL")
    of_others = [(field, what) for what, fields in _keys.ONLY.items() if what != reached for field in fields]
    for field, what in of_others:
        if field in transport.values and _keys.SETTINGS not in transport.keys[field]:
            place = transport.keys.pop(field)
            if transport.values.pop(field):
                warn(place, f"this has no effect, because it is only for a server with {what}")


# --- Paths ------------------------------------------------------------------------------------------------------------

# A path should mean the same here as in the program of the file. All these programs start the servers of a project in
# its folder. Few expand ``~``; here it is expanded in commands and directories, where it can mean nothing else, and in
# the arguments of VS Code, as there. Elsewhere an argument may be meant for the server or for another machine.


def resolve_paths(transport: Fields, around: Surroundings) -> None:
    values = transport.values
    for field in ("command", "cwd"):
        if field in values:
            values[field] = _from_home(values[field])
    args = values.get("args")
    if around.of_vs_code and isinstance(args, (list, tuple)):
        values["args"] = tuple(map(_from_home, args))
    if around.cwd is not None:
        values["cwd"] = _within(literal(around.cwd), values.get("cwd"))


def _from_home(path: object) -> object:
    if not isinstance(path, str) or path.partition("/")[0] != "~":
        return path
    return literal(os.path.expanduser("~")) + path[1:]


def _within(folder: str, path: object) -> object:
    """Resolve a path in a folder. Keep an absolute path, and a path that begins with a variable: it may be absolute."""
    if path is None:
        return folder
    return os.path.join(folder, path) if isinstance(path, str) and path and not path.startswith("${") else path


# --- Variables, and the transport -------------------------------------------------------------------------------------


def transport_of(kind: Kind, fields: Fields, around: Surroundings, *, wanted: bool) -> Transport:
    """Make the transport. Keep a text with variables as written."""
    _pass_on(fields, around)
    known, used = around.variables, set[str]()
    # All texts share this dict. It is filled last, because `_values_of` may ask a person, who must not be asked for a
    # text that cannot be parsed. A `Written` refers to the dict, so fill it in place.
    variables: dict[str, str] = {}

    def written(field: str, place: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: written(field, child(place, name), each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [written(field, f"{place}[{index}]", each) for index, each in enumerate(value)]
        if not isinstance(value, str):
            return value
        parts = parse(value, where=place, variables=known)
        named = [*references(parts)]
        texts = {text for each in named for text in (each.text, f"{FROM_FILE}{each.name}")}
        ours = {text for text in texts if text in known or INPUT.fullmatch(text)}
        used.update(ours)
        if ours or (named and field not in RESOLVED):
            return Written(value, variables)
        return value if field in RESOLVED else "".join(map(str, parts))

    given: dict[str, Any] = {
        field: written(field, field, fields.values[field]) for field in EXPANDED if field in fields.values
    }
    variables |= _values_of(used, fields, around, wanted=wanted)
    return make_transport(kind, {**fields.values, **given})


def _check_notation(fields: Fields, around: Surroundings) -> None:
    """Refuse a command of a shell (``$(…)``) inside a text; warn of variables that are not expanded.

    Arguments may be meant for a shell: a command is refused there only if the program of the file would run it, and
    only an argument that is nothing but a variable gives a warning.
    """
    for field in EXPANDED:
        for key, text in texts_in(fields.values.get(field)):
            where = fields.keys[field] if key is None else child(fields.keys[field], key)
            if (field != "args" or around.program.is_shell) and SUBSTITUTION.search(text):
                problem = "'$(…)' is a command of a shell, which is never run"
                raise bad(fields.source, where, f"{problem}; write ${{NAME}} for the value of a variable")
            whole = field == "args" and FOREIGN.fullmatch(text)
            if whole or (field in ("env", "headers", "url", "auth") and FOREIGN.search(text)):
                around.warn(where, "a variable in this notation is not expanded here; write ${NAME} for its value")


def _pass_on(fields: Fields, around: Surroundings) -> None:
    """Move variables that only a ``.env`` file has from ``env_from`` to ``env``; a process inherits the rest."""
    names = fields.values.get("env_from", ())
    if isinstance(names, (list, tuple)):
        ours = [name for name in names if f"{FROM_FILE}{name}" in around.variables]
        if ours:
            fields.values["env_from"] = [name for name in names if name not in ours]
            fields.values["env"] = {**{name: f"${{{name}}}" for name in ours}, **fields.values.get("env", {})}


def _values_of(used: set[str], fields: Fields, around: Surroundings, *, wanted: bool) -> dict[str, str]:
    """Return the values of variables outside the environment; skip the inputs of an unwanted server."""
    values = {}
    for text in sorted(used):
        asked = INPUT.fullmatch(text)
        if asked is None:
            values[text] = around.variables[text]
        elif wanted:
            try:
                values[text] = around.inputs.variable(asked["id"])
            except ConfigError as error:
                raise bad(fields.source, fields.path, str(error)) from error.__cause__
    return values


# --- Convert an entry -------------------------------------------------------------------------------------------------


_SPACE: Final = re.compile(r"\s")
_MAY_BE_UNBOUNDED: Final = (
    *("connect_timeout", "startup_timeout", "request_timeout", "progress_timeout"),
    *("idle_timeout", "max_lifetime"),
)


def read_entry(name: str, entry: object, path: str, around: Surroundings) -> ServerConfig:
    """Make the configuration of one server. An error names the key, what was found, and what is expected."""
    entry = _as_mapping(entry, path, around.source)
    server, transport = Fields(around.source, path), Fields(around.source, path)
    given = _given(entry, around.program)
    for key in given:
        if key in _keys.KNOWN:
            _read_key(key, given[key], server, transport, around)
    around.warn_of_unknown(path, given, _keys.KNOWN, _remedy)
    read_tools(given, server)
    _read_credentials(given, transport)
    if _keys.SETTINGS in entry:
        read_settings(entry[_keys.SETTINGS], server, transport)
    kind = kind_of(given, transport)
    leave_out_unsuited(kind, transport, around.warn)
    _check_notation(transport, around)
    if kind == "stdio":
        resolve_paths(transport, around)
    for field in _MAY_BE_UNBOUNDED:
        # TOML has no null, so files say 0 for "no limit".
        if server.values.get(field) == 0 and not isinstance(server.values[field], bool):
            server.values[field] = None
    server.values.update(around.connect_timeout)
    enabled = is_enabled(entry, path, around.source) and not around.is_off
    wanted = enabled if around.only is None else name in around.only
    try:
        made = transport_of(kind, transport, around, wanted=wanted)
    except ConfigError as error:
        if error.source == around.source:
            raise
        raise transport.translated(error, name) from error.__cause__
    file = SourceFile(around.origin)
    file.entry = path
    try:
        return ServerConfig(name, made, enabled=enabled, source=file, **server.values)
    except ConfigError as error:
        raise server.translated(error, name) from error.__cause__


def is_enabled(entry: Mapping[str, Any], path: str, source: str) -> bool:
    """Return whether a server is enabled, by any of the keys. Refuse contradictions, and anything but bools."""
    said: dict[bool, str] = {}
    for key, means in _keys.SWITCHES.items():
        if not isinstance(entry.get(key, False), bool | None):
            raise bad(source, child(path, key), f"found {found(entry[key])}; write true or false")
        if entry.get(key) is not None:
            said[entry[key] is means] = key
    if len(said) == 2:
        raise bad(source, path, f"{' and '.join(map(repr, said.values()))} contradict each other; remove one of them")
    return False not in said


def _given(entry: Mapping[str, Any], program: Program) -> dict[str, Any]:
    """Return an entry with variables in our notation.

    Drop an empty command or URL next to a given one: some programs write both keys.
    """
    ours = {
        key: value if key == _keys.SETTINGS else program.translated(value, key)
        for key, value in entry.items()
        if value is not None
    }
    reached = [key for key in ours if key in _keys.COMMANDS or _keys.TRANSPORT.get(key) == "url"]
    empty = [key for key in reached if ours[key] == ""]
    return {key: value for key, value in ours.items() if key not in empty or len(empty) == len(reached)}


def _as_mapping(entry: object, path: str, source: str) -> Mapping[str, Any]:
    """Return an entry as a mapping; a str is short for a URL or a script."""
    if isinstance(entry, str):
        if "://" in entry:
            return {"url": entry}
        if interpreter := INTERPRETERS.get(PurePath(entry).suffix):
            return {"command": interpreter, "args": [_from_home(entry)]}
        endings = ", ".join(INTERPRETERS)
        remedy = f'a string must be a URL or a script ({endings}); else write {{"command": …, "args": […]}}'
        raise bad(source, path, f"found {found(entry)}; {remedy}")
    return as_object(source, path, entry, "an object with 'command' or 'url'")


def _remedy(key: object, known: Collection[str]) -> str:
    """Return the place of a misplaced setting, or the key nearest to a misspelled one."""
    if home := home_of(key):
        return f"; set {key} {home}"
    near = nearest(key, {*known, *SETTABLE, *IN_PYTHON})
    if near is None:
        return ""
    return f" (did you mean {near!r}?)" + ("" if near in known else f"; set that {home_of(near)}")


def _read_key(key: str, value: Any, server: Fields, transport: Fields, around: Surroundings) -> None:
    """Store the value of a key, or warn that the key has no effect."""
    if _keys.is_unsupported(key, value):
        remedy = _keys.UNSUPPORTED[key]
        if key == "timeout" and around.program.timeout and is_number(value):
            remedy = _in_seconds(value, around.program)
        around.warn(child(server.path, key), f"this is not supported and has no effect; {remedy}")
    elif is_oauth(key, value):
        auth = read_oauth(value, child(transport.path, key), around)
        if auth is not None:
            transport.put("auth", auth, key)
    elif key in _keys.COMMANDS:
        _read_command(key, value, transport, around)
    elif key == "headersHelper":
        problem = "this is a command, which is never run; write the header under 'headers', with ${NAME} in its value"
        raise bad(around.source, child(transport.path, key), problem)
    elif key in _keys.TRANSPORT:
        transport.put(_keys.TRANSPORT[key], _converted(key, value, child(transport.path, key), around), key)
    elif key in _keys.SERVER:
        in_seconds = value / 1000 if key.endswith("_ms") and is_number(value) else value
        if in_seconds is not value and 0 < in_seconds < 1:
            problem = f"no process starts in {value:g} ms; write startup_timeout_sec if it is meant in seconds"
            around.warn(child(server.path, key), problem)
        server.put(_keys.SERVER[key], in_seconds, key)


def _in_seconds(value: float, program: Program) -> str:
    """Return the replacement for a program's ``timeout``, which limits the start in opencode and Crush."""
    limit = "connect_timeout" if program.section == "mcp" else "request_timeout"
    is_ms = program.timeout == "ms"
    seconds, other = (value / 1000, value) if is_ms else (value, value / 1000)
    remedy = f'set "{_keys.SETTINGS}": {{"{limit}": {seconds:.15g}}}'
    if (0 < seconds < 1) if is_ms else seconds >= 1000:
        meant, read = ("seconds", "milliseconds") if is_ms else ("milliseconds", "seconds")
        remedy += f", or {other:g} if it is meant in {meant}, because {program.name} reads {read}"
    return remedy


_IN_COMMAND: Final = {"path": "command", "args": "args", "env": "env"}


def _read_command(name: str, value: object, transport: Fields, around: Surroundings) -> None:
    """Store a command: in old files of Zed an object, in files of opencode a list."""
    place = child(transport.path, name)
    if isinstance(value, (list, tuple)) and value:
        transport.put("command", value[0], name)
        if value[1:]:
            transport.put("args", value[1:], name)
    elif not isinstance(value, Mapping):
        transport.put("command", value, name)
    else:
        around.warn_of_unknown(place, value, _IN_COMMAND)
        for key, field in _IN_COMMAND.items():
            if value.get(key) is not None:
                transport.put(field, _converted(key, value[key], child(place, key), around), name, key)


def _args(value: object, place: str, around: Surroundings) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        example = ""
        if isinstance(value, str):  # perhaps a credential, unless it is only a script
            shown = value if PurePath(value).suffix in INTERPRETERS and not _SPACE.search(value) else "…"
            example = f", one for each word: {json.dumps([shown], ensure_ascii=False)}"
        raise bad(around.source, place, f"found {found(value)}; write a list of strings{example}")
    for index, each in enumerate(value):
        if isinstance(each, str) and re.match(r"--[\w-]+ ", each):
            around.warn(child(place, index), "this is an option, a space and more; write each as a string of its own")
    return value


def _names(value: object, place: str, around: Surroundings) -> list[str]:
    """Return the names of variables to pass on; files of Codex may have objects."""
    names = []
    for index, each in enumerate(_args(value, place, around)):
        around.warn_of_unknown(child(place, index), each, ("name", "source"))
        name = each.get("name") if isinstance(each, Mapping) else each
        names.append(_variable(name, child(place, index), around.source))
    return names


def _texts(value: object, place: str, around: Surroundings) -> dict[str, Any]:
    """Return a mapping to strings. Numbers become strings; null, as in VS Code, leaves a name out."""
    if value == []:
        return {}  # PHP writes an empty object like that
    texts = {}
    for name, each in as_object(around.source, place, value, 'an object like {"NAME": "value"}').items():
        if isinstance(name, str) and _SPACE.search(name):
            # "Authorization: Bearer …" as a name is a likely mistake. Do not show the credential.
            first = shown_key(_SPACE.split(name, maxsplit=1)[0])
            problem = f"a name that begins with {first} contains whitespace"
            raise bad(around.source, place, f'{problem}; write {{"NAME": "value"}}')
        if isinstance(each, (bool, list, Mapping)):
            remedy = "move it up, into the entry itself" if name in _keys.KNOWN else "write a string, in quotes"
            raise bad(around.source, child(place, name), f"found {found(each)}; {remedy}")
        if each is not None:
            texts[name] = str(each) if isinstance(each, (int, float)) else each
    return texts


_CONVERTERS: Final[Mapping[str, Callable[[object, str, Surroundings], object]]] = {
    "args": _args,
    "env": _texts,
    "env_from": _names,
    "headers": _texts,
}


def _converted(key: str, value: object, place: str, around: Surroundings) -> object:
    convert = _CONVERTERS.get(_keys.TRANSPORT.get(key, ""))
    return value if convert is None else convert(value, place, around)


def _read_credentials(entry: Mapping[str, Any], transport: Fields) -> None:
    """Store the credentials of Codex: names of environment variables."""
    variable = entry.get("bearer_token_env_var")
    if variable is not None:
        place = child(transport.path, "bearer_token_env_var")
        transport.put("auth", f"${{{_variable(variable, place, transport.source)}}}", "bearer_token_env_var")
    from_environment = entry.get("env_http_headers")
    if from_environment is None:
        return
    place = child(transport.path, "env_http_headers")
    if not isinstance(from_environment, Mapping):
        raise bad(transport.source, place, f"found {found(from_environment)}; write an object with strings as values")
    headers = dict(transport.values.get("headers", {}))
    for name, variable in from_environment.items():
        if name in headers:
            raise bad(transport.source, place, f"{shown_key(name)} is also in the headers; remove one of them")
        headers[name] = f"${{{_variable(variable, child(place, name), transport.source)}}}"
    transport.values["headers"] = headers
    transport.keys.setdefault("headers", place)


def _variable(name: object, place: str, source: str) -> str:
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise bad(source, place, f"found {found(name)}; write the name of an environment variable")
    return name
