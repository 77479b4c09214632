"""Sixty tasks for a small model on this machine, each judged by facts and not by taste."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["TASKS", "Job", "LocalTask", "Outcome"]

Kind: TypeAlias = Literal["facts", "tools", "mixed"]


@dataclass(frozen=True, slots=True)
class Job:
    """A planned message: when it comes next, and its text."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task: the replies, the tools that were called, and what is there now."""

    replies: Sequence[str]
    calls: Sequence[str]
    workspace: Path
    jobs: Sequence[Job]
    memory: Sequence[str]
    began: float

    @property
    def text(self) -> str:
        return self.replies[-1] if self.replies else ""

    def file(self, name: str) -> str:
        path = self.workspace / name
        return path.read_text(errors="replace") if path.is_file() else ""


Check: TypeAlias = Callable[[Outcome], bool]


@dataclass(frozen=True, slots=True)
class LocalTask:
    """What a person says, one message after the other, and how the outcome is judged."""

    name: str
    kind: Kind
    says: tuple[str, ...]
    check: Check
    files: Mapping[str, str] = field(default_factory=dict)


def _says(*patterns: str) -> Check:
    """Every pattern is found in the last reply."""
    return lambda outcome: all(re.search(each, outcome.text, re.I) for each in patterns)


def _only_says(*patterns: str) -> Check:
    """So, and no tool was needed for it."""
    return lambda outcome: not outcome.calls and bool(outcome.text) and _says(*patterns)(outcome)


def _file(name: str, *patterns: str) -> Check:
    return lambda outcome: all(
        re.search(each, outcome.file(name), re.I | re.S) for each in patterns or (".",)
    )


def _today(outcome: Outcome) -> datetime:
    return datetime.fromtimestamp(outcome.began).astimezone()


def _weekday(outcome: Outcome) -> bool:
    return _says(f"{_today(outcome):%A}")(outcome)


def _date(outcome: Outcome) -> bool:
    today = _today(outcome)
    day, short = today.day, f"{today:%B}"[:3]
    patterns = (
        f"{today:%Y-%m-%d}",
        rf"{short}\w*\.? {day}\b",
        rf"\b{day}(st|nd|rd|th)?( of)? {short}",
    )
    return any(_says(each)(outcome) for each in patterns)


def _clock(outcome: Outcome) -> bool:
    """The time within three minutes of the task, in either notation."""
    found = re.findall(r"\b(\d{1,2}):(\d{2})", outcome.text)
    now = _today(outcome)
    near = [now + timedelta(minutes=minutes) for minutes in range(-1, 4)]
    told = {(each.hour, each.minute) for each in near} | {
        (each.hour % 12 or 12, each.minute) for each in near
    }
    return any((int(hour), int(minute)) in told for hour, minute in found)


def _reminder(text: str, *, minutes: float) -> Check:
    def check(outcome: Outcome) -> bool:
        wanted = outcome.began + minutes * 60
        return any(
            re.search(text, job.text, re.I) and abs(job.at - wanted) < 120 for job in outcome.jobs
        )

    return check


def _reminder_at(text: str, *, days: int, hour: int, minute: int = 0) -> Check:
    def check(outcome: Outcome) -> bool:
        day = (_today(outcome) + timedelta(days=days)).replace(hour=hour, minute=minute, second=0)
        return any(
            re.search(text, j.text, re.I) and abs(j.at - day.timestamp()) < 120
            for j in outcome.jobs
        )

    return check


def _remembers(*patterns: str) -> Check:
    return lambda outcome: any(
        all(re.search(each, fact, re.I) for each in patterns) for fact in outcome.memory
    )


def _both(*checks: Check) -> Check:
    return lambda outcome: all(check(outcome) for check in checks)


def _ask(
    name: str, kind: Kind, says: str | tuple[str, ...], check: Check, **files: str
) -> LocalTask:
    said = (says,) if isinstance(says, str) else says
    named = {key.replace("__", "."): text for key, text in files.items()}
    return LocalTask(name, kind, said, check, named)


_NOTES = "Dentist appointment on Friday at 10.\nCall the plumber about the sink.\n"
_CSV = "city,people\nOslo,700000\nBergen,290000\nTrondheim,210000\nStavanger,145000\n"
_REPORT = (
    "The old bridge over the river Lind was closed in May because rust had weakened two of its "
    "pillars. Repairs will take until October and cost four million euros. Until then buses take "
    "the road through Harding.\n"
)
_GREET = 'print("Hello from greet", 6 * 7)\n'

