"""Editing: only what was asked changes, and a bad value changes nothing."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config import ConfigError, get_value, load_settings, set_value, set_values, unset_value
from parley.config.edit import HEAD
from parley.profiles import Profile

COMMENTED = """\
# My settings.

gateway:   # the server
    port: 9000   # behind nginx

    # who may connect
    host: "0.0.0.0"

# ── models ──
model:
    provider: openai
    fallback:
      - local   # last resort
      # not yet: anthropic
      - anthropic
# the end
"""


def write(profile: Profile, text: str) -> None:
    profile.config_file.write_text(text, newline="")


def read(profile: Profile) -> str:
    with profile.config_file.open(newline="") as file:
        return file.read()


def test_a_changed_value_is_all_that_changes(profile: Profile) -> None:
    write(profile, COMMENTED)
    set_value(profile, "gateway.port", "9001")
    assert read(profile) == COMMENTED.replace("9000", "9001")


def test_a_new_setting_goes_to_the_end_of_its_section(profile: Profile) -> None:
    write(profile, COMMENTED)
    set_value(profile, "gateway.busy", "queue")
    old = '    host: "0.0.0.0"\n'
    assert read(profile) == COMMENTED.replace(old, old + "    busy: queue\n")


def test_a_new_section_goes_to_the_end(profile: Profile) -> None:
    write(profile, COMMENTED)
    set_value(profile, "log.level", "debug")
    set_value(profile, "providers.box.base_url", "http://127.0.0.1:1/v1")
    assert load_settings(profile, {}).providers["box"].base_url == "http://127.0.0.1:1/v1"
    kept = [line for line in read(profile).splitlines() if line in COMMENTED.splitlines()]
    assert kept == COMMENTED.splitlines()


def test_unset_takes_out_the_line_and_leaves_the_comments_around_it(profile: Profile) -> None:
    write(profile, COMMENTED)
    assert unset_value(profile, "gateway.port")
    assert read(profile) == COMMENTED.replace("    port: 9000   # behind nginx\n", "")
    assert not unset_value(profile, "gateway.port")


def test_a_replaced_list_keeps_the_comments_that_stood_in_it(profile: Profile) -> None:
    write(profile, COMMENTED)
    set_value(profile, "model.fallback", "anthropic,local")
    assert get_value(profile, "model.fallback", {}) == ["anthropic", "local"]
    assert "# not yet: anthropic" in read(profile)
    assert "# last resort" in read(profile)
    assert read(profile).endswith("# the end\n")


def test_unset_of_the_last_setting_leaves_an_empty_section(profile: Profile) -> None:
    write(profile, "log:\n  # how much\n  level: debug\n")
    assert unset_value(profile, "log.level")
    assert read(profile) == "log:\n  # how much\n"
    set_value(profile, "log.level", "error")
    assert get_value(profile, "log.level", {}) == "error"
    assert "# how much" in read(profile)


@pytest.mark.parametrize(
    "text",
    [
        "gateway: {host: a}  # flow\n",
        "gateway: {}  # empty\n",
        "gateway: null  # null\n",
        "gateway:\n",
        "gateway:  # nothing yet\nlog:\n  level: info\n",
        "gateway:\n  port:   1",
        "gateway: {port: 1}",
        "'gateway':\n  'port': '1'\n",
        "gateway:\r\n  host: a\r\nlog: {}\r\n",
        "---\ngateway:\n  host: |\n    a\n# after\n",
        "gateway: &g\n  host: a\n",
        "# only a comment",
        "---\n# a document\n",
    ],
)
def test_however_it_is_written_it_can_be_changed(profile: Profile, text: str) -> None:
    write(profile, text)
    set_value(profile, "gateway.port", "77")
    assert get_value(profile, "gateway.port", {}) == 77
    comments = [line[line.index("#") :] for line in text.splitlines() if "#" in line]
    assert all(comment in read(profile) for comment in comments)
    unset_value(profile, "gateway.port")
    assert get_value(profile, "gateway.port", {}) == 8642


def test_a_value_under_a_name_of_ones_own_can_be_set_and_unset(profile: Profile) -> None:
    profile.config_file.write_text("agent:\n  safety:\n    # mine\n    email-send: true\n")
    assert set_value(profile, "agent.safety.file-delete", "no") is False
    assert set_value(profile, "agent.surfaces.webhook", "now, web_fetch") == ["now", "web_fetch"]
    assert get_value(profile, "agent.surfaces.webhook") == ["now", "web_fetch"]
    assert "# mine" in profile.config_file.read_text()
    settings = load_settings(profile, {})
    assert settings.agent.safety == {"email-send": True, "file-delete": False}
    assert unset_value(profile, "agent.safety.file-delete")
    assert load_settings(profile, {}).agent.safety == {"email-send": True}


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("agent.safety.file-delete", "perhaps", "`agent.safety.file-delete` wants `true` or"),
        ("agent.safety", "off", "`agent.safety` holds names with values; set one, as"),
        ("agent.safety.file-delete.more", "no", "Unknown setting `agent.safety.file-delete.more`"),
        ("prices.large.input", "1", "`prices.large.output` is needed as well: write both"),
    ],
)
def test_what_does_not_fit_under_a_name_is_told(
    profile: Profile, path: str, value: str, told: str
) -> None:
    write(profile, COMMENTED)
    with pytest.raises(ConfigError, match=re.escape(told)):
        set_value(profile, path, value)
    assert read(profile) == COMMENTED


def test_a_section_of_names_may_be_left_empty(profile: Profile) -> None:
    profile.config_file.write_text("agent:\n  safety:\n    # email-send: false\nmcp:\n")
    assert load_settings(profile, {}).agent.safety == {}


@pytest.mark.parametrize("path", ["plan.tokens", "budgets.user.day_money", "model.name"])
def test_null_is_the_value_of_what_may_have_none(profile: Profile, path: str) -> None:
    assert set_value(profile, path, "null") is None
    assert profile.config_file.read_text() == HEAD
    assert set_value(profile, path, "12") is not None
    assert set_value(profile, path, "null") is None
    assert get_value(profile, path, {}) is None


def test_null_is_not_the_value_of_what_must_have_one(profile: Profile) -> None:
    with pytest.raises(ConfigError, match="wants a whole number"):
        set_value(profile, "gateway.port", "null")


def test_crlf_stays_crlf(profile: Profile) -> None:
    write(profile, "gateway:\r\n  host: a\r\n")
    set_value(profile, "gateway.port", "77")
    assert read(profile) == "gateway:\r\n  host: a\r\n  port: 77\r\n"


def test_what_is_shared_by_an_alias_is_not_changed_behind_its_back(profile: Profile) -> None:
    text = "providers:\n  a: &a\n    model: m\n    base_url: http://a/v1\n  b: *a\n"
    write(profile, text)
    with pytest.raises(ConfigError, match="edit the file by hand"):
        set_value(profile, "providers.b.model", "n")
    assert read(profile) == text


def test_a_new_file_has_a_head_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    profile = Profile("default", tmp_path / "new" / "home")
    set_value(profile, "gateway.port", "77")
    assert read(profile) == HEAD + "gateway:\n  port: 77\n"
    assert stat.S_IMODE(profile.config_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(profile.home.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("gateway.port", "abc", "`gateway.port` wants a whole number, not `abc`."),
        ("gateway.port", "70000", "`gateway.port` wants 65535 or less, not `70000`."),
        ("gateway.port", "", "`gateway.port` wants a whole number, not nothing."),
        ("gatway.port", "1", "Unknown setting `gatway.port`; did you mean `gateway.port`?"),
        ("gateway", "1", "`gateway` is a section; set one of its settings, such as `gateway.host`"),
        ("providers.box", "1", "`providers.box` is a section"),
        ("gateway.port.x", "1", "Unknown setting `gateway.port.x`"),
        ("providers..model", "1", "Unknown setting"),
        ("", "1", "Unknown setting"),
        ("model.provider", "nobody", "names the unknown provider `nobody`"),
        ("memory.provider", "nobody", "`memory.provider` names the unknown provider `nobody`"),
        ("memory.idle_check_interval", "0", "`memory.idle_check_interval` wants 0.01 or more"),
        ("model.name", "sk-abcdefghijklmnop", "looks like a key or password"),
        ("providers.x.base_url", "http://me:secret@host/v1", "looks like a key or password"),
        ("gateway.host", "\udcff", "not valid UTF-8"),
    ],
)
def test_a_bad_change_is_told_and_leaves_the_file_untouched(
    profile: Profile, path: str, value: str, told: str
) -> None:
    write(profile, COMMENTED)
    with pytest.raises(ConfigError) as caught:
        set_value(profile, path, value)
    assert told in str(caught.value)
    assert "abcdefghijk" not in str(caught.value)
    assert read(profile) == COMMENTED
    assert [file.name for file in profile.home.iterdir()] == ["config.yaml"]


def test_a_broken_file_is_not_edited(profile: Profile) -> None:
    write(profile, "gateway: [\n")
    with pytest.raises(ConfigError, match="this is not YAML"):
        set_value(profile, "gateway.port", "1")
    with pytest.raises(ConfigError, match="this is not YAML"):
        unset_value(profile, "gateway.port")
    assert read(profile) == "gateway: [\n"


def test_many_changes_are_made_together_or_not_at_all(profile: Profile) -> None:
    write(profile, COMMENTED)
    with pytest.raises(ConfigError, match="unknown provider"):
        set_values(profile, {"gateway.port": 1, "model.provider": "nobody"})
    assert read(profile) == COMMENTED
    set_values(profile, {"model.provider": "box", "providers.box.base_url": "http://a/v1"})
    assert get_value(profile, "model.provider", {}) == "box"


def test_the_mode_stays_and_a_symbolic_link_is_followed(profile: Profile, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.yaml"
    target.write_text("log:\n  level: info\n")
    target.chmod(0o640)
    profile.config_file.symlink_to(target)
    set_value(profile, "log.level", "debug")
    assert profile.config_file.is_symlink()
    assert target.read_text() == "log:\n  level: debug\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_may_not_be_written_is_told(profile: Profile) -> None:
    write(profile, "log: {}\n")
    profile.home.chmod(0o500)
    try:
        with pytest.raises(ConfigError, match=r"Cannot write .*: permission denied"):
            set_value(profile, "log.level", "debug")
    finally:
        profile.home.chmod(0o700)
    assert read(profile) == "log: {}\n"


def test_writers_at_the_same_time_lose_nothing(profile: Profile) -> None:
    script = (
        "import sys; from pathlib import Path; from parley.config import set_value\n"
        "from parley.profiles import Profile\n"
        "for turn in range(5):\n"
        "    name = f'box-{sys.argv[2]}-{turn}'\n"
        "    set_value(Profile('default', Path(sys.argv[1])), f'providers.{name}.model', 'm')\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(profile.home), str(number)])
        for number in range(3)
    ]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    assert len(load_settings(profile, {}).providers) == 15


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@given(host=texts, names=st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), max_size=4))
def test_what_is_set_is_what_is_got_and_comments_and_order_survive(
    host: str, names: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as home:
        profile = Profile("default", Path(home))
        write(profile, COMMENTED)
        try:
            set_value(profile, "gateway.host", host)
            set_value(profile, "agent.tools", list(names))
        except ConfigError as error:
            assert "looks like a key" in str(error)
            return
        assert get_value(profile, "gateway.host", {}) == host
        assert get_value(profile, "agent.tools", {}) == names
        unset_value(profile, "agent.tools")
        left = [line for line in read(profile).splitlines() if not line.startswith("    host")]
        wanted = [line for line in COMMENTED.splitlines() if not line.startswith("    host")]
        assert left == [*wanted, "agent:"]


sections = st.dictionaries(
    st.sampled_from(["host", "port", "busy", "running_turns"]),
    st.sampled_from(["# why\n", "  # inside\n", "\n", ""]),
    min_size=1,
)


@given(before=sections, path=st.sampled_from(["host", "port", "busy", "running_turns"]))
def test_set_then_unset_brings_the_rest_back_as_it_was(before: dict[str, str], path: str) -> None:
    values = {"host": "a", "port": "1", "busy": "queue", "running_turns": "5"}
    lines = [f"{comment}  {name}: {values[name]}  # {name}\n" for name, comment in before.items()]
    text = "# top\ngateway:\n" + "".join(lines) + "# below\nlog:\n  level: info\n"
    with tempfile.TemporaryDirectory() as home:
        profile = Profile("default", Path(home))
        write(profile, text)
        set_value(profile, f"gateway.{path}", values[path])
        if path in before:
            assert read(profile) == text
        else:
            unset_value(profile, f"gateway.{path}")
            assert read(profile) == text
