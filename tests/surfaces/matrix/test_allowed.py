from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.surfaces.matrix.allowed import Allowed, server_of

ANN = "@ann:example.org"


@pytest.mark.parametrize(
    ("allow", "user", "may"),
    [
        ([], ANN, False),
        ([ANN], ANN, True),
        ([ANN], "@ann:example.org.evil.net", False),
        ([ANN], "@Ann:example.org", False),
        ([ANN], "@ann:Example.org", False),
        (["*:example.org"], ANN, True),
        (["*:example.org"], "@ann:evil-example.org", False),
        (["*:example.org"], "@ann:sub.example.org", False),
        (["*:example.org"], "@ann:example.org:8448", False),
        (["*:example.org:8448"], "@ann:example.org:8448", True),
        (["*:[::1]:8448"], "@ann:[::1]:8448", True),
        (["*"], ANN, True),
        (["*"], "ann", False),
        (["*"], "", False),
        (["*"], "@:example.org", False),
        (["*"], "@ann:", False),
        (["*"], "@ann:example.org\n", False),
        (["*"], "@a\x00nn:example.org", False),
        (["*"], "@" + "a" * 250 + ":example.org", False),
    ],
)
def test_only_those_may_speak_whom_the_settings_name(
    allow: list[str], user: str, may: bool
) -> None:
    assert Allowed(allow, []).may_speak(user) is may


@pytest.mark.parametrize(
    "pattern",
    ["", "**", "*:", ":example.org", "@*:example.org", "*:*", "*@ann:example.org", " *", "@ann"],
)
def test_a_misspelt_pattern_lets_nobody_in_and_is_told_of(pattern: str) -> None:
    allowed = Allowed([pattern], [])

    assert not allowed.may_speak(ANN)
    assert allowed.misspelt == (pattern,)


def test_owners_may_speak_and_only_those_of_this_platform() -> None:
    allowed = Allowed([], [f"matrix:{ANN}", "telegram:@bob:example.org", "matrix:*", "matrix:"])

    assert allowed.may_speak(ANN)
    assert not allowed.may_speak("@bob:example.org")
    assert not allowed.may_speak("@carol:example.org")


@given(
    st.lists(st.text(alphabet="*@:ab.\n ", max_size=8)), st.text(alphabet="*@:ab.\n ", max_size=8)
)
def test_nobody_speaks_but_by_a_pattern_that_means_them(allow: list[str], user: str) -> None:
    if Allowed(allow, []).may_speak(user):
        assert {user, f"*:{server_of(user)}", "*"} & set(allow)