_FACTS = (
    _ask("romeo", "facts", "Who wrote Romeo and Juliet?", _says("shakespeare")),
    _ask("times", "facts", "What is 12 times 12?", _says(r"\b144\b")),
    _ask("australia", "facts", "What is the capital of Australia?", _says("canberra")),
    _ask("spider", "facts", "How many legs does a spider have?", _says(r"\b8\b|eight")),
    _ask("boiling", "facts", "At what temperature does water boil in Celsius?", _says(r"\b100\b")),
    _ask("gold", "facts", "What is the chemical symbol for gold?", _says(r"\bAu\b")),
    _ask("planet", "facts", "Which planet is the largest in the solar system?", _says("jupiter")),
    _ask("french", "facts", 'Translate "good morning" into French.', _says("bonjour")),
    _ask("opposite", "facts", "What is the opposite of hot?", _says("cold")),
    _ask("war", "facts", "In which year did the Second World War end?", _says("1945")),
    _ask("percent", "facts", "What is 15 percent of 200?", _says(r"\b30\b")),
    _ask("length", "facts", "Which Python function gives the length of a list?", _says(r"\blen\b")),
    _ask("brazil", "facts", "Which language do people speak in Brazil?", _says("portuguese")),
    _ask("moon", "facts", "Who was the first person on the moon?", _says("armstrong")),
    _ask("root", "facts", "What is the square root of 81?", _says(r"\b9\b|\bnine\b")),
    _ask("leap", "facts", "How many days does a leap year have?", _says("366")),
    _ask("orwell", "facts", "Who is the author of the novel 1984?", _says("orwell")),
    _ask("status", "facts", "Which HTTP status code means not found?", _says("404")),
    _ask("plural", "facts", 'What is the plural of "mouse"?', _says(r"\bmice\b")),
    _ask("heart", "facts", "Which organ pumps blood through the body?", _says("heart")),
)

_TOOLS = (
    _ask("weekday", "tools", "What day of the week is it today?", _weekday),
    _ask("time", "tools", "What time is it?", _clock),
    _ask("date", "tools", "What is today's date?", _date),
    _ask(
        "files",
        "tools",
        "Which files are in my folder?",
        _says("alpha.txt", "beta.md", "gamma.csv"),
        alpha__txt="a\n",
        beta__md="b\n",
        gamma__csv="c\n",
    ),
    _ask("notes", "tools", "Read notes.txt to me.", _says("dentist", "plumber"), notes__txt=_NOTES),
    _ask(
        "hello",
        "tools",
        "Create a file hello.txt with the text Hello World in it.",
        _file("hello.txt", r"^\s*hello world\W*$"),
    ),
    _ask(
        "shopping",
        "tools",
        "Write a file shopping.txt with three lines: milk, eggs, bread.",
        _file("shopping.txt", r"milk,?\s*\n\W*eggs,?\s*\n\W*bread"),
    ),
    _ask("remind", "tools", "Remind me in 10 minutes to call Anna.", _reminder("anna", minutes=10)),
    _ask(
        "tomorrow",
        "tools",
        "Remind me tomorrow at 9:00 to water the plants.",
        _reminder_at("plants", days=1, hour=9),
    ),
    _ask(
        "oven",
        "tools",
        "Please remind me in 2 hours to take the bread out of the oven.",
        _reminder("bread|oven", minutes=120),
    ),
    _ask("system", "tools", "Run `uname -s` and tell me what it prints.", _says("linux")),
    _ask(
        "python",
        "tools",
        "Which version of Python is installed on this computer?",
        _says(r"3\.\d+"),
    ),
    _ask(
        *("lines", "tools", "How many lines does cities.csv have?", _says(r"\b5\b|\bfive\b")),
        cities__csv=_CSV,
    ),
    _ask(
        *("port", "tools", "Which port is set in config.json?", _says("8123")),
        config__json='{"host": "localhost", "port": 8123}\n',
    ),
    _ask(
        "colour",
        "tools",
        "Remember that my favourite colour is green.",
        _remembers("green", "colou?r|favou?rite"),
    ),
    _ask(
        "sister",
        "tools",
        "Please remember: my sister's birthday is on 3 March.",
        _remembers("sister", r"march|0?3[-/.]0?3"),
    ),
    _ask(
        "folder",
        "tools",
        "Make a folder called photos.",
        lambda outcome: (outcome.workspace / "photos").is_dir(),
    ),
    _ask(
        *("rename", "tools", "Rename draft.txt to final.txt."),
        lambda outcome: "chapter" in outcome.file("final.txt") and not outcome.file("draft.txt"),
        draft__txt="The first chapter.\n",
    ),
    _ask(
        *("poem", "tools", "What is the first line of poem.txt?", _says("quiet morning")),
        poem__txt="A quiet morning by the sea\nThe gulls are late\n",
    ),
    _ask(
        *("cores", "tools", "How many processor cores does this computer have?"),
        lambda outcome: "terminal" in _commands(outcome.calls) and _says(r"\d|\btwo\b")(outcome),
    ),
)


