"""Loading: what a file, `.env` and the environment make, and how each fault is told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config import ConfigError, Settings, load_settings
from parley.config.document import parse_document
from parley.config.load import validate
from parley.config.schema import env_name, leaves
from parley.profiles import Profile

PIECES = (
    *("gateway", "port", "1", ": ", ":", "\n", "  ", "\t", "- ", "? ", "<<", "#", "|", ">"),
    *("[", "]", "{", "}", "&a ", "*a", "'", '"', "!", "!!int ", "%YAML", "---", "..."),
)
NOTHING: Mapping[str, str] = {}


def faults_of(profile: Profile, text: str | bytes, environ: Mapping[str, str] = NOTHING) -> str:
    """Every fault, a line each, with the file's place left out."""
    content = text if isinstance(text, bytes) else text.encode()
    profile.config_file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_settings(profile, environ)
    told = "\n".join(fault.sentence for fault in caught.value.faults)
    assert str(caught.value) == caught.value.faults[0].sentence
    return told.replace(f"{profile.config_file}", "config.yaml")


def test_a_missing_file_is_all_defaults_and_nothing_is_written(profile: Profile) -> None:
    assert load_settings(profile, NOTHING) == Settings()
    assert list(profile.home.iterdir()) == []


def test_a_missing_home_is_all_defaults_too(tmp_path: Path) -> None:
    assert load_settings(Profile("default", tmp_path / "none"), NOTHING) == Settings()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["", "# only a comment\n", "gateway:\n", "---\n", "\ufeff"])
def test_a_file_that_sets_nothing_is_all_defaults(profile: Profile, text: str) -> None:
    profile.config_file.write_text(text, encoding="utf-8")
    assert load_settings(profile, NOTHING) == Settings()


def test_settings_come_from_the_file_then_env_file_then_environment(profile: Profile) -> None:
    profile.config_file.write_text("gateway:\n  port: 1\n  host: a\n  drain_seconds: 1\n")
    profile.env_file.write_text("PARLEY_GATEWAY_HOST=b\nPARLEY_GATEWAY_DRAIN_SECONDS=2\n")
    settings = load_settings(profile, {"PARLEY_GATEWAY_DRAIN_SECONDS": "3"})
    assert settings.gateway.port == 1
    assert settings.gateway.host == "b"
    assert settings.gateway.drain_seconds == 3


def test_the_environment_speaks_in_the_types_of_the_settings(profile: Profile) -> None:
    environ = {
        "PARLEY_MODEL_FALLBACK": "openai, anthropic",
        "PARLEY_PROVIDERS_OPENAI_TOOLS": "false",
        "PARLEY_PROVIDERS_MY_BOX_BASE_URL": "http://127.0.0.1:9/v1",
        "PARLEY_MODEL_PROVIDER": "my_box",
        "PARLEY_GATEWAY_PORT": "  ",
        "PARLEY_UNKNOWN": "x",
    }
    settings = load_settings(profile, environ)
    assert settings.model.fallback == ["openai", "anthropic"]
    assert settings.providers["openai"].tools is False
    assert settings.providers["my_box"].base_url == "http://127.0.0.1:9/v1"
    assert settings.gateway.port == 8642


def test_a_provider_with_a_dash_is_overridden_through_an_underscore(profile: Profile) -> None:
    profile.config_file.write_text("providers:\n  my-box:\n    base_url: http://a/v1\n")
    settings = load_settings(profile, {"PARLEY_PROVIDERS_MY_BOX_MODEL": "m"})
    assert list(settings.providers) == ["my-box"]
    assert settings.providers["my-box"].model == "m"


