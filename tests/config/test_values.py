"""Secrets, `${VAR}` and functions: hidden where they are shown, resolved anew each time."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import os
import pickle
import traceback
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from mcp_actors import ConfigError, Http, ServerConfig, Stdio
from mcp_actors.config import ConfigValue, Secret, expand, resolve, resolve_env, resolve_headers

from ..messages import Said

WHERE = "servers.docs.env.TOKEN"


class TestSecret:
    def test_it_gives_its_text_only_when_asked_to_reveal_it(self) -> None:
        secret = Secret("hunter2")
        assert secret.reveal() == "hunter2"
        assert repr(secret) == "Secret(…)"
        assert str(secret) == f"{secret}" == "…"
        assert "hunter2" not in repr({"key": [secret]})

    def test_it_is_equal_and_hashed_by_its_text(self) -> None:
        assert {Secret("a"): 1}[Secret("a")] == 1
        assert Secret("a") != Secret("b")
        assert Secret("a") != "a"

    def test_a_copy_is_itself_and_a_pickle_is_refused(self) -> None:
        """B-19."""
        secret = Secret("hunter2hunter2")
        assert copy.copy(secret) is copy.deepcopy(secret) is secret
        for dump in (pickle.dumps, json.dumps, lambda it: it.__getstate__(), lambda it: it.__reduce_ex__(2), vars):
            with pytest.raises(TypeError) as caught:
                dump(secret)
            assert "hunter2" not in str(caught.value)
        with pytest.raises(TypeError, match=r"reveal\(\)"):
            pickle.dumps(ServerConfig("docs", Stdio("docs", env={"TOKEN": secret})))

    def test_no_dump_of_a_container_shows_a_secret(self) -> None:
        """B-19."""

        @dataclasses.dataclass
        class Settings:
            token: Secret

        secret = Secret("hunter2hunter2")
        config = ServerConfig("docs", Http("https://example.com", auth=secret, headers={"X-Key": secret}))
        dumped = [attrs.asdict(config), dataclasses.asdict(Settings(secret)), json.dumps([secret], default=str)]
        assert "hunter2" not in f"{dumped} {secret} {secret!r} {[secret]} {'%s' % secret}"  # noqa: UP031  # as some do

    @pytest.mark.parametrize(("value", "shown"), [(b"hunter2", "a bytes"), (None, "None"), (Secret("x"), "a Secret")])
    def test_only_a_text_can_be_secret(self, value: Any, shown: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Secret(value)
        assert str(caught.value) == f"Secret: the value is {shown}; give a str (decode bytes first)"
        assert caught.value.source == "Secret"


def nested(depth: int) -> str:
    """A text of `depth` defaults inside each other, and one outside them."""
    return "${A:-" * depth + "x" + "}" * depth


class TestExpand:
    @pytest.mark.parametrize(
        ("text", "expanded"),
        [
            ("", ""),
            ("plain", "plain"),
            ("${A}", "1"),
            ("Bearer ${A}.${B_2}!", "Bearer 1.2!"),
            ("${EMPTY}", ""),
            ("${A:-x}", "1"),
            ("${UNSET:-x}", "x"),
            ("${EMPTY:-x}", "x"),
            ("${UNSET:-}", ""),
            ("${UNSET:-a:-b c}", "a:-b c"),
            ("${UNSET:-line\nline}", "line\nline"),
            ("${UNSET:-${A}}", "1"),
            ("${UNSET:-<${ALSO:-${A}}>}", "<1>"),
            ("${A:-${UNSET}}", "1"),
            ("${env:A}${env:UNSET:-x}", "1x"),
            ("$${A}", "${A}"),
            ("$${A", "${A"),
            ("$$${A}", "$${A}"),
            ("${UNSET:-$${A}}", "${A}"),
            ("$A $ $$ {A} 100%", "$A $ $$ {A} 100%"),
        ],
    )
    def test_references_are_replaced_and_all_else_stays(self, text: str, expanded: str) -> None:
        assert expand(text, {"A": "1", "B_2": "2", "EMPTY": ""}, where=WHERE) == expanded

    def test_the_value_of_a_variable_is_not_expanded_again(self) -> None:
        assert expand("${A}", {"A": "${B} ${", "B": "x"}, where=WHERE) == "${B} ${"

    def test_variables_that_refer_to_each_other_do_not_loop(self) -> None:
        assert expand("${A:-${B}}", {"A": "${B}", "B": "${A}"}, where=WHERE) == "${B}"

    def test_defaults_may_be_nested_but_not_without_a_bound(self) -> None:
        assert expand(nested(16), {}, where=WHERE) == "x"
        for depth in (17, 900):
            with pytest.raises(ConfigError, match="defaults are nested more than 16 deep"):
                expand(nested(depth), {}, where=WHERE)

    def test_a_text_that_would_become_very_long_is_refused(self) -> None:
        environ = {"A": "x" * 100_000}
        assert len(expand("${A}" * 10, environ, where=WHERE)) == 1_000_000
        for text in ("${A}" * 900, "${B:-" + "${A}" * 900 + "}"):
            with pytest.raises(ConfigError, match="longer than 1048576 characters"):
                expand(text, environ, where=WHERE)

    @pytest.mark.parametrize("text", ["${A}" * 1_001, nested(2_000), "${A:-" + "${B}" * 1_000 + "}", "$${" * 3_000])
    def test_a_text_that_would_take_long_to_be_taken_apart_is_refused(self, text: str) -> None:
        assert expand("${A}" * 1_000, {"A": ""}, where=WHERE) == ""
        with pytest.raises(ConfigError, match=f"{WHERE}: there are more than 1000 variables"):
            expand(text, {"A": "", "B": ""}, where=WHERE)

    def test_further_variables_come_first(self) -> None:
        variables = {"input:key": "k${A}", "A": "other"}
        assert expand("${input:key} ${A} ${env:A}", {"A": "1"}, where=WHERE, variables=variables) == "k${A} other 1"

    def test_an_input_without_a_value_is_named(self, said: Said) -> None:
        with pytest.raises(ConfigError) as caught:
            expand("${input:key}", {}, where=WHERE)
        said("input without a value", str(caught.value), where=WHERE)

    @pytest.mark.parametrize("text", ["x${MISSING}", "${UNSET:-${MISSING}}"])
    def test_an_undefined_variable_is_named_with_its_place(self, text: str, said: Said) -> None:
        with pytest.raises(ConfigError) as caught:
            expand(text, {"A": "1"}, where=WHERE)
        said("environment variable not set", str(caught.value), where=WHERE)
        assert caught.value.path == WHERE

    @pytest.mark.parametrize("text", ["hunter2${A", "${A:-${B}", "${"])
    def test_an_unclosed_reference_is_refused_without_the_text(self, text: str, said: Said) -> None:
        with pytest.raises(ConfigError) as caught:
            expand(text, {"A": "1"}, where=WHERE)
        said("variable without a closing brace", str(caught.value), where=WHERE)

    @pytest.mark.parametrize("text", ["${}", "${hunter 2}", "${1}", "${A-x}", "${A:x}", "${:-x}", "${ A }", "${A\n}"])
    def test_a_malformed_reference_is_refused_without_the_text(self, text: str, said: Said) -> None:
        with pytest.raises(ConfigError) as caught:
            expand(text, {"A": "1"}, where=WHERE)
        said("malformed variable", str(caught.value), where=WHERE)

    @given(st.text(alphabet="${}:-AB x", max_size=40))
    def test_any_text_expands_or_is_a_configuration_error(self, text: str) -> None:
        with contextlib.suppress(ConfigError):
            assert isinstance(expand(text, {"A": "1"}, where=WHERE), str)

    @given(st.text(alphabet="${}:-AB x"))
    def test_every_text_can_be_written_literally(self, text: str) -> None:
        escaped = text.replace("${", "$${")
        assert expand(escaped, {}, where=WHERE) == text


class TestResolve:
    async def test_a_text_is_expanded_with_the_variables_of_this_moment(self) -> None:
        environ = {"A": "1"}
        assert await resolve("x${A}", environ, where=WHERE) == "x1"
        environ["A"] = "2"
        assert await resolve("x${A}", environ, where=WHERE) == "x2"

    async def test_a_secret_is_taken_literally(self) -> None:
        assert await resolve(Secret("a${A}"), {"A": "1"}, where=WHERE) == "a${A}"

    async def test_a_function_is_called_each_time_and_awaited_if_it_is_async(self) -> None:
        calls = iter(["one", "${two}"])

        async def later() -> str:
            return next(calls)

        value: ConfigValue = later
        assert await resolve(value, {}, where=WHERE) == "one"
        assert await resolve(lambda: next(calls), {}, where=WHERE) == "${two}"

    async def test_a_function_that_raises_is_named_by_its_place_and_its_text_is_not_repeated(self, said: Said) -> None:
        def fetch() -> str:
            raise KeyError("hunter2")

        async def fetch_later() -> str:
            return fetch()

        values: list[ConfigValue] = [fetch, fetch_later]
        for value in values:
            with pytest.raises(ConfigError) as caught:
                await resolve(value, {}, where=WHERE)
            said("function for a value raised", str(caught.value), where=WHERE)
            assert isinstance(caught.value.__cause__, KeyError)
            assert caught.value.path == WHERE

    @pytest.mark.parametrize(
        ("returned", "shown"), [(None, "None"), (b"hunter2", "a bytes"), (Secret("hunter2"), "a Secret")]
    )
    async def test_a_function_must_return_a_text(self, returned: Any, shown: str, said: Said) -> None:
        with pytest.raises(ConfigError) as caught:
            await resolve(lambda: returned, {}, where=WHERE)
        said("function for a value returned no str", str(caught.value), where=WHERE, kind=shown)
        assert "hunter2" not in "".join(traceback.format_exception_only(caught.value))

    async def test_all_of_an_env_is_resolved_by_name(self) -> None:
        env: dict[str, ConfigValue] = {"A": "${X}", "B": Secret("b\n"), "C": lambda: "c"}
        assert await resolve_env(env, {"X": "x"}, where="servers.docs.env") == {"A": "x", "B": "b\n", "C": "c"}

    async def test_a_resolved_variable_must_not_hold_nul(self) -> None:
        with pytest.raises(ConfigError) as caught:
            await resolve_env({"A": lambda: "hunter2\0"}, {}, where="servers.docs.env")
        assert "contains a NUL character; remove it" in str(caught.value)
        assert caught.value.path == "servers.docs.env.A"

    async def test_a_resolved_variable_must_be_encodable(self) -> None:
        """B-19: its error would be one of Python's, with all of the value in it."""
        with pytest.raises(ConfigError) as caught:
            await resolve_env({"A": lambda: "hunter2\ud800"}, {}, where="servers.docs.env")
        assert caught.value.path == "servers.docs.env.A"
        assert "cannot represent" in str(caught.value)
        assert "hunter2" not in "".join(traceback.format_exception_only(caught.value))

    async def test_undecodable_bytes_from_the_environment_can_be_passed_on(self) -> None:
        """A byte of another encoding is half a surrogate pair to Python."""
        value = os.fsdecode(b"latin-1 \xfc")
        assert await resolve_env({"A": "${X}"}, {"X": value}, where="servers.docs.env") == {"A": value}

    async def test_all_headers_are_resolved_by_name(self) -> None:
        headers: dict[str, ConfigValue] = {"Authorization": "Bearer ${T}", "X-Tab": "a\tb"}
        resolved = await resolve_headers(headers, {"T": "t"}, where="servers.docs.headers")
        assert resolved == {"Authorization": "Bearer t", "X-Tab": "a\tb"}

    @pytest.mark.parametrize(
        ("token", "problem"),
        [
            ("hunter2\n", "the value contains a line break"),
            ("h\r\nX: y", "the value contains a line break"),
            (
                "",
                "the value begins or ends with whitespace",
            ),
            ("hünter2", "the value contains a character that is not printable ASCII"),
            ("h\x00r", "the value contains a character that is not printable ASCII"),
        ],
    )
    async def test_a_resolved_header_that_cannot_be_sent_is_refused_without_being_shown(
        self, token: str, problem: str, said: Said
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            await resolve_headers({"Authorization": "Bearer ${T}"}, {"T": token}, where="servers.docs.headers")
        said(problem, str(caught.value))
        assert caught.value.path == "servers.docs.headers.Authorization"
