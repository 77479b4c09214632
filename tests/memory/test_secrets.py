"""What looks like a key or a password is found, and ordinary talk is not, in a few languages."""

from __future__ import annotations

import base64
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config.redact import MASK
from parley.memory.secrets import looks_secret, without_secrets

SECRETS = [
    "my password is hunter2",
    "Das Passwort lautet Sommer2024!",
    'Das Passwort ist "kleiner Hund"',
    "Le mot de passe est Tr0ub4dor",
    "La contraseña es gato1234",
    "Пароль: qwerty12",
    "пароль qwerty12",
    "密码是abc12345",
    "パスワードは abc123",
    "password: correcthorse",
    "WLAN-Passwort: Regenbogen",
    "The PIN of my card is 4711",
    "Die PIN meiner Karte ist 4711",
    "PIN 4711",
    "pin: 4711",
    "verification code 493021",
    "Your code is 493 021",
    "Dein Code lautet 493-021.",
    "G-493021 is your code",
    "493021 is your verification code",
    "el código es 493021",
    "codice 493021",
    "код 493021",
    "CVV 123",
    "4111 1111 1111 1111",
    "5500-0000-0000-0004",
    "378282246310005",
    "sk-abcdefgh",
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "d41d8cd98f00b204e9800998ecf8427e",
    "Authorization: Basic dXNlcjpwYXNz",
    "Basic dXNlcjpwYXNz",
    "ghp_abcdefghijklmnop1234",
    "https://bob:secret@example.org/x",
    "-----BEGIN OPENSSH PRIVATE KEY----- b3Bl",
    "XK7P2-9QWER-T4Y6U-8AS3D-K2P9Q",
    "The door code is 1234#",
    "passphrase: correct horse battery",
    "passcode 9981",
    "set the wifi password to Blue!fish",
]
ORDINARY = [
    "Speaks basic Spanish.",
    "Has basic knowledge of Python, and basic IT skills.",
    "Knows basic arithmetic",
    "Bearer of good news today",
    "Favourite cookie: oatmeal",
    "The dress code is casual",
    "The error code is 1603",
    "Error code 1603",
    "The zip code is 90210",
    "postal code 10115",
    "Country code is +49",
    "His password manager is Bitwarden",
    "Changed the password in 2024",
    "Forgot the password 3 times",
    "password is required",
    "The password is long and hard",
    "Wants passwords to be reset every 90 days",
    "Donaudampfschifffahrtsgesellschaftskapitänsmütze",
    "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz",
    "https://example.org/2026/11/16/some-long-article-title-about-tea-and-coffee",
    "https://github.com/someone/some-repository/blob/main/src/package/module_name.py#L120",
    "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
    "Call +49 170 12345678 or 0049 30 901820",
    "Born 1984-05-12, moved at 2026-11-16T11:49:38Z",
    "IBAN DE89 3704 0044 0532 0130 00",
    "AT61 4111 1111 1111 1111",
    "Parcel 4111 1111 1111 1112",
    "release2version3final",
    "DE89370400440532013000",
    "GB29 NWBK 6016 1331 9268 19",
    "550e8400-e29b-41d4-a716-446655440000",
    "IMG_20261116_114938_HDR_final.jpg",
    "someVeryLongCamelCaseFunctionName",
    "Order 1234567890123456 arrived",
    "alice@example.org wrote to @bob:example.org",
    "Works at T-Mobile; pins photos to the wall; tan trousers",
    "Writes code in Rust since 2019",
    "Pin 4 is ground",
    "The key of the door is under the mat",
    "Prefers tea to coffee.",
    "Er trinkt lieber Tee als Kaffee.",
    "Elle préfère le thé au café.",
    "お茶が好きです。",
    "telegram:99 and matrix:group:!room%3Aexample.org",
    "1763293778000",
    "risk-averse and task-oriented",
    "http://127.0.0.1:8642/v1/models",
    "Tan trousers, 2024 edition",
]


@pytest.mark.parametrize("text", SECRETS)
def test_what_opens_something_is_found_and_masked(text: str) -> None:
    for written in (text, f"Note this: {text}", f"({text})"):
        assert looks_secret(written)
    masked = without_secrets(text)
    assert MASK in masked
    assert not looks_secret(masked)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_talk_stays_as_it_is(text: str) -> None:
    assert without_secrets(text) == text
    assert without_secrets(f"Said: {text}") == f"Said: {text}"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("My password is hunter2 since May.", f"My password is {MASK} since May."),
        ("Die PIN meiner Karte ist 4711.", f"Die PIN meiner Karte ist {MASK}."),
        ("493021 is your code, Ann", f"{MASK} is your code, Ann"),
        ("Card 4111 1111 1111 1111, thanks", f"Card {MASK}, thanks"),
        ("İ PASSWORD IS Hunter2x İ", f"İ PASSWORD IS {MASK} İ"),
    ],
)
def test_only_the_secret_itself_is_masked(text: str, masked: str) -> None:
    assert without_secrets(text) == masked


def test_a_private_key_goes_as_a_whole_even_without_its_end() -> None:
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\nAAAA\n"
    assert without_secrets(f"see {block}-----END RSA PRIVATE KEY----- there") == f"see {MASK} there"
    assert without_secrets(f"see {block}") == f"see {MASK}"


@pytest.mark.parametrize("size", [24, 32, 43, 64])
def test_keys_that_a_machine_made_are_nearly_always_found(size: int) -> None:
    chance = random.Random(size)
    for made in (
        [base64.urlsafe_b64encode(chance.randbytes(size)).decode()[:size] for _ in range(300)],
        [chance.randbytes(size).hex()[:size] for _ in range(300)],
    ):
        assert sum(looks_secret(f"here: {key} bye") for key in made) >= 290


@given(st.text(max_size=200))
def test_what_is_masked_looks_secret_no_more(text: str) -> None:
    once = without_secrets(text)
    assert without_secrets(once) == once


@pytest.mark.parametrize(
    "part",
    ["Prefers tea to coffee, and walks. ", "a", "1", "a1", "my PIN is not here; ", "x: y = z, "],
)
def test_a_long_text_is_looked_through_in_no_time(part: str) -> None:
    text = part * (100_000 // len(part))
    spent = []
    for _ in range(3):
        begun = time.process_time()
        looks_secret(text)
        spent.append(time.process_time() - begun)
    assert min(spent) < 0.25
