"""The settings of the gateway as a whole: where they stand, what they may be, whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from parley.config import (
    ConfigError,
    GatewayConfig,
    get_value,
    load_house,
    load_settings,
    set_value,
    set_values,
)
from parley.config.settings import RouteSettings
from parley.profiles import Profile

VARIABLE = "GATEWAY_MULTIPLEX_PROFILES"
TRUE = ["true", "True", "TRUE", "1", "yes", "YES", "on", "On"]
FALSE = ["false", "False", "0", "no", "NO", "off", "OFF"]


def flag(record: dict[str, Any], **environ: str) -> bool:
    return GatewayConfig.from_dict(record, environ).multiplex_profiles


class Home:
    """A default profile whose settings are written and read."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.environ = {"PARLEY_HOME": str(profile.home)}

    def write(self, config: str, env: str = "") -> None:
        self.profile.config_file.write_text(config)
        self.profile.env_file.write_text(env)
        self.profile.env_file.chmod(0o600)

    def house(self, **more: str) -> GatewayConfig:
        return load_house({**self.environ, **more})

    def both(self, **more: str) -> GatewayConfig:
        """The gateway's settings, which are the same by either way of asking."""
        house = self.house(**more)
        assert load_settings(self.profile, {**self.environ, **more}).gateway == house
        return house

    def fault(self, **more: str) -> str:
        """The one sentence by either way of asking."""
        environ = {**self.environ, **more}
        with pytest.raises(ConfigError) as of_house:
            load_house(environ)
        with pytest.raises(ConfigError) as of_profile:
            load_settings(self.profile, environ)
        assert str(of_house.value) == str(of_profile.value)
        return str(of_house.value)


@pytest.fixture
def home(profile: Profile) -> Home:
    return Home(profile)


@pytest.fixture
def coder(profile: Profile) -> Profile:
    made = Profile("coder", profile.home / "profiles" / "coder")
    made.home.mkdir(parents=True)
    made.config_file.touch()
    return made


# ── the flag ──


def test_it_is_off_by_default() -> None:
    assert GatewayConfig().multiplex_profiles is False
    assert GatewayConfig().to_dict()["multiplex_profiles"] is False
    assert flag({}) is False


def test_it_may_stand_at_the_top_or_under_gateway() -> None:
    assert flag({"multiplex_profiles": True})
    assert flag({"gateway": {"multiplex_profiles": True}})
    assert flag({"multiplex_profiles": True, "gateway": {"port": 0}})
    assert flag({"multiplex_profiles": True, "gateway": None})
    assert flag({"multiplex_profiles": True, "port": 0})


def test_under_gateway_is_above_the_top() -> None:
    assert not flag({"multiplex_profiles": True, "gateway": {"multiplex_profiles": False}})
    assert flag({"multiplex_profiles": False, "gateway": {"multiplex_profiles": True}})


def test_a_whole_configuration_may_have_no_gateway_section() -> None:
    assert not flag({"model": {"provider": "local"}})
    assert flag({"model": {"provider": "local"}, "multiplex_profiles": "on"})
    assert flag({"model": {"provider": "local"}, "gateway": None}, **{VARIABLE: "on"})


@pytest.mark.parametrize("record", [{"prot": 1}, {"gateway": {"prot": 1}}, {"gateway": 5}])
def test_what_is_no_setting_is_refused_whatever_the_environment_says(
    record: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError):
        flag(record, **{VARIABLE: "on"})


@pytest.mark.parametrize(
    ("text", "meant"), [*((text, True) for text in TRUE), *((text, False) for text in FALSE)]
)
def test_a_text_is_understood_wherever_it_stands(text: str, meant: bool) -> None:
    assert flag({"multiplex_profiles": text}) is meant
    assert flag({"gateway": {"multiplex_profiles": text}}) is meant
    assert flag({"multiplex_profiles": not meant}, **{VARIABLE: text}) is meant
    assert flag({}, **{VARIABLE: f" {text}\n"}) is meant


def test_the_environment_wins_over_both_and_a_blank_one_says_nothing() -> None:
    everywhere = {"multiplex_profiles": True, "gateway": {"multiplex_profiles": True}}
    assert not flag(everywhere, **{VARIABLE: "off"})
    assert flag(everywhere, **{VARIABLE: "  "})