def test_no_two_settings_share_a_variable() -> None:
    names = [env_name(path) for path, _ in leaves()]
    assert len(names) == len(set(names))
    assert "PARLEY_GATEWAY_PORT" in names


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gateway:\n  port: [1\n", "config.yaml, line 3, column 1: this is not YAML: expected"),
        ("gateway:\n\tport: 1\n", "config.yaml, line 2, column 1: this is not YAML: found"),
        ("log: 'x\n", "config.yaml, line 2, column 1: this is not YAML"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: this is not YAML: found another document."),
        (
            "gatway:\n  port: 1\n",
            "config.yaml, line 1, column 1: unknown setting `gatway.port`; "
            "did you mean `gateway.port`?",
        ),
        (
            "gateway:\n  prot: 1\n",
            "line 2, column 3: unknown setting `gateway.prot`; did you mean `gateway.port`?",
        ),
        ("port: 1\n", "unknown setting `port`; did you mean `gateway.port`?"),
        ("zzz: 1\n", "unknown setting `zzz`; `parley config get` shows all of them."),
        (
            "gateway:\n  port: abc\n",
            "line 2, column 3: `gateway.port` wants a whole number, not `abc`",
        ),
        ("gateway:\n  port: true\n", "`gateway.port` wants a number, not `true`."),
        ("gateway:\n  port:\n", "`gateway.port` wants a whole number, not nothing."),
        ("gateway:\n  port: 70000\n", "`gateway.port` wants 65535 or less, not `70000`."),
        ("gateway:\n  host: 5\n", "`gateway.host` wants text, not `5`."),
        ("gateway:\n  drain_seconds: .nan\n", "line 2, column 3: `gateway.drain_seconds` wants"),
        ("gateway: [1]\n", "line 1, column 1: `gateway` wants settings under it, not a list."),
        ("gateway: 5\n", "`gateway` wants settings under it, not `5`."),
        ("agent:\n  tools: now\n", "`agent.tools` wants a list, not `now`."),
        ("agent:\n  tools: {a: 1}\n", "`agent.tools` wants a list, not settings under it."),
        ("log:\n  level: loud\n", "`debug`, `info`, `warning` or `error`, not `loud`."),
        ("- a\n", "line 1, column 1: settings such as `gateway:` are wanted here, not a list."),
        ("hello\n", "are wanted here, not a single value."),
        (
            "gateway:\n  port: 1\n  port: 2\n",
            "line 3, column 3: `gateway.port` is already set in line 2; remove one of the two.",
        ),
        ("a: 1\n\nb: \xff".encode("latin-1"), "config.yaml, line 3: not UTF-8 text"),
        ("log: !!python/object:os.system x\n", "column 6: the tag `tag:yaml.org,2002:python/"),
        ("log: !mine {level: info}\n", "the tag `!mine` is not allowed"),
        ("a: &a [*a]\n", "an alias here stands inside what it names."),
        ("gateway: {<<: {port: 1}}\n", "`<<` is not supported; write the settings out."),
        ("\x07", "line 1, column 1: a character here is not allowed in YAML."),
        ("[" * 1500, "it is nested too deeply."),
        (f"gateway: {{port: {'9' * 5000}}}\n", "this is not a number."),
        ("#" * 300_000, "config.yaml is larger than 256 KiB."),
        ("providers:\n  a.b: {}\n", "not `a.b`."),
        ("? [a]\n: 1\n", "a name is wanted before the colon."),
        (
            "model:\n  provider: opnai\n",
            "line 2, column 3: `model.provider` names the unknown provider `opnai`; "
            "did you mean `openai`?",
        ),
    ],
)
def test_every_fault_is_one_sentence_that_says_where(
    profile: Profile, text: str | bytes, told: str
) -> None:
    assert told in faults_of(profile, text)


def test_all_faults_are_kept_in_the_order_of_their_lines(profile: Profile) -> None:
    told = faults_of(profile, "gateway:\n  prt: 1\n  port: abc\n  host: 5\nlog:\n  level: x\n")
    assert [line.split(",")[1] for line in told.splitlines()] == [
        " line 2",
        " line 3",
        " line 4",
        " line 6",
    ]


def test_an_alias_bomb_is_refused(profile: Profile) -> None:
    levels = "abcdefghij"
    bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in pairwise(levels)
    )
    assert "it holds more than 20000 values." in faults_of(profile, bomb)


def test_an_ordinary_alias_is_fine(profile: Profile) -> None:
    profile.config_file.write_text(
        "providers:\n  a: &a {base_url: 'http://a/v1'}\n  b: *a\nmodel: {provider: b}\n"
    )
    assert load_settings(profile, NOTHING).providers["b"].base_url == "http://a/v1"


def test_a_key_in_the_file_is_pointed_to_its_place_and_not_repeated(profile: Profile) -> None:
    told = faults_of(profile, "providers:\n  openai:\n    api_key: hunter2hunter2\n")
    assert "keys belong in `.env`" in told
    assert "hunter2" not in told


