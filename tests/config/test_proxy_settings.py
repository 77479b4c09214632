"""The address of a remote agent: where it may stand, whose it is, and what it may not be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config import (
    OPTIONAL_ENV_VARS,
    ConfigError,
    GatewayConfig,
    Secrets,
    get_value,
    load_house,
    load_settings,
    set_value,
)
from parley.config.env import looks_secret
from parley.config.proxy import address_fault, clean_address
from parley.profiles import Profile, profile_scope

VARIABLE = "GATEWAY_PROXY_URL"
NOTHING: Mapping[str, str] = {}


def url_of(profile: Profile, config: str = "", env: str = "", **environ: str) -> str | None:
    profile.config_file.write_text(config)
    profile.env_file.write_text(env)
    profile.env_file.chmod(0o600)
    return load_settings(profile, environ).gateway.proxy_url


def in_file(url: str) -> str:
    return f"gateway:\n  proxy_url: {url}\n"


def test_there_is_none_unless_one_is_set(profile: Profile) -> None:
    assert url_of(profile) is None
    assert GatewayConfig().proxy_model is None
    assert GatewayConfig().proxy_timeout_seconds == 300


def test_it_is_read_from_the_environment(profile: Profile) -> None:
    given_there = url_of(profile, GATEWAY_PROXY_URL="http://192.168.1.100:8642")
    assert given_there == "http://192.168.1.100:8642"


@pytest.mark.parametrize("text", ["http://host:8642/", "  http://host:8642//  "])
def test_space_around_it_and_a_slash_at_its_end_are_dropped(profile: Profile, text: str) -> None:
    assert url_of(profile, GATEWAY_PROXY_URL=text) == "http://host:8642"
    assert url_of(profile, in_file(f'"{text}"')) == "http://host:8642"


def test_it_is_read_from_the_file(profile: Profile) -> None:
    assert url_of(profile, in_file("http://10.0.0.1:8642")) == "http://10.0.0.1:8642"


def test_the_environment_is_above_env_file_above_the_settings(profile: Profile) -> None:
    config, env = in_file("http://config:1"), "GATEWAY_PROXY_URL=http://file:2\n"
    assert url_of(profile, config) == "http://config:1"
    assert url_of(profile, config, env) == "http://file:2"
    assert url_of(profile, config, env, GATEWAY_PROXY_URL="http://env:3") == "http://env:3"


def test_its_own_variable_is_above_the_general_one(profile: Profile) -> None:
    environ = {"PARLEY_GATEWAY_PROXY_URL": "http://general:1"}
    assert url_of(profile, **environ) == "http://general:1"
    assert url_of(profile, **environ, GATEWAY_PROXY_URL="http://own:2") == "http://own:2"


@pytest.mark.parametrize("blank", ["", " ", "\t", "/", " // "])
def test_blank_is_unset(profile: Profile, blank: str) -> None:
    assert url_of(profile, GATEWAY_PROXY_URL=blank) is None
    assert url_of(profile, in_file(f'"{blank}"'.replace("\t", " "))) is None
    if not blank.strip():
        assert url_of(profile, in_file("http://config:1"), GATEWAY_PROXY_URL=blank) is not None


def test_a_profile_has_its_own_and_not_that_of_another(profile: Profile) -> None:
    assert url_of(profile, in_file("http://default:1"), "GATEWAY_PROXY_URL=http://default:2\n")
    coder = Profile("coder", profile.home / "profiles" / "coder")
    coder.home.mkdir(parents=True)
    assert url_of(coder) is None
    assert url_of(coder, env="GATEWAY_PROXY_URL=http://coder:3\n") == "http://coder:3"
    assert set_value(coder, "gateway.proxy_url", "http://coder:4") == "http://coder:4"


def test_a_whole_record_gives_it_too() -> None:
    record = {"gateway": {"proxy_url": "http://a:1/"}}
    assert GatewayConfig.from_dict(record).proxy_url == "http://a:1"
    environ = {VARIABLE: "http://b:2"}
    assert GatewayConfig.from_dict(record, environ).proxy_url == "http://b:2"
    assert GatewayConfig.from_dict({"proxy_url": "http://a:1"}, {VARIABLE: " "}).proxy_url


@pytest.mark.parametrize(
    "url",
    [
        *("far:8642", "far", "ftp://far", "http://", "http:///v1", "http://[::1", "http://far:x"),
        *("http://far:99999", "http://far:0", "http://a b", "7", "http://far\\x", "httpx://far"),
    ],
)
def test_what_is_no_address_is_one_sentence(profile: Profile, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        url_of(profile, in_file(f"'{url}'"))
    assert "`gateway.proxy_url` wants an address that begins with http://" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        url_of(profile, GATEWAY_PROXY_URL=url)
    assert str(caught.value).startswith("`GATEWAY_PROXY_URL`: `gateway.proxy_url` wants an address")


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@far",
        "http://hunter2@far",
        "http://me:hun/hunter2@far",
        "http://me:a@hunter2@far",
        "http://far?key=hunter2",
        "http://far#hunter2",
        "https://me:hunter2@[far",
    ],
)
def test_an_address_with_a_secret_in_it_is_refused_and_not_shown(
    profile: Profile, url: str
) -> None:
    for config, environ in ((in_file(f"'{url}'"), NOTHING), ("", {VARIABLE: url})):
        with pytest.raises(ConfigError) as caught:
            url_of(profile, config, **environ)
        assert "GATEWAY_PROXY_KEY" in str(caught.value)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://far", "https://far.example/p/coder/v1", "HTTP://far:1", "http://[::1]:8642"]
)
def test_an_address_is_an_address(url: str) -> None:
    assert address_fault(url) is None


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_none_and_nothing_is_raised(text: str) -> None:
    cleaned = clean_address(f"http://{text}")
    if cleaned is not None and address_fault(cleaned) is None:
        assert "@" not in cleaned
        assert clean_address(cleaned) == cleaned


def test_the_settings_beside_it_are_checked(profile: Profile) -> None:
    profile.config_file.write_text("gateway:\n  proxy_model: coder\n  proxy_timeout_seconds: 5\n")
    gateway = load_settings(profile, NOTHING).gateway
    assert (gateway.proxy_model, gateway.proxy_timeout_seconds) == ("coder", 5)
    profile.config_file.write_text("gateway:\n  proxy_timeout_seconds: -1\n")
    with pytest.raises(ConfigError, match="0 or more"):
        load_settings(profile, NOTHING)


def test_the_house_may_be_asked_all_the_same(profile: Profile) -> None:
    url_of(profile, in_file("http://a:1"))
    assert load_house({"PARLEY_HOME": str(profile.home)}).proxy_url == "http://a:1"
    assert get_value(profile, "gateway.proxy_url") == "http://a:1"


def test_both_variables_are_known_and_only_the_key_is_secret(profile: Profile) -> None:
    for name, password in ((VARIABLE, False), ("GATEWAY_PROXY_KEY", True)):
        assert OPTIONAL_ENV_VARS[name]["category"] == "messaging"
        assert OPTIONAL_ENV_VARS[name]["password"] is password
        assert looks_secret(name) is password
    profile.env_file.write_text(f"{VARIABLE}=http://far\nGATEWAY_PROXY_KEY=hunter2-hunter2\n")
    with profile_scope(profile):
        secrets = Secrets(profile, NOTHING)
        assert secrets.get("GATEWAY_PROXY_KEY") == "hunter2-hunter2"
        assert secrets.values() == {"hunter2-hunter2"}
