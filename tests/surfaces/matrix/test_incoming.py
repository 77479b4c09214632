"""What events mean, and whom they are for: pure, for whatever strangers put into them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.surfaces.matrix.backfill import since_we_came
from parley.surfaces.matrix.incoming import (
    AGENT_KEY,
    WAS_ENCRYPTED,
    Edited,
    Reacted,
    Redacted,
    Said,
    Upgraded,
    understand,
)
from parley.surfaces.matrix.mentions import (
    Me,
    Place,
    is_for_us,
    mentions_us,
    without_our_name,
)

_MOST = 20 * 1024 * 1024
_ME = Me("@parley:localhost", "Parley")
_GROUP = Place(joined=5)


def _event(content: dict[str, Any], kind: str = "m.room.message", **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "event_id": "$event",
        "room_id": "!room:localhost",
        "sender": "@alice:localhost",
        "origin_server_ts": 1_700_000_000_500,
        "content": content,
        **more,
    }


def _text(body: str, **more: Any) -> dict[str, Any]:
    return {"msgtype": "m.text", "body": body, **more}


def _said(content: dict[str, Any], kind: str = "m.room.message", **more: Any) -> Said:
    said = understand(_event(content, kind, **more), most_bytes=_MOST)
    assert isinstance(said, Said)
    return said


def _pill(body: str, html: str) -> dict[str, Any]:
    return _text(body, format="org.matrix.custom.html", formatted_body=html)


# ── what is said ──────────────────────────────────────────────────────────────────────────────


def test_a_message_is_what_its_body_says() -> None:
    said = _said(_text("hello"))
    assert (said.text, said.sender, said.room_id) == (
        "hello",
        "@alice:localhost",
        "!room:localhost",
    )
    assert said.at == 1_700_000_000.5
    assert (said.thread_id, said.reply_to, said.encrypted) == (None, None, False)
    sealed = understand({**_event(_text("hello")), WAS_ENCRYPTED: True}, most_bytes=_MOST)
    assert isinstance(sealed, Said)
    assert sealed.encrypted


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("> <@bob:localhost> what?\n> more of it\n\nthe answer", "the answer"),
        ("> * <@bob:localhost> waves\n\nhello", "hello"),
        ("> <@bob:localhost> what?\n\n> quoted by me\nyes", "> quoted by me\nyes"),
        ("> a quotation of mine\n\nyes", "> a quotation of mine\n\nyes"),
        ("no quotation", "no quotation"),
    ],
    ids=["quoted", "emote", "own quotation kept", "no fallback", "none"],
)
def test_the_words_that_a_reply_quotes_are_not_part_of_it(body: str, text: str) -> None:
    reply = {"m.in_reply_to": {"event_id": "$asked"}}
    said = _said(_text(body, **{"m.relates_to": reply}))
    assert (said.text, said.reply_to) == (text, "$asked")
    assert _said(_text(body)).text == body, "what is no reply stays as it is"


def test_threads_and_replies_in_threads() -> None:
    relation = {"rel_type": "m.thread", "event_id": "$root"}
    answered = {"m.in_reply_to": {"event_id": "$last"}}
    plain = _said(_text("a", **{"m.relates_to": {**relation, **answered, "is_falling_back": True}}))
    assert (plain.thread_id, plain.reply_to) == ("$root", None)
    reply = _said(_text("a", **{"m.relates_to": {**relation, **answered}}))
    assert (reply.thread_id, reply.reply_to) == ("$root", "$last")


def test_other_kinds_of_messages_are_told_in_words() -> None:
    assert _said({"msgtype": "m.emote", "body": "waves"}).text == "* alice waves"
    named = understand(
        _event({"msgtype": "m.emote", "body": "waves"}), most_bytes=_MOST, name_of=lambda _: "Al"
    )
    assert isinstance(named, Said)
    assert named.text == "* Al waves"
    where = {"msgtype": "m.location", "body": "Home", "geo_uri": "geo:1,2"}
    assert _said(where).text == "[location: Home; geo:1,2]"
    poll = {
        "org.matrix.msc3381.poll.start": {
            "question": {"org.matrix.msc1767.text": "Tea?"},
            "answers": [{"org.matrix.msc1767.text": "yes"}, {"m.text": [{"body": "no"}]}],
        }
    }
    assert _said(poll, "org.matrix.msc3381.poll.start").text == "[poll: Tea?; yes / no]"
    assert _said({"msgtype": "org.example.new", "body": "in short"}).text == "in short"
    assert _said({"msgtype": "m.notice", "body": "by a bot"}).notice


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({}, "m.room.message"),
        ({"msgtype": "m.text", "body": " \n"}, "m.room.message"),
        ({"msgtype": "m.key.verification.request", "body": "verify"}, "m.room.message"),
        ({"name": "x"}, "m.room.name"),
        ({"m.relates_to": {"rel_type": "m.reference"}}, "m.poll.response"),
    ],
    ids=["redacted", "empty", "verification", "unknown", "poll answer"],
)
def test_what_is_nothing_to_us(content: dict[str, Any], kind: str) -> None:
    assert understand(_event(content, kind), most_bytes=_MOST) is None


def test_no_zero_byte_and_no_half_character_comes_in() -> None:
    assert _said(_text("a\x00b\ud800c")).text == "abc"
    assert len(_said(_text("x" * 65_000)).text) == 65_000


def test_edits_reactions_redactions_and_upgrades() -> None:
    replaced = {"rel_type": "m.replace", "event_id": "$first"}
    edit = _text("* new", **{"m.new_content": _text("new"), "m.relates_to": replaced})
    edited = understand(_event(edit), most_bytes=_MOST)
    assert isinstance(edited, Edited)
    assert (edited.target, edited.said.text) == ("$first", "new")
    by_agent = understand(_event({**edit, AGENT_KEY: True}), most_bytes=_MOST)
    assert isinstance(by_agent, Edited)
    assert by_agent.said.by_agent
    annotation = {"rel_type": "m.annotation", "event_id": "$first", "key": "👍"}
    reacted = understand(_event({"m.relates_to": annotation}, "m.reaction"), most_bytes=_MOST)
    assert reacted == Reacted("$event", "$first", "👍", "@alice:localhost")
    for event in (
        _event({}, "m.room.redaction", redacts="$first"),
        _event({"redacts": "$first"}, "m.room.redaction"),
    ):
        assert understand(event, most_bytes=_MOST) == Redacted("$first", "@alice:localhost")
    tombstone = {"replacement_room": "!new:localhost"}
    upgraded = understand(_event(tombstone, "m.room.tombstone", state_key=""), most_bytes=_MOST)
    assert upgraded == Upgraded("!new:localhost", "@alice:localhost")
    assert understand(_event(tombstone, "m.room.tombstone"), most_bytes=_MOST) is None


# ── files ─────────────────────────────────────────────────────────────────────────────────────


def _file(**more: Any) -> dict[str, Any]:
    content = {"msgtype": "m.file", "body": "notes.txt", "url": "mxc://localhost/abc"}
    return {**content, **more}


def test_a_file_has_a_name_and_perhaps_words_with_it() -> None:
    bare = _said(_file(info={"mimetype": "text/plain", "size": 12}))
    assert bare.text == ""
    (file,) = bare.files
    assert (file.server, file.media_id, file.name) == ("localhost", "abc", "notes.txt")
    assert (file.media_type, file.size, file.seal) == ("text/plain", 12, None)
    captioned = _said(_file(filename="a.txt", body="Look"))
    assert (captioned.text, captioned.files[0].name) == ("Look", "a.txt")
    same = _said(_file(filename="a.txt", body="a.txt"))
    assert (same.text, same.files[0].media_type) == ("", "text/plain")
    hidden = _said(_file(body="../../etc/passwd"))
    assert hidden.files[0].name == "passwd"
    voice = _said(_file(msgtype="m.audio", body="", **{"org.matrix.msc3245.voice": {}}))
    assert (voice.files[0].voice, voice.files[0].name) == (True, "voice")


def test_an_encrypted_file_brings_its_key_which_is_not_shown() -> None:
    sealed = {
        "url": "mxc://localhost/abc",
        "key": {"k": "the-key"},
        "iv": "the-iv",
        "hashes": {"sha256": "the-hash"},
    }
    (file,) = _said(_file(url=None, file=sealed)).files
    assert file.seal is not None
    assert (file.seal.key, file.seal.iv, file.seal.sha256) == ("the-key", "the-iv", "the-hash")
    assert "the-key" not in repr(file)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (_file(info={"size": 31 * 1024**2}), "it has 31 MB, and 20 MB is the most"),
        (_file(url="https://example.org/x"), "has no address that can be used"),
        (_file(url="mxc://localhost/../../x"), "has no address that can be used"),
        (_file(file={"url": "mxc://localhost/abc"}), "has no address that can be used"),
        (_file(url=7), "has no address that can be used"),
    ],
    ids=["too large", "other address", "way out", "no key", "no text"],
)
def test_a_file_that_is_not_fetched_is_told_of(content: dict[str, Any], told: str) -> None:
    said = _said({**content, "filename": "x.bin", "body": "Look"})
    assert said.files == ()
    assert said.text.startswith("Look\n\n[The file “x.bin” ")
    assert told in said.text


# ── whom it is for ────────────────────────────────────────────────────────────────────────────

_LINK = '<a href="https://matrix.to/#/@parley:localhost">Parley</a>'


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (_text("hi", **{"m.mentions": {"user_ids": ["@parley:localhost"]}}), True),
        (_text("Parley, hi", **{"m.mentions": {}}), False),
        (_text("hi", **{"m.mentions": {"room": True}}), False),
        (_text("hi", **{"m.mentions": {"user_ids": "@parley:localhost"}}), False),
        (_pill("Parley: hi", f"{_LINK}: hi"), True),
        (_pill("hi", "<a href='https://matrix.to/#/%40parley%3Alocalhost?via=x'>P</a> hi"), True),
        (_pill("hi", f"<mx-reply><blockquote>{_LINK} said</blockquote></mx-reply>hi"), False),
        (_pill("hi", '<a href="https://evil.example/#/@parley:localhost">x</a>'), False),
        (_text("what does parley think?"), True),
        (_text("what does @PARLEY think?"), True),
        (_text("a parleying crowd"), False),
        (_text("hi all"), False),
    ],
    ids=[
        "declared",
        "declared nobody",
        "everybody",
        "wrong type",
        "link",
        "encoded link",
        "quoted link",
        "other link",
        "name",
        "name with an at",
        "part of a word",
        "nobody",
    ],
)
def test_who_is_named(content: dict[str, Any], named: bool) -> None:
    said = _said(content)
    assert mentions_us(said, _ME) is named
    assert is_for_us(said, room=_GROUP, me=_ME, groups="mention") is named


def test_where_it_answers() -> None:
    plain, named = _said(_text("hi")), _said(_text("Parley: hi"))
    for groups in ("mention", "always", "never"):
        assert is_for_us(plain, room=Place(joined=2), me=_ME, groups=groups)
        assert is_for_us(plain, room=Place(joined=9, is_chat=True), me=_ME, groups=groups)
    assert is_for_us(plain, room=_GROUP, me=_ME, groups="always")
    assert is_for_us(plain, room=_GROUP, me=_ME, groups="mention", replied_to_us=True)
    assert not is_for_us(named, room=_GROUP, me=_ME, groups="never", replied_to_us=True)


@pytest.mark.parametrize(
    ("content", "sender"),
    [
        ({"msgtype": "m.notice", "body": "Parley: hi"}, "@bot:localhost"),
        ({"msgtype": "m.server_notice", "body": "Parley: hi"}, "@server:localhost"),
        (_text("Parley: hi", **{AGENT_KEY: {}}), "@other:localhost"),
        (_text("Parley: hi"), _ME.user_id),
    ],
    ids=["notice", "server notice", "agent", "ourselves"],
)
def test_it_never_answers_itself_notices_or_agents(content: dict[str, Any], sender: str) -> None:
    said = _said(content, sender=sender)
    assert not is_for_us(said, room=Place(joined=2), me=_ME, groups="always", replied_to_us=True)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (_text("Parley: !help"), "!help"),
        (_text("parley , hello"), "hello"),
        (_text("@parley hello"), "hello"),
        (_text("@parley:localhost: hello"), "hello"),
        (_text("Parley is nice"), "Parley is nice"),
        (_text("Parleys: many"), "Parleys: many"),
        (_text("Parley:"), "Parley:"),
        (_pill("Parley hello", f"{_LINK} hello"), "hello"),
        (_pill("Parley: hello", f"<p>{_LINK}: hello</p>"), "hello"),
        (_pill("ask Parley now", f"ask {_LINK} now"), "ask Parley now"),
    ],
    ids=[
        "colon",
        "comma",
        "at",
        "whole id",
        "no address",
        "other word",
        "nothing else",
        "link",
        "link in a paragraph",
        "link later on",
    ],
)
def test_our_name_at_the_beginning_is_left_out(content: dict[str, Any], text: str) -> None:
    assert without_our_name(_said(content), _ME) == text


# ── strangers ─────────────────────────────────────────────────────────────────────────────────

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYS = st.sampled_from(
    [
        "msgtype", "body", "filename", "url", "file", "info", "format", "formatted_body",
        "m.mentions", "m.relates_to", "m.new_content", "m.poll", "geo_uri", "redacts", AGENT_KEY,
    ]
)  # fmt: skip
_KINDS = st.sampled_from(
    [
        "m.room.message",
        "m.sticker",
        "m.reaction",
        "m.room.redaction",
        "m.poll.start",
        "m.room.tombstone",
    ]
)
_VALUES = _JSON | st.sampled_from(["m.text", "m.image", "m.emote", "m.location"])


@given(kind=_KINDS | _JSON, content=st.dictionaries(_KEYS, _VALUES, max_size=8) | _JSON, top=_JSON)
def test_no_event_is_too_strange(kind: Any, content: Any, top: Any) -> None:
    for event in (
        _event(content, kind),
        {"type": kind, "content": content, "event_id": top, "sender": top, "room_id": top},
        {**_event(content, kind), "origin_server_ts": top, "redacts": top},
    ):
        found = understand(event, most_bytes=_MOST)
        if isinstance(found, Said):
            found.text.encode()
            mentions_us(found, _ME)
            without_our_name(found, _ME)


@given(st.text(alphabet="<a> href=\"'https://matrix.to/#/@x:y</mx-reply>", max_size=400))
def test_no_formatted_text_is_too_strange(html: str) -> None:
    _said(_pill("x", html))


# ── rooms that are new to us ──────────────────────────────────────────────────────────────────


def _member(membership: str, before: str | None = None, who: str = "@me:x") -> dict[str, Any]:
    unsigned = {"prev_content": {"membership": before}} if before else {}
    return {
        "type": "m.room.member",
        "state_key": who,
        "content": {"membership": membership},
        "unsigned": unsigned,
    }


def test_only_what_was_said_since_we_were_asked_in_is_said_to_us() -> None:
    early, late, later = ({"type": "m.room.message", "n": number} for number in range(3))
    invite, join = _member("invite"), _member("join", "invite")
    assert since_we_came([early, invite, late, join, later], "@me:x") == [invite, late, join, later]
    assert since_we_came([early, join, later], "@me:x") == [join, later]
    renamed = _member("join", "join")
    assert since_we_came([early, renamed, late], "@me:x") == [early, renamed, late]
    other = _member("join", None, "@other:x")
    assert since_we_came([early, other, late], "@me:x") == [early, other, late]