def test_a_key_where_a_number_belongs_is_not_repeated(profile: Profile) -> None:
    told = faults_of(profile, "gateway:\n  port: sk-abcdefghijklmnop\n")
    assert "`gateway.port` wants a whole number" in told
    assert "abcdefgh" not in told


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (
            {"PARLEY_GATEWAY_PORT": "abc"},
            "`PARLEY_GATEWAY_PORT`: `gateway.port` wants a whole number, not `abc`.",
        ),
        ({"PARLEY_LOG_LEVEL": "loud"}, "`PARLEY_LOG_LEVEL`: `log.level` wants one of"),
        ({"PARLEY_MODEL_PROVIDER": "zzz"}, "`PARLEY_MODEL_PROVIDER`: `model.provider` names"),
    ],
)
def test_a_bad_variable_is_named(profile: Profile, environ: dict[str, str], told: str) -> None:
    assert faults_of(profile, "", environ).startswith(told)


def test_a_bad_setting_in_the_env_file_is_named_with_its_file(profile: Profile) -> None:
    profile.env_file.write_text("PARLEY_GATEWAY_PORT=abc\n")
    assert f"`PARLEY_GATEWAY_PORT` in {profile.env_file}: " in faults_of(profile, "")


def test_a_directory_in_the_place_of_the_file_is_told(profile: Profile) -> None:
    profile.config_file.mkdir()
    with pytest.raises(ConfigError, match=r"config\.yaml is a directory, but it must be a file\."):
        load_settings(profile, NOTHING)


def test_a_pipe_in_the_place_of_the_file_does_not_hang(profile: Profile) -> None:
    os.mkfifo(profile.config_file)
    with pytest.raises(ConfigError, match="is not an ordinary file"):
        load_settings(profile, NOTHING)


def test_a_file_as_home_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(ConfigError, match=r"Cannot read .*config\.yaml: not a directory\."):
        load_settings(Profile("default", tmp_path / "home"), NOTHING)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_told(profile: Profile) -> None:
    profile.config_file.write_text("log: {}\n")
    profile.config_file.chmod(0)
    with pytest.raises(ConfigError, match=r"Cannot read .*config\.yaml: permission denied\."):
        load_settings(profile, NOTHING)


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(PIECES),
            max_size=14,
        ).map("".join),
    )
)
def test_no_text_at_all_brings_anything_but_a_config_error(text: str) -> None:
    file = Path("config.yaml")
    try:
        validate(parse_document(text, file))
    except ConfigError as error:
        assert all("\n" not in fault.sentence for fault in error.faults)


def test_a_key_in_place_of_its_variables_name_is_refused_and_not_repeated(
    profile: Profile,
) -> None:
    key = "sk-proj-a1b2c3d4e5f6g7h8"
    profile.config_file.write_text(f"providers:\n  box:\n    key_env: {key}\n")
    with pytest.raises(ConfigError) as told:
        load_settings(profile, {})
    assert "`providers.box.key_env` wants the name of a variable" in str(told.value)
    assert key not in str(told.value)


def test_an_origin_that_no_browser_sends_is_refused_with_an_example(profile: Profile) -> None:
    profile.config_file.write_text('gateway:\n  api:\n    origins: ["*"]\n')
    with pytest.raises(ConfigError, match=r"wants an origin such as https://chat\.example\.org"):
        load_settings(profile, {})


def test_origins_are_taken_as_browsers_send_them(profile: Profile) -> None:
    profile.config_file.write_text("gateway:\n  api:\n    origins: [https://a.example:8443]\n")
    assert load_settings(profile, {}).gateway.api.origins == ["https://a.example:8443"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [("real", "direct"), (" Real ", "direct"), ("AGENT", "agent"), ("\tProxy\n", "proxy")],
)
def test_who_answers_on_matrix_may_be_written_in_any_letters(
    profile: Profile, given: str, meant: str
) -> None:
    settings = load_settings(profile, {"MATRIX_PLATFORM_BACKEND": given})
    assert settings.surfaces.matrix.backend == meant
    profile.env_file.write_text(f'MATRIX_PLATFORM_BACKEND="{given.strip()} "\n')
    assert load_settings(profile, {}).surfaces.matrix.backend == meant


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("public_url: agent.example.org", "wants an address that begins with https://"),
        ("public_url: https://ann:pw@example.org", "wants an address that begins with https://"),
        ("hosts: [https://example.org]", "wants the name of a host"),
        ("trusted_proxies: [proxy.lan]", "wants an address or a network"),
    ],
)
def test_what_is_no_name_or_address_is_refused_in_the_settings(
    profile: Profile, text: str, told: str
) -> None:
    profile.config_file.write_text(f"gateway:\n  {text}\n")
    with pytest.raises(ConfigError, match=told) as caught:
        load_settings(profile, {})
    assert "pw" not in str(caught.value)
