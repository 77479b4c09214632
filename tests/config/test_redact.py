"""Redaction: no known secret and no secret's shape gets through, in any nesting."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config.redact import MASK, Redactor, secret_values

# Without letters of the mask itself, which would be found in it.
secrets = st.text(st.sampled_from("ghij0189-_/+=.&% \"'\\é€🔑"), min_size=4, max_size=24).filter(
    lambda text: len(text.strip()) >= 4
)
shapes = st.sampled_from(["{}", "key {} end", "a={}&b", "x{}y", "https://h/{}?q", '"{}"', "{0}{0}"])


@pytest.mark.parametrize(
    "text",
    [
        "sk-abcSECRETdef",
        "Authorization: Bearer SECRETSECRET",
        "authorization=Basic SECRETSECRET==",
        "{'Authorization': 'Bearer SECRETSECRET'}",
        '{"api_key": "SECRET with spaces"}',
        r'{"body": "{\"api_key\": \"SECRET with spaces\", \"a\": 1}"}',
        r'{"body": "{\\\"password\\\": \\\"SECRET\\\"}"}',
        "https://host/v1?key=SECRET&x=1",
        "https://host/v1?a=1&access_token=SECRET",
        "https://me:SECRET@host/v1",
        "postgres://SECRET@host",
        "OPENAI_API_KEY=SECRET",
        "password: SECRET",
        "xoxb-SECRET-123456",
        "ghp_SECRET0123456789abcd",
        "123456789:SECRET-abcdefghijklmnopqrstuvwxyz012345",
        "eyJhbGciOi.SECRETSECRET.SECRET",
        "Set-Cookie: SECRET",
    ],
)
def test_the_shape_of_a_secret_is_enough(text: str) -> None:
    redacted = Redactor().text(f"before {text} after")
    assert "SECRET" not in redacted
    assert redacted.startswith("before ")
    assert MASK in redacted


@pytest.mark.parametrize(
    "text",
    [
        "session_key=agent:main:telegram:dm:99",
        "max_tokens=5 tokens: 7",
        "key_env: OPENAI_API_KEY",
        "http://127.0.0.1:8642/v1/models",
        "the key of the door",
        "12:30 port 8642",
        "risk-averse and task-oriented",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert Redactor().text(text) == text


@given(secrets, shapes)
def test_a_known_secret_is_found_in_any_text(secret: str, shape: str) -> None:
    redactor = Redactor([secret])
    text = shape.format(secret)
    for written in (text, json.dumps(text), repr(text), quote(text), quote(text, safe="")):
        redacted = redactor.text(written)
        assert secret.strip() not in redacted.replace(MASK, "")
        assert quote(secret.strip(), safe="") not in redacted.replace(MASK, "")


def leaves_around(secret: str) -> st.SearchStrategy[object]:
    plain = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text("abc", max_size=3)
    )
    told = shapes.map(lambda shape: shape.format(secret))
    holders: st.SearchStrategy[object] = st.one_of(
        told, told.map(str.encode), told.map(ValueError), told.map(lambda text: {text: 1})
    )

    def nest(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        return st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(st.one_of(told, st.text("xyz", max_size=2)), inner, max_size=3),
        )

    return st.recursive(st.one_of(plain, holders), nest, max_leaves=12)


@given(st.data())
def test_a_known_secret_is_found_in_any_nesting(data: st.DataObject) -> None:
    secret = data.draw(secrets)
    value = data.draw(leaves_around(secret))
    redacted = Redactor([secret]).value(value)
    for written in (repr(redacted), json.dumps(redacted), json.dumps(redacted, ensure_ascii=False)):
        left = written.replace(MASK, "")
        assert secret.strip() not in left
        assert json.dumps(secret.strip())[1:-1] not in left


def test_a_number_that_is_a_secret_goes_too() -> None:
    assert Redactor(["12345678"]).value({"pin": 12345678, "n": 5}) == {"pin": MASK, "n": 5}


def test_a_field_with_a_secret_name_goes_whatever_it_holds() -> None:
    value = {
        "api_key": ["x"],
        "password": 1,
        "token": "t",
        "tokens": 7,
        "secret": "",
        "key_env": "A",
    }
    assert Redactor().value(value) == {
        "api_key": MASK,
        "password": MASK,
        "token": MASK,
        "tokens": 7,
        "secret": "",
        "key_env": "A",
    }


def test_an_error_is_redacted_with_its_causes() -> None:
    cause = KeyError("first hunter2hunter2")

    def fail() -> None:
        raise ValueError("second hunter2hunter2") from cause

    try:
        fail()
    except ValueError as error:
        told = Redactor(["hunter2hunter2"]).exception(error)
    assert "hunter2" not in told
    assert "Traceback" in told
    assert "KeyError" in told
    assert told.count(MASK) >= 2


def test_an_endless_value_and_one_that_cannot_be_shown_do_no_harm() -> None:
    endless: list[object] = []
    endless.append(endless)

    class Mute:
        def __str__(self) -> str:
            raise RuntimeError

    assert "…" in repr(Redactor().value(endless))
    assert Redactor().value(Mute()) == "<Mute>"


def test_secrets_can_be_learned_later_and_short_words_are_left_alone() -> None:
    redactor = Redactor(["abc", ""])
    assert redactor.text("abc hunter2") == "abc hunter2"
    redactor.learn(["hunter2"])
    assert redactor.text("abc hunter2") == f"abc {MASK}"


def test_secret_variables_are_known_by_their_names() -> None:
    environ = {"MY_TOKEN": "tokentoken", "PATH": "/bin/bin/bin", "USE_KEY": "true"}
    assert secret_values(environ) == {"tokentoken"}
