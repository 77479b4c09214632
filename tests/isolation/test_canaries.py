"""No word of one profile, or of one session, is ever found where another is.

Real homes, sockets, databases, log files and HTTP; a model that tells all it is shown, and a tool
that looks at all it can reach.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from parley.config.logs import LOG_NAME
from parley.profiles import DEFAULT_PROFILE
from parley.surfaces.terminal.wire import Deliver, Welcome
from tests.isolation.canaries import SECRET_KINDS, Canary, found_in
from tests.isolation.evening import Evening, spend_evening
from tests.isolation.family import known_files
from tests.servers.scripted_reply import Usage

__all__: list[str] = []

pytestmark = pytest.mark.timeout(1200)  # a thousand sessions, perhaps on a busy machine

_SIZES = {"few": (3, 10), "many": (20, 50)}


@pytest.fixture(
    scope="module", params=[pytest.param(size, id=name) for name, size in _SIZES.items()]
)
def evening(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Evening:
    profiles, each = request.param
    return spend_evening(tmp_path_factory.mktemp("evening"), profiles=profiles, each=each)


def stray(text: str | bytes, profile: str, session: str | None = None) -> list[Canary]:
    """What may not be there: another's words, and secrets, which nobody may read."""
    return sorted(
        canary
        for canary in found_in(text)
        if canary.profile != profile
        or canary.is_secret
        or (session is not None and canary.session not in ("any", session))
    )


def test_every_message_is_answered_once_by_whom_it_was_meant_for(evening: Evening) -> None:
    assert [(t.seat, t.unanswered) for t in evening.talks if t.unanswered] == []
    expected = Counter(
        (talk.seat.account, talk.seat.profile, event)
        for talk in evening.talks
        for event in talk.asked
        if talk.seat.platform == "webhook"
    )
    posted = Counter(
        (post.account, post.answer["profile"], event)
        for post in evening.posted
        for event in post.answer["answers"]
    )
    assert posted == expected
    assert all(
        post.token == f"Bearer {Canary(post.account, 'token').word}" for post in evening.posted
    )
    for talk in evening.talks:
        if talk.seat.platform == "terminal":
            shown = [frame for frame in talk.frames if isinstance(frame, Deliver)]
            events = Counter(event for frame in shown for event in frame.answers)
            assert events == Counter([*talk.asked])
            assert {frame.key.split(":")[0] for frame in shown} == {talk.seat.profile}
            welcomed = {frame.profile for frame in talk.frames if isinstance(frame, Welcome)}
            assert welcomed == {talk.seat.profile}
    told = evening.status["profiles"]
    assert [p["name"] for p in told if p["queued"] or p["running"] or p["undelivered"]] == []


def test_no_prompt_holds_a_word_of_another(evening: Evening) -> None:
    owners = {f"Bearer {evening.family.key_of(name).word}": name for name in evening.family.names}
    for request in evening.requests:
        assert request.headers["Authorization"] in owners
        owner = owners[request.headers["Authorization"]]
        assert len(found_in(json.dumps(dict(request.headers)))) == 1
        found = found_in(request.body)
        sessions = {canary.session for canary in found} - {"any"}
        assert len(sessions) == 1
        assert stray(request.body, owner, *sessions) == []
        assert Canary(owner, "soul") in found
    assert len(evening.requests) >= 3 * len(evening.talks)


def test_the_model_of_a_session_knows_all_of_its_own_and_nothing_else(evening: Evening) -> None:
    for talk in evening.talks:
        seat = talk.seat
        own = {seat.word, seat.name, *evening.family.told(seat.profile)}
        # What stands in `MEMORY.md` is known from when it was first looked at.
        assert found_in(talk.last) - {Canary(seat.profile, "memory")} == own
    remembered = [Canary(t.seat.profile, "memory") in found_in(t.last) for t in evening.talks]
    assert any(remembered)


def test_no_reply_holds_a_word_of_another(evening: Evening) -> None:
    for talk in evening.talks:
        seat = talk.seat
        assert stray(repr((talk.answered, talk.frames)), seat.profile, seat.session) == []
    seats = {
        (talk.seat.account, talk.seat.profile, event): talk.seat
        for talk in evening.talks
        for event in talk.asked
        if talk.seat.platform == "webhook"
    }
    for post in evening.posted:
        for event in post.answer["answers"]:
            seat = seats[post.account, post.answer["profile"], event]
            assert stray(post.body, seat.profile, seat.session) == []
            assert (post.answer["chat"], post.answer["user"]) == (seat.chat, seat.user)


def test_no_command_leads_into_a_conversation_of_another(evening: Evening) -> None:
    told = _answers_to(evening, "/resume")
    assert len(told) >= 2 * len(evening.family.names)
    assert [text for text in told if not text.startswith("There is no one conversation")] == []


