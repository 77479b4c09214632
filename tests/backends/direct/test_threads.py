"""Connections that are held between turns, what comes by them, and how they come back."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

from parley.backends.direct import build_thread_key
from parley.backends.direct.threads import Patience
from parley.profiles import Profile
from parley.protocol import Failed, Final
from tests.backends.direct.builders import (
    ALICE,
    QUICK,
    Postbox,
    a_direct_turn,
    backend_at,
    direct,
    run,
)
from tests.backends.proxy.builders import ending
from tests.servers.direct_agent import Capable, DirectAgent, Peer
from tests.servers.ports import free_port
from tests.waiting import until


def said(events: list[Any]) -> str:
    last = ending(events)
    assert isinstance(last, Final), last
    return last.text


# ── between turns ──


async def test_a_capable_peer_keeps_one_connection_for_each_thread(tmp_path: Path) -> None:
    async with DirectAgent(Capable()) as agent:
        async with direct(agent, tmp_path, postbox=Postbox()) as backend:
            for number in range(1, 4):
                await run(backend, a_direct_turn(f"a{number}", number=number))
            await run(backend, a_direct_turn("b", number=9, chat="C2"))
            assert len(agent.peers) == 2
            assert agent.open == backend.open_lines == 2
            first = agent.peers[0].heard
            assert [frame["type"] for frame in first] == ["HELLO"] + ["USER_MESSAGE"] * 3
            assert "callbacks" in first[0]["capabilities"]
        await until(lambda: not agent.open)
        assert [peer.close_code for peer in agent.peers] == [1001, 1001]  # it may come back


async def test_without_a_mailbox_no_callback_is_promised_and_nothing_is_kept(
    tmp_path: Path,
) -> None:
    async with DirectAgent(Capable()) as agent, direct(agent, tmp_path) as backend:
        await run(backend)
        assert "callbacks" not in agent.peers[0].heard[0]["capabilities"]
        await until(lambda: not agent.open)


async def test_a_program_that_waits_for_nothing_later_has_a_connection_of_its_own(
    tmp_path: Path,
) -> None:
    async with (
        DirectAgent(Capable()) as agent,
        direct(agent, tmp_path, postbox=Postbox()) as backend,
    ):
        await run(backend)
        await run(backend, a_direct_turn(number=2, async_delivery=False))
        await until(lambda: agent.open == 1)
        assert "callbacks" not in agent.peers[1].heard[0]["capabilities"]
        await run(backend, a_direct_turn(number=3))
        assert len(agent.peers) == 2


async def test_an_idle_connection_is_closed_after_a_while(tmp_path: Path) -> None:
    patience = Patience(idle_seconds=0.05)
    async with (
        DirectAgent(Capable()) as agent,
        direct(agent, tmp_path, postbox=Postbox(), patience=patience) as backend,
    ):
        await run(backend)
        await until(lambda: not agent.open and not backend.open_lines)
        assert agent.peers[0].close_code == 1000
        assert said(await run(backend, a_direct_turn(number=2)))


async def test_only_so_many_idle_connections_are_held_and_the_newest_stay(tmp_path: Path) -> None:
    patience = Patience(most_idle=2)
    async with (
        DirectAgent(Capable()) as agent,
        direct(agent, tmp_path, postbox=Postbox(), patience=patience) as backend,
    ):
        for number, chat in enumerate(("C1", "C2", "C1", "C3"), 1):
            await run(backend, a_direct_turn(number=number, chat=chat))
        await until(lambda: agent.open == 2)
        open_threads = {peer.thread for peer in agent.peers if not peer.is_over}
        expected = {build_thread_key("matrix", "@alice:example.org", c) for c in ("C1", "C3")}
        assert open_threads == expected


async def test_two_messages_of_a_thread_at_once_do_not_mix(tmp_path: Path) -> None:
    script = Capable()
    both = asyncio.Event()

    async def reply(peer: Peer, frame: dict[str, Any]) -> None:
        if len(agent.messages) == 2:
            both.set()
        await both.wait()
        await script.echo(peer, frame)

    script.reply = reply
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=Postbox()) as backend,
    ):
        turns = (a_direct_turn(text, number=n) for n, text in enumerate(("x", "y")))
        answers = await asyncio.gather(*(run(backend, turn) for turn in turns))
        assert sorted(said(events)[-1] for events in answers) == ["x", "y"]
        assert len(agent.peers) == 2
        await until(lambda: agent.open == 1)


# ── dead connections ──


async def test_a_kept_connection_that_died_is_replaced_and_the_message_answered_once(
    tmp_path: Path,
) -> None:
    script = Capable()
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=Postbox()) as backend,
    ):
        await run(backend)

        async def dying(peer: Peer, frame: dict[str, Any]) -> None:
            script.asked.append(frame["id"])
            script.answers[frame["id"]] = "the one answer"
            script.reply = script.echo
            peer.abort()

        script.reply = dying
        assert said(await run(backend, a_direct_turn("again", number=2))) == "the one answer"
        assert script.asked == ["sess-123.1", "sess-123.2", "sess-123.2"]
        assert len(agent.peers) == 2


async def test_a_peer_that_says_goodbye_on_a_kept_connection_is_asked_on_a_new_one(
    tmp_path: Path,
) -> None:
    script = Capable()
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=Postbox()) as backend,
    ):
        await run(backend)

        async def leaving(peer: Peer, _: dict[str, Any]) -> None:
            script.reply = script.echo
            await peer.say("GRACEFUL_DISCONNECT")
            await peer.until_gone()

        script.reply = leaving
        assert said(await run(backend, a_direct_turn("x", number=2))) == "echo 2: x"


async def test_it_is_tried_a_few_times_more_and_not_for_ever(tmp_path: Path) -> None:
    script = Capable()

    async def dying(peer: Peer, _: dict[str, Any]) -> None:
        peer.abort()

    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=Postbox()) as backend,
    ):
        await run(backend)
        script.reply = dying
        last = ending(await run(backend, a_direct_turn(number=2)))
        assert isinstance(last, Failed)
        assert len(agent.messages) == 5
        assert len({message["id"] for message in agent.messages[1:]}) == 1


async def test_what_may_have_been_received_is_not_sent_twice_to_a_plain_peer(
    tmp_path: Path,
) -> None:
    async def dying(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        peer.abort()

    async with DirectAgent(dying) as agent, direct(agent, tmp_path) as backend:
        assert isinstance(ending(await run(backend)), Failed)
        assert len(agent.messages) == 1


async def test_a_late_word_of_one_answer_never_gets_into_the_next(tmp_path: Path) -> None:
    script = Capable()

    async def talkative(peer: Peer, frame: dict[str, Any]) -> None:
        await script.echo(peer, frame)
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text="one thing more")

    script.reply = talkative
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=Postbox()) as backend,
    ):
        await run(backend)
        await until(lambda: not agent.open)
        script.reply = script.echo
        assert said(await run(backend, a_direct_turn("x", number=2))) == "echo 2: x"


async def test_a_dead_peer_is_noticed_between_turns(tmp_path: Path) -> None:
    script = Capable()
    over = asyncio.Event()

    async def then_deaf(peer: Peer, frame: dict[str, Any]) -> None:
        await script.echo(peer, frame)
        await over.wait()

    script.reply = then_deaf
    patience = Patience(heartbeat_seconds=0.1)
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=Postbox(), patience=patience) as backend,
    ):
        await run(backend)
        assert backend.open_lines == 1
        await until(lambda: backend.open_lines == 0)
        over.set()


# ── callbacks ──


async def test_a_callback_is_posted_once_and_confirmed_after_it_is_durable(tmp_path: Path) -> None:
    script, postbox = Capable(), Postbox()
    script.pending[ALICE] = 2
    file = {"name": "r.txt", "media_type": "text/plain", "size": 2, "data": "aGk="}
    async with DirectAgent(script) as agent, direct(agent, tmp_path, postbox=postbox) as backend:
        await run(backend)
        [name] = postbox.marks
        assert name.startswith("direct:")
        assert name.endswith(ALICE)

        await script.call_back(ALICE, "job-1", "It is done.", attachments=[file])
        await until(lambda: script.confirmed == ["job-1"])
        [post] = postbox.posts
        assert (post.lane, post.text) == ("lane-C1", "It is done.")
        assert Path(post.attachments[0].path).read_bytes() == b"hi"
        assert postbox.marks  # one is still to come

        for _ in range(3):
            await agent.peers[0].say("CALLBACK", id="job-1", text="It is done.", pending=1)
        await until(lambda: len(script.confirmed) == 4)
        assert (len(postbox.posts), postbox.tries) == (1, 1)

        await script.call_back(ALICE, "job-2", "And that.")
        await until(lambda: "job-2" in script.confirmed)
        assert [post.text for post in postbox.posts] == ["It is done.", "And that."]
        assert not postbox.marks


async def test_the_same_id_in_two_threads_is_two_callbacks(tmp_path: Path) -> None:
    script, postbox = Capable(), Postbox()
    other = build_thread_key("matrix", "@alice:example.org", "C2")
    script.pending = {ALICE: 1, other: 1}
    async with DirectAgent(script) as agent, direct(agent, tmp_path, postbox=postbox) as backend:
        await run(backend)
        await run(backend, a_direct_turn(chat="C2"))
        await script.call_back(ALICE, "1", "for one")
        await script.call_back(other, "1", "for two")
        await until(lambda: script.confirmed == ["1", "1"])
    assert {(post.lane, post.text) for post in postbox.posts} == {
        ("lane-C1", "for one"),
        ("lane-C2", "for two"),
    }


async def test_a_callback_in_the_midst_of_an_answer_is_no_part_of_it(tmp_path: Path) -> None:
    script, postbox = Capable(), Postbox()

    async def reply(peer: Peer, frame: dict[str, Any]) -> None:
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text="one ")
        await peer.say("CALLBACK", id="j", text="by the way", pending=0)
        await peer.answer("two")

    script.reply = reply
    async with DirectAgent(script) as agent, direct(agent, tmp_path, postbox=postbox) as backend:
        assert said(await run(backend)) == "one two"
        await until(lambda: script.confirmed == ["j"])
    assert [post.text for post in postbox.posts] == ["by the way"]


async def test_a_callback_for_a_conversation_that_is_gone_is_confirmed_all_the_same(
    tmp_path: Path,
) -> None:
    script, postbox = Capable(), Postbox(lanes=set())
    script.pending[ALICE] = 1
    async with DirectAgent(script) as agent, direct(agent, tmp_path, postbox=postbox) as backend:
        await run(backend)
        await script.call_back(ALICE, "1", "hello?")
        await until(lambda: script.confirmed == ["1"])
    assert not postbox.posts


async def test_a_broken_file_does_not_hold_a_callback_back(tmp_path: Path) -> None:
    script, postbox = Capable(), Postbox()
    script.pending[ALICE] = 1
    async with DirectAgent(script) as agent, direct(agent, tmp_path, postbox=postbox) as backend:
        await run(backend)
        await script.call_back(ALICE, "1", "see", attachments=[{"name": "a", "data": "!"}])
        await until(lambda: script.confirmed == ["1"])
    assert postbox.posts[0].text == "see\n\n(These files came broken: a.)"


async def test_what_cannot_be_posted_is_not_confirmed_and_comes_again(tmp_path: Path) -> None:
    class Full(Postbox):
        async def post(self, *args: Any, **more: Any) -> bool:
            if self.tries < 2:
                self.tries += 1
                raise OSError("disk full")
            return await super().post(*args, **more)

    script, postbox = Capable(), Full()
    script.pending[ALICE] = 1
    async with DirectAgent(script) as agent, direct(agent, tmp_path, postbox=postbox) as backend:
        await run(backend)
        await script.call_back(ALICE, "1", "at last")
        await until(lambda: script.confirmed == ["1"])
        assert len(agent.peers) == 3
    assert [post.text for post in postbox.posts] == ["at last"]


async def test_an_answer_that_only_promises_says_so(tmp_path: Path) -> None:
    script = Capable()

    async def reply(peer: Peer, _: dict[str, Any]) -> None:
        await peer.answer(pending=1)

    script.reply = reply
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=Postbox()) as backend,
    ):
        assert "in the background" in said(await run(backend))


# ── coming back ──


async def test_pending_work_keeps_the_connection_and_brings_it_back(tmp_path: Path) -> None:
    script, postbox, port = Capable(), Postbox(), free_port()
    script.pending[ALICE] = 1
    patience = Patience(idle_seconds=0.05, first_pause=0.02, longest_pause=0.1)
    async with DirectAgent(script, port=port) as agent:
        backend = backend_at(agent.url, tmp_path, patience=patience)
        backend.start(postbox)
        await run(backend)
        await asyncio.sleep(0.15)
        assert backend.open_lines == 1  # longer than it may be idle
        agent.peers[0].abort()
        await until(lambda: len(agent.peers) == 2 and agent.open == 1)
    try:
        await until(lambda: backend.open_lines == 0)  # the agent is down for a while
        script.pending[ALICE] = 0
        script.untold[ALICE] = {"j": {"id": "j", "text": "I was away", "pending": 0}}
        async with DirectAgent(script, port=port) as agent:
            await until(lambda: script.confirmed == ["j"])
            assert [post.text for post in postbox.posts] == ["I was away"]
            assert not postbox.marks
            await until(lambda: not agent.open)  # nothing is pending: idle as any other
    finally:
        await backend.close()


async def test_after_a_restart_of_ours_it_connects_by_itself(tmp_path: Path) -> None:
    script, postbox = Capable(), Postbox()
    script.pending[ALICE] = 1
    async with DirectAgent(script) as agent:
        async with direct(agent, tmp_path, postbox=postbox) as backend:
            await run(backend)
        await until(lambda: not agent.open)
        await script.call_back(ALICE, "j", "while you were out")
        async with direct(agent, tmp_path, postbox=postbox):
            await until(lambda: script.confirmed == ["j"])
        assert [(post.lane, post.text) for post in postbox.posts] == [
            ("lane-C1", "while you were out")
        ]
        assert not postbox.marks
        assert not agent.messages[1:]


async def test_what_is_remembered_is_forgotten_when_nothing_waits_there(tmp_path: Path) -> None:
    script, postbox = Capable(), Postbox()
    script.pending[ALICE] = 1
    async with DirectAgent(script) as agent:
        async with direct(agent, tmp_path, postbox=postbox) as backend:
            await run(backend)
        script.pending[ALICE] = 0
        async with direct(agent, tmp_path, postbox=postbox):
            await until(lambda: not postbox.marks)


async def test_another_agent_at_the_address_is_not_waited_for(tmp_path: Path) -> None:
    script, postbox = Capable(), Postbox()
    script.pending[ALICE] = 1
    async with DirectAgent(script) as agent:
        async with direct(agent, tmp_path, postbox=postbox) as backend:
            await run(backend)
        agent.script = Capable("instructions")
        async with direct(agent, tmp_path, postbox=postbox):
            await until(lambda: not postbox.marks)
            await until(lambda: not agent.open)


async def test_what_waits_at_another_address_is_left_alone(tmp_path: Path) -> None:
    postbox = Postbox(marks={f"direct:0123456789abcdef:{ALICE}": "{}", "matrix:since": "s1"})
    async with DirectAgent(Capable()) as agent:
        async with direct(agent, tmp_path, postbox=postbox) as backend:
            await run(backend)
        assert len(postbox.marks) == 2
        assert len(agent.peers) == 1


async def test_a_turn_does_not_wait_for_the_next_attempt_to_come_back(tmp_path: Path) -> None:
    script, postbox, port = Capable(), Postbox(), free_port()
    script.pending[ALICE] = 1
    slow = Patience(first_pause=60.0, longest_pause=300.0, return_seconds=0.1)
    async with DirectAgent(script, port=port) as agent:
        backend = backend_at(agent.url, tmp_path, patience=slow)
        backend.start(postbox)
        await run(backend)
    try:
        await until(lambda: backend.open_lines == 0)
        assert isinstance(ending(await run(backend, a_direct_turn(number=2))), Failed)
        async with DirectAgent(script, port=port):
            assert said(await run(backend, a_direct_turn("x", number=3))) == "echo 2: x"
            assert backend.open_lines == 1
    finally:
        await backend.close()


async def test_attempts_to_come_back_are_fewer_and_fewer(tmp_path: Path) -> None:
    script, postbox = Capable(), Postbox()
    script.pending[ALICE] = 1
    tries: list[float] = []
    patience = Patience(first_pause=0.04, longest_pause=10.0)
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=postbox, patience=patience) as backend,
    ):
        await run(backend)

        async def refusing(peer: Peer) -> None:
            tries.append(asyncio.get_running_loop().time())
            await peer.socket.close(code=1013)

        agent.script = refusing
        agent.peers[0].abort()
        await until(lambda: len(tries) >= 5)
        pauses = [later - sooner for sooner, later in pairwise(tries)]
        assert pauses[-1] > 2 * pauses[0]
        assert "no more messages" in (await backend.health() or "")
        assert postbox.marks


async def test_a_question_that_nobody_is_there_for_is_answered_no(tmp_path: Path) -> None:
    script = Capable()
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, postbox=Postbox(), patience=QUICK) as backend,
    ):
        await run(backend)
        peer = agent.peers[0]
        await peer.say("APPROVAL_ASKED", id="q", question="May I?", tool="rm")
        await until(lambda: peer.heard[-1]["type"] == "APPROVAL_ANSWER")
        assert peer.heard[-1]["allowed"] is False
        assert agent.open == 1


# ── of which profile ──


async def test_each_profile_has_a_thread_of_its_own(tmp_path: Path) -> None:
    async with DirectAgent(Capable()) as agent:
        for name in ("default", "coder", "writer"):
            async with direct(agent, tmp_path / name, profile=name) as backend:
                await run(backend, a_direct_turn(profile=Profile(name, tmp_path / name)))
        assert [peer.thread for peer in agent.peers] == [
            ALICE,
            f"{ALICE}5:coder",
            f"{ALICE}6:writer",
        ]


async def test_a_named_profile_gives_up_what_it_awaited_in_a_thread_that_others_share(
    tmp_path: Path,
) -> None:
    """Before keys held the profile, a result there may be for the default profile's person."""
    capable = Capable()
    async with DirectAgent(capable) as agent:
        kept = Postbox()
        async with direct(agent, tmp_path, postbox=kept) as backend:
            capable.pending[ALICE] = 1
            await run(backend)
        [(name, value)] = kept.marks.items()
        agent.peers.clear()
        postbox = Postbox(marks={name: value})
        async with direct(agent, tmp_path, postbox=postbox, profile="coder"):
            await until(lambda: not postbox.marks)
        [post] = postbox.posts
        assert (post.lane, agent.peers) == ("lane-C1", [])
        assert "will not arrive" in post.text
        async with direct(agent, tmp_path, postbox=kept):
            await until(lambda: agent.open == 1)
        assert kept.posts == []