def _commands(calls: Sequence[str]) -> list[str]:
    """Names of tools that run commands, under one name."""
    return ["terminal" if call in {"terminal", "run_command"} else call for call in calls]


_MIXED = (
    _ask("hi", "mixed", "Hi!", _only_says()),
    _ask("thanks", "mixed", "Thanks, that was very helpful.", _only_says()),
    _ask("name", "mixed", ("My name is Robin.", "What is my name?"), _says("robin")),
    _ask(
        *("sum", "mixed", "Read numbers.txt and tell me the sum of the numbers.", _says(r"\b50\b")),
        numbers__txt="12\n30\n8\n",
    ),
    _ask(
        *(
            "eggs",
            "mixed",
            "How many eggs do I need for the recipe in cake.txt?",
            _says(r"\b3\b|three"),
        ),
        cake__txt="Cake: 200 g flour, 3 eggs, 100 g sugar. Bake for 40 minutes.\n",
    ),
    _ask(
        *("copy", "mixed", "Copy notes.txt to backup.txt."),
        lambda outcome: outcome.file("backup.txt").strip() == _NOTES.strip(),
        notes__txt=_NOTES,
    ),
    _ask(
        "script",
        "mixed",
        "Write a Python script squares.py that prints the squares of 1 to 5, then run it and "
        "tell me its output.",
        _both(_file("squares.py", "print"), _says(r"\b16\b", r"\b25\b")),
    ),
    _ask(
        *("edit", "mixed", "Change the port in config.json to 9000."),
        lambda outcome: (
            "9000" in outcome.file("config.json") and "localhost" in outcome.file("config.json")
        ),
        config__json='{"host": "localhost", "port": 8123}\n',
    ),
    _ask(
        *("day_file", "mixed", "Find out which weekday it is and write it into day.txt."),
        lambda outcome: f"{_today(outcome):%A}" in outcome.file("day.txt"),
    ),
    _ask(
        *("longer", "mixed", "Which of the two files short.txt and long.txt has more lines?"),
        lambda outcome: (
            bool(re.search(r"^[^.]*\blong\.txt", outcome.text) and outcome.calls)
            and not re.search(r"short\.txt has more", outcome.text)
        ),
        short__txt="one\n",
        long__txt="one\ntwo\nthree\nfour\n",
    ),
    _ask(
        *("report", "mixed", "Summarize report.txt in one sentence.", _says("bridge")),
        report__txt=_REPORT,
    ),
    _ask(
        "list",
        "mixed",
        ("Create list.txt with the word apples in it.", "Add pears to that file."),
        _file("list.txt", "apples", "pears"),
    ),
    _ask(
        "mutex",
        "mixed",
        "Explain in one sentence what a mutex is.",
        _only_says("lock|exclu|thread|access"),
    ),
    _ask("haiku", "mixed", "Write a short poem about rain.", _only_says("rain|drop")),
    _ask(
        "year",
        "mixed",
        "Which year will it be in ten years?",
        _both(lambda outcome: f"{_today(outcome).year + 10}" in outcome.text),
    ),
    _ask(
        "spelling",
        "mixed",
        'Correct the spelling: "I hav a blak kat."',
        _only_says("have a black cat"),
    ),
    _ask(
        *("find", "mixed", "Which of my files mentions the dentist?", _says(r"notes\.txt")),
        notes__txt=_NOTES,
        alpha__txt="Nothing of interest here.\n",
        other__txt="Buy a new lamp.\n",
    ),
    _ask(
        "reckon",
        "mixed",
        ("What is 7 plus 5?", "Multiply that by 2.", "Now subtract 4."),
        _says(r"\b20\b|twenty"),
    ),
    _ask(
        *(
            "greet",
            "mixed",
            "Run greet.py with Python and tell me what it prints.",
            _says("hello from greet 42"),
        ),
        greet__py=_GREET,
    ),
    _ask(
        *("question", "mixed", "Read question.txt and answer the question in it.", _says("tokyo")),
        question__txt="What is the capital of Japan?\n",
    ),
)

TASKS: tuple[LocalTask, ...] = (*_FACTS, *_TOOLS, *_MIXED)