def test_what_was_used_is_counted_for_each_by_itself(evening: Evening) -> None:
    used = Usage()
    before = f"This conversation: {3 * used.input} tokens in, {3 * used.output} out, 2 turns."
    assert {*_answers_to(evening, "/usage")} == {before}
    counted = {
        (sample.name.removeprefix("parley_"), sample.labels["profile"]): sample.value
        for family in text_string_to_metric_families(evening.pages["metrics"])
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    for name in evening.family.names:
        asked = [text for t in evening.talks if t.seat.profile == name for text in t.asked.values()]
        turns = [text for text in asked if not text.startswith("/")]
        requests = len(turns) + evening.family.each  # the first turn of each session uses tools
        assert counted["messages_accepted_total", name] == len(asked)
        assert counted["replies_delivered_total", name] == len(asked)
        assert counted["turns_answered_total", name] == len(turns)
        assert counted["turns_failed_total", name] == 0
        assert counted["tokens_in_total", name] == requests * used.input
        assert counted["tokens_out_total", name] == requests * used.output


def test_a_tool_sees_its_own_turn_alone(evening: Evening) -> None:
    family = evening.family
    seats = {talk.seat.word.word: talk.seat for talk in evening.talks}
    assert Counter(seen.word for seen in evening.sightings) == Counter([*seats])
    for seen in evening.sightings:
        seat = seats[seen.word]
        home = family.profile(seat.profile)
        assert stray(repr((seen.told(), seen.child)), seat.profile, seat.session) == []
        assert (seen.context.profile, seen.scope) == (seat.profile, seat.profile)
        assert (seen.session["profile"], seen.context.workspace) == (seat.profile, home.workspace)
        assert seen.session["session_key"] == seen.context.session_key
        assert seen.context.session_key.startswith(f"agent:{seat.namespace}:{seat.platform}:")
        assert seen.others_secrets == []
        assert seen.own_secrets["SCRIPTED_API_KEY"] == family.key_of(seat.profile).word
        may_have = {Canary(seat.profile, kind).word for kind in SECRET_KINDS}
        assert {value for value in seen.own_secrets.values() if value} <= may_have
        child = seen.child.splitlines()
        assert {
            "HOME=/dev/null",
            f"CWD={home.workspace}",
            f"PARLEY_PROFILE={seat.profile}",
            f"PARLEY_NICKNAME={Canary(seat.profile, 'nickname').word}",
        } <= set(child)
    keys = [seen.context.session_key for seen in evening.sightings]
    assert len({*keys}) == len(keys) == len({s.session["session_id"] for s in evening.sightings})


def test_no_log_line_tells_of_another(evening: Evening) -> None:
    for profile in evening.family.profiles:
        lines = (profile.logs / LOG_NAME).read_text().splitlines()
        assert {json.loads(line)["profile"] for line in lines} == {profile.name}
        seen = [json.loads(line) for line in lines if "looked around" in line]
        assert len(seen) == evening.family.each
        assert {found for line in seen for found in line["found"]} <= {"[redacted]", "None"}
        assert stray("\n".join(lines), profile.name) == []


def test_every_transcript_is_of_one_session(evening: Evening) -> None:
    for name in evening.family.names:
        sessions = []
        for text in evening.transcripts[name]:
            [session] = {canary.session for canary in found_in(text)} - {"any"}
            assert stray(text, name, session) == []
            sessions.append(session)
        assert len(sessions) == len({*sessions}) == evening.family.each


def test_no_command_prints_a_word_of_another(evening: Evening) -> None:
    for name, printed in evening.printed.items():
        listed, *sessions = printed
        assert len(json.loads(listed)) == evening.family.each
        assert stray(listed, name) == []
        for text in sessions:
            [session] = {canary.session for canary in found_in(text)} - {"any"}
            assert stray(text, name, session) == []
        assert sessions


def test_no_archive_holds_a_word_of_another_or_a_secret(evening: Evening) -> None:
    for name, file in evening.archives.items():
        found = set()
        for path, content in _unpacked(file):
            assert (path, stray(content, name)) == (path, [])
            found |= found_in(content)
        assert {Canary(name, kind) for kind in ("soul", "file", "memory", "skill")} <= found
        words = {talk.seat.word for talk in evening.talks if talk.seat.profile == name}
        assert words <= found


def test_no_home_holds_a_word_of_another(evening: Evening) -> None:
    for profile in evening.family.profiles:
        # The audit log is the operator's, one for all profiles; no turn and no archive reaches it.
        files = list(known_files(profile.home, without=("profiles", "audit")))
        assert profile.database_file in files
        for file in files:
            if file == profile.env_file:
                assert {canary.profile for canary in found_in(file.read_bytes())} == {profile.name}
            else:
                assert (file, stray(file.read_bytes(), profile.name)) == (file, [])


def test_the_audit_log_holds_no_secret(evening: Evening) -> None:
    homes = {profile.name: profile for profile in evening.family.profiles}
    secrets = {canary for each in homes.values() for canary in found_in(each.env_file.read_bytes())}
    log = homes[DEFAULT_PROFILE].home / "audit"
    for file in known_files(log):
        assert found_in(file.read_bytes()) & secrets == set()


def test_the_gateway_tells_of_each_profile_apart_and_of_nothing_said(evening: Evening) -> None:
    told = evening.status["profiles"]
    assert [profile["name"] for profile in told] == list(evening.family.names)
    for profile in told:
        kind = "shellmodel" if profile["name"] == DEFAULT_PROFILE else "model"
        assert found_in(json.dumps(profile)) == {Canary(profile["name"], kind)}
    rest = {key: value for key, value in evening.status.items() if key != "profiles"}
    assert found_in(json.dumps(rest)) == set()
    assert json.loads(evening.pages["readyz"])["ready"] is True
    assert {page: found_in(text) for page, text in evening.pages.items()} == {
        page: set() for page in evening.pages
    }


def _answers_to(evening: Evening, command: str) -> list[str]:
    return [
        talk.answered.get(event, "")
        for talk in evening.talks
        for event, text in talk.asked.items()
        if text.startswith(command)
    ]


def _unpacked(file: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(file) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content.read()
