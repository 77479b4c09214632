"""What a remote agent's answer, whole or torn, means for the turn. Pure."""

from __future__ import annotations

from dataclasses import replace

from parley.backends.base import Turn
from parley.backends.proxy.faults import FarEnd, ProxyError
from parley.backends.proxy.stream import RemoteReply
from parley.protocol import Failed, Final, Usage

__all__ = ["ending_of"]

_LOST = "The connection to the remote agent was lost here; this answer is incomplete."
_STOPPED = "The remote agent stopped here; this answer is incomplete."
_CUT = "The answer was cut at the remote agent's length limit; say “go on” for the rest."


def ending_of(
    turn: Turn, reply: RemoteReply, *, lost: ProxyError | None, far: FarEnd
) -> Final | Failed:
    """Turn what was read into the turn's reply.

    What arrived of a broken one is kept and marked for a person. A program gets the error: what
    it reads is the model's text alone.
    """
    text, usage = reply.text.strip(), reply.usage
    keeps = bool(text) and turn.request is None
    if reply.was_stopped and keeps:
        return _kept(text, _STOPPED, usage)
    if reply.has_error:
        return replace(far.error(reply.error).failed, usage=usage)
    if not reply.is_over and (reply.fault is not None or lost is not None):
        if keeps:
            note = _LOST if lost else f"The remote agent {reply.fault}; this answer is incomplete."
            return _kept(text, note, usage)
        failure = lost or far.broken(reply.fault or "")
        return replace(failure.failed, usage=usage)
    calls = reply.calls if turn.request is not None else ()
    filtered, program = reply.was_withheld, turn.request is not None
    if text or calls or (filtered and program):
        if not reply.is_whole and not filtered and not program:
            text = f"{text}\n\n({_CUT})"
        return Final(
            text,
            usage,
            calls=calls,
            complete=reply.is_whole,
            filtered=filtered,
            reasoning=reply.reasoning if program else "",
        )
    if reply.was_withheld:
        sentence = "Proxy error: a content filter withheld the answer; put it another way."
        public = "A content filter withheld the answer; please put it another way."
        return Failed(sentence, cause="proxy: withheld", usage=usage, kind="refused", public=public)
    if not reply.has_begun:
        return far.broken("sent no answer").failed
    how = "`/retry` asks it again" if turn.request is None else "ask again"
    sentence = f"Proxy error: the remote agent gave an empty answer; {how}."
    public = f"The agent gave an empty answer; {how}."
    return Failed(sentence, cause="proxy: empty", usage=usage, kind="broken", public=public)


def _kept(text: str, note: str, usage: Usage | None) -> Final:
    return Final(f"{text}\n\n({note})", usage, complete=False)