def test_what_was_given_is_left_as_it_was() -> None:
    section: dict[str, Any] = {"port": 1}
    record = {"multiplex_profiles": True, "gateway": section}
    flag(record, **{VARIABLE: "off"})
    flag(section, **{VARIABLE: "off"})
    assert record == {"multiplex_profiles": True, "gateway": {"port": 1}}


@pytest.mark.parametrize("value", ["maybe", "2", "", 2, None, [True], {"a": 1}, 0.5])
def test_an_unreadable_value_is_an_error_that_names_it(value: object) -> None:
    for record in ({"multiplex_profiles": value}, {"gateway": {"multiplex_profiles": value}}):
        with pytest.raises(ValidationError) as caught:
            GatewayConfig.from_dict(record)
        assert "multiplex_profiles" in str(caught.value)
        assert repr(value) in str(caught.value)


_ROUTES = st.builds(
    RouteSettings,
    profile=st.sampled_from(["default", "coder"]),
    **{
        name: st.none() | st.text(max_size=5).filter(str.strip) | st.integers().map(str)
        for name in ("platform", "account", "guild", "chat", "thread", "user")
    },
)


@given(
    st.builds(
        GatewayConfig,
        port=st.integers(0, 65_535),
        drain_seconds=st.floats(0, 86_400),
        busy=st.sampled_from(["steer", "queue", "interrupt"]),
        multiplex_profiles=st.booleans(),
        profiles=st.lists(st.sampled_from(["default", "coder", "writer"])),
        routes=st.lists(_ROUTES, max_size=3),
    )
)
def test_everything_comes_back_as_it_went(config: GatewayConfig) -> None:
    assert GatewayConfig.from_dict(config.to_dict()) == config
    assert GatewayConfig.from_dict({"gateway": config.to_dict()}) == config


# ── in the files ──


@pytest.mark.parametrize(
    "config",
    [
        "multiplex_profiles: true\n",
        "multiplex_profiles: 'Yes'\ngateway:\n",
        "gateway:\n  multiplex_profiles: on\n",
        "gateway: {multiplex_profiles: '1', port: 0}\n",
    ],
)
def test_the_file_may_say_it_in_either_place(home: Home, config: str) -> None:
    home.write(config)
    assert home.both().multiplex_profiles
    assert not home.both(**{VARIABLE: "off"}).multiplex_profiles
    assert get_value(home.profile, "gateway.multiplex_profiles", home.environ) is True


def test_the_environment_is_above_the_env_file_and_that_above_the_settings(home: Home) -> None:
    home.write("gateway:\n  multiplex_profiles: off\n", f"{VARIABLE}=on\n")
    assert home.both().multiplex_profiles
    assert not home.both(**{VARIABLE: "no"}).multiplex_profiles
    assert home.both(PARLEY_GATEWAY_MULTIPLEX_PROFILES="off", **{VARIABLE: "on"}).multiplex_profiles


def test_an_unreadable_value_is_one_sentence_with_its_place(home: Home) -> None:
    wants = "`gateway.multiplex_profiles` wants `true` or `false`, not `maybe`."
    file = home.profile.config_file
    home.write("# mine\ngateway:\n  multiplex_profiles: maybe\n")
    assert home.fault() == f"{file}, line 3, column 3: {wants}"
    home.write("multiplex_profiles: maybe\n")
    assert home.fault().startswith(str(file))
    assert home.fault().endswith(wants)
    home.write("", f"{VARIABLE}=maybe\n")
    assert home.fault() == f"`{VARIABLE}` in {home.profile.env_file}: {wants}"
    home.write("")
    assert home.fault(**{VARIABLE: "maybe"}) == f"`{VARIABLE}`: {wants}"


def test_a_good_variable_stands_above_a_value_nobody_can_read(home: Home) -> None:
    home.write("gateway:\n  multiplex_profiles: maybe\n")
    assert home.both(**{VARIABLE: "on"}).multiplex_profiles


