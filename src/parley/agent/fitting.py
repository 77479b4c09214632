"""What of a turn, and of all that was said before it, fits into the model's window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parley.agent.prompt import first_kept, sizes_of
from parley.agent.providers.attachments import Takes, is_pdf, is_picture, is_text
from parley.agent.providers.base import ModelRequest
from parley.agent.task import AgentTask
from parley.agent.tokens import (
    estimate_tokens,
    margin_of,
    prompt_budget,
    size_of_text,
    tokens_of_text,
    tokens_of_tool,
)
from parley.protocol import Attachment, ChatMessage, HistoryEntry, HistoryTrimmed

__all__ = ["Fitting", "cut_middle"]

_SHORT = 200  # tokens that stay of an old result
_NAMED = 60  # bytes that stand for a file which is not shown


class Fitting:
    """Of one turn; `progress` is what it has come to, and grows.

    Every message is measured once. Numbers inside are estimates; those for people are corrected by
    what the provider has told of earlier requests.
    """

    def __init__(self, task: AgentTask, progress: Sequence[ChatMessage]) -> None:
        self._task = task
        self._progress = progress
        self._history: Sequence[HistoryEntry] = task.history
        self._history_sizes = sizes_of(task.history)
        self._said = _tokens_in(self._history_sizes)
        self._sizes = {id(each.message): each.size for each in task.history}
        self._steps: list[int] = []
        self._cut: dict[int, ChatMessage] = {}
        self._system = tokens_of_text(task.system)
        self._tools = sum(tool.size // 3 for tool in task.offered.values())
        self._tools += sum(tokens_of_tool(tool) for tool in task.theirs)

    @property
    def messages(self) -> list[ChatMessage]:
        """What was said before that fits, and this turn with its long results shortened."""
        turn = (self._cut.get(place, each) for place, each in enumerate(self._progress))
        return [*(entry.message for entry in self._history), *turn]

    def fit(self, window: int) -> HistoryTrimmed | None:
        """Drop the oldest history that does not fit, then shorten the turn's own results."""
        self._measure(window)
        room = self._estimated(prompt_budget(window, reply=self._reply))
        left = room - self._fixed
        trimmed = None
        known = self._history_sizes
        if self._said > left and (
            index := first_kept(self._history, budget=max(0, left), known=known)
        ):
            self._history = self._history[index:]
            self._history_sizes = known[index:]
            self._said = _tokens_in(self._history_sizes)
            trimmed = HistoryTrimmed(self._history[0].id) if self._history else None
        if left < 0:
            self._shorten(-left, spare=room // 8)
        return trimmed

    def refusal(self) -> str | None:
        """Why this turn cannot be asked at all: what alone is too long, and how much would fit."""
        window = self._task.provider.context_window
        most = self._estimated(window - margin_of(window) - window // 8)
        if self._fixed <= most:
            return None
        model, beside = self._task.provider.model, most - self._system - self._tools
        if beside < _SHORT // 2:
            return (
                f"The instructions and tools alone are about {self._told(most - beside)} tokens, "
                f"and about {self._told(most)} fit the window of {model}: offer fewer tools "
                "(setting agent.tools), or choose a model with a larger window."
            )
        asked = [n for n, each in zip(self._steps, self._progress, strict=True) if _is_asked(each)]
        longest = max(asked, default=0)
        if longest > beside:
            return (
                f"This message is about {self._told(longest)} tokens long, and about "
                f"{self._told(beside)} fit the window of {model}: send less of it at once."
            )
        return (
            f"This turn has grown to about {self._told(self._fixed)} tokens, and about "
            f"{self._told(most)} fit the window of {model}: ask for it in smaller parts."
        )

    def longest_reply(self, prompt_tokens: int) -> int | None:
        """A limit for the reply, where one is wished or the window has less room than usual."""
        window, wished = self._task.provider.context_window, self._task.wishes.max_output_tokens
        left = window - margin_of(window) - self._corrected(prompt_tokens)
        usual = self._reply or window // 4
        return wished if left >= usual else min(usual, max(left, window // 8))

    def tokens_of(self, request: ModelRequest) -> int:
        """The estimate for the very request that is sent."""
        known = self._sizes
        size = 0
        for message in request.messages:
            measured = known.get(id(message))
            size += message.size if measured is None else measured
        tokens = estimate_tokens(size, messages=len(request.messages))
        return tokens + self._system + (self._tools if request.tools else 0)

    @property
    def _fixed(self) -> int:
        """What is sent in any case."""
        return self._system + self._tools + sum(self._steps)

    @property
    def _reply(self) -> int | None:
        return self._task.wishes.max_output_tokens or self._task.longest_answer

    def _measure(self, window: int) -> None:
        for message in self._progress[len(self._steps) :]:
            size = self._sizes[id(message)] = _size_of(message, window)
            self._steps.append(estimate_tokens(size))

    def _shorten(self, excess: int, *, spare: int) -> None:
        """Old results first, a few more than needed, so that the next steps change nothing again;
        then those the model has not seen yet, by no more than must be.
        """
        calls = (n for n, each in enumerate(self._progress) if each.role == "assistant")
        newest = max(calls, default=-1)
        long = [
            place
            for place, each in enumerate(self._progress)
            if each.role == "tool" and self._steps[place] > _SHORT
        ]
        wanted = excess + spare
        for place in long:
            if place < newest and wanted > 0:
                saved = self._cut_to(place, _SHORT)
                excess, wanted = excess - saved, wanted - saved
        fresh = [place for place in long if place > newest]
        if excess > 0 and fresh:
            most = sum(self._steps[place] for place in fresh) - excess
            level = max(_SHORT, _level([self._steps[place] for place in fresh], most))
            for place in fresh:
                if self._steps[place] > level:
                    self._cut_to(place, level)

    def _cut_to(self, place: int, tokens: int) -> int:
        """How many tokens that saved. The transcript keeps the whole of it."""
        whole, before = self._progress[place], self._steps[place]
        earlier = self._cut.get(place)
        if earlier is not None:
            del self._sizes[id(earlier)]
        cut = self._cut[place] = replace(whole, text=cut_middle(whole.text, tokens))
        self._sizes[id(cut)] = cut.size
        after = self._steps[place] = estimate_tokens(cut.size)
        return before - after

    @property
    def _factor(self) -> float:
        provider, known = self._task.provider, self._task.calibration
        return 1.0 if known is None else known.factor(provider.label, provider.model)

    def _estimated(self, tokens: int) -> int:
        return int(tokens / self._factor)

    def _corrected(self, estimate: int) -> int:
        return round(estimate * self._factor)

    def _told(self, estimate: int) -> str:
        return f"{self._corrected(max(0, estimate)):,}"


def cut_middle(text: str, tokens: int) -> str:
    """Its beginning and its end in so many tokens, and a line that says how much is left out."""
    chars = len(text) * (tokens * 7 // 2) // max(1, size_of_text(text))
    while True:
        chars = max(0, min(chars, len(text)) * 9 // 10 - 8)
        head, tail = text[: chars * 2 // 3], text[len(text) - chars // 3 :]
        left = len(text) - len(head) - len(tail)
        made = f"{head}\n[… {left:,} characters of this are left out here: no room …]\n{tail}"
        if tokens_of_text(made) <= tokens or not chars:
            return made


def _level(sizes: Sequence[int], most: int) -> int:
    """The height to which all are cut so that together they are at most so much."""
    for taken, size in enumerate(sorted(sizes)):
        share = most // (len(sizes) - taken)
        if size > share:
            return share
        most -= size
    return max(sizes, default=0)


def _is_asked(message: ChatMessage) -> bool:
    return message.role == "user"


def _tokens_in(sizes: Sequence[int]) -> int:
    return estimate_tokens(sum(sizes), messages=len(sizes))


def _size_of(message: ChatMessage, window: int) -> int:
    """A file counts by what is shown of it."""
    if message.role != "user" or not message.attachments:
        return message.size
    files = sum(each.weight for each in message.attachments)
    return message.size - files + sum(_shown(each, window) for each in message.attachments)


def _shown(file: Attachment, window: int) -> int:
    if is_picture(file):
        return file.weight
    most = Takes().within(window).text_bytes
    if is_pdf(file):  # its text is cut there
        return min(file.weight, most + len(file.name))
    is_sent = is_text(file) and file.size <= most
    return file.weight if is_sent else len(file.name) + _NAMED