def test_the_house_is_known_when_the_rest_of_the_default_profile_is_wrong(home: Home) -> None:
    home.write(
        "multiplex_profiles: on\nmodel: 5\nnonsense: 3\nsessions: {reset: sometimes}\n"
        "providers: {'bad name': {kind: none}}\n"
        "gateway: {profiles: [default, coder]}\n"
    )
    with pytest.raises(ConfigError):
        load_settings(home.profile, home.environ)
    house = home.house()
    assert (house.multiplex_profiles, house.profiles) == (True, ["default", "coder"])


def test_what_is_wrong_in_the_house_itself_is_told(home: Home) -> None:
    home.write("model: 5\ngateway: {prot: 1}\n")
    with pytest.raises(ConfigError, match=r"unknown setting `gateway\.prot`"):
        home.house()


def test_a_file_that_is_no_yaml_is_told(home: Home) -> None:
    home.write("gateway: [\n")
    assert str(home.profile.config_file) in home.fault()


def test_no_file_at_all_is_a_house_of_defaults(tmp_path: Path) -> None:
    assert load_house({"PARLEY_HOME": str(tmp_path / "nowhere")}) == GatewayConfig()


def test_the_house_asks_the_default_profile_whichever_is_active(home: Home, coder: Profile) -> None:
    home.write("gateway: {multiplex_profiles: on}\n")
    coder.config_file.write_text("gateway: {multiplex_profiles: off}\n")
    assert home.house(PARLEY_PROFILE="coder").multiplex_profiles


# ── whose they are ──


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("gateway.multiplex_profiles", "on"),
        ("gateway.profiles", "coder"),
        ("gateway.routes", "x"),
        (" gateway.multiplex_profiles ", "on"),
    ],
)
def test_a_named_profile_has_no_house_settings(coder: Profile, setting: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        set_values(coder, {"gateway.port": 1, setting: value})
    assert "is for all profiles together: parley --profile default config set" in str(caught.value)
    assert coder.config_file.read_text() == ""


def test_the_default_profile_has_them(home: Home) -> None:
    set_value(home.profile, "gateway.multiplex_profiles", "yes")
    set_value(home.profile, "gateway.profiles", "default, coder")
    house = home.house()
    assert (house.multiplex_profiles, house.profiles) == (True, ["default", "coder"])


def test_a_flag_at_the_top_gives_way_to_what_is_set(home: Home) -> None:
    home.write("multiplex_profiles: on  # mine\n")
    set_value(home.profile, "gateway.multiplex_profiles", "off")
    assert home.both().multiplex_profiles is False


# ── routes ──


def routes(home: Home, *lines: str) -> None:
    home.write("gateway:\n  routes:\n" + "".join(f"    - {line}\n" for line in lines))


def test_numbers_become_text(home: Home) -> None:
    routes(home, "{profile: 7, platform: telegram, chat: -100123, user: 0, thread: 12}")
    [route] = home.both().routes
    assert route == RouteSettings(
        profile="7", platform="telegram", chat="-100123", user="0", thread="12"
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{profile: coder, chat: ''}", "`gateway.routes.0.chat` wants text, not nothing."),
        ("{profile: '', chat: x}", "`gateway.routes.0.profile` wants text, not nothing."),
        ("{profile: coder, chat: true}", "`gateway.routes.0.chat` wants text, not `true`."),
        ("{profile: coder, thread: 1.5}", "`gateway.routes.0.thread` wants text, not `1.5`."),
        ("{profile: coder, room: x}", "unknown setting `gateway.routes.0.room`"),
        ("{chat: x}", "`gateway.routes.0.profile` is missing."),
        ("coder", "`gateway.routes.0` wants settings under it, not `coder`."),
    ],
)
def test_a_route_that_cannot_be_is_told_with_its_place(home: Home, line: str, told: str) -> None:
    routes(home, line)
    fault = home.fault()
    assert fault.startswith(f"{home.profile.config_file}, line ")
    assert told in fault


def test_the_faulty_route_is_counted(home: Home) -> None:
    routes(home, "{profile: coder, chat: x}", "{profile: coder, chat: ''}")
    assert "`gateway.routes.1.chat`" in home.fault()
