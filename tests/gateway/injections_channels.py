"""Channels of the injections: how the text of others comes before the model, and what it does then.

Each is given a case and the step in which the model obeys. It ends when the turn that acts has
begun, and tells what the question must name as the source.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from parley.protocol import Attachment
from parley.storage.attachments import keep_file
from parley.storage.memory import Edit, NewFact
from tests.gateway.injections_setup import Asked, Case, Setup, Step, messages_of
from tests.gateway.workshop import begin, calls, delegate, run, waiting
from tests.pdfs import pdf_of
from tests.servers.scripted_model import Reply
from tests.waiting import until

__all__ = ["CHANNELS", "GROUPS", "OWNERS", "prepare_files"]

Channel: TypeAlias = Callable[[Setup, Case, Step], Awaitable[str]]

OWNERS: Final = frozenset({"session search", "others' message"})
"""Channels whose person is an owner."""
GROUPS: Final = frozenset({"others' message"})
_FINE: Final = Reply(text="Fine.")
_PATH: Final = re.compile(r"read_file path=(\S+), first_line=(\d+)")
_PROCESS: Final = re.compile(r'"process_id": "(\w+)"')


async def _ask(setup: Setup, case: Case, step: Step, *before: Step, said: str = "do it") -> None:
    """The person asks; the model makes the calls that bring in the text, and obeys it."""
    setup.model.when(case.tag, *before, step, setup.done(case))
    await setup.say(case, f"{case.tag} {said}")


def _call(tool: str, /, **arguments: Any) -> Reply:
    return calls((tool, arguments))


# ── the web ──


def _put_page(setup: Setup, case: Case, **more: Any) -> str:
    return setup.site.has(f"/page-{case.number:03}", case.text, **more)


async def _page(setup: Setup, case: Case, step: Step) -> str:
    url = _put_page(setup, case)
    await _ask(setup, case, step, _call("web_fetch", url=url), said=f"read {url}")
    return url


async def _page_error(setup: Setup, case: Case, step: Step) -> str:
    url = _put_page(setup, case, status=403)
    await _ask(setup, case, step, _call("web_fetch", url=url))
    return url


async def _redirect(setup: Setup, case: Case, step: Step) -> str:
    url = setup.site.redirects(f"/go-{case.number:03}", to=_put_page(setup, case))
    await _ask(setup, case, step, _call("web_fetch", url=url), said=f"read {url}")
    return f"/page-{case.number:03}"


async def _search_title(setup: Setup, case: Case, step: Step) -> str:
    return await _found(setup, case, step, title=case.text)


async def _search_snippet(setup: Setup, case: Case, step: Step) -> str:
    return await _found(setup, case, step, content=case.text)


async def _found(setup: Setup, case: Case, step: Step, **result: str) -> str:
    found = {"title": "Tea", "url": setup.site.url("/tea"), "content": "Tea.", **result}
    setup.found[case.tag] = [found]
    await _ask(setup, case, step, _call("web_search", query=f"tea {case.tag}"))
    return "web search results"


# ── files ──


async def _file(setup: Setup, case: Case, step: Step) -> str:
    name = f"letter-{case.number:03}.txt"
    setup.house.profile.workspace.joinpath(name).write_text(case.text)
    await _ask(setup, case, step, _call("read_file", path=name))
    return f"the file {name}"


async def _file_search(setup: Setup, case: Case, step: Step) -> str:
    folder = setup.house.profile.workspace / f"code-{case.number:03}"
    folder.mkdir()
    folder.joinpath("tea.py").write_text(f"{case.text}\n")
    await _ask(setup, case, step, _call("search_files", pattern="tea", path=folder.name))
    return f"files in {folder.name}"


async def _file_name(setup: Setup, case: Case, step: Step) -> str:
    folder = setup.house.profile.workspace / f"names-{case.number:03}"
    folder.mkdir()
    folder.joinpath(case.text).touch()
    names = {"pattern": "", "path": folder.name, "names_only": True}
    look = ("read_file", {"path": folder.name}), ("search_files", names)
    await _ask(setup, case, step, calls(look[case.number % 2]))
    return folder.name


async def _long_result(setup: Setup, case: Case, step: Step) -> str:
    """The result itself is undone; the file that the rest went to is there."""
    lines = "\n".join(f"{number:05} tea and tea and more tea" for number in range(800))
    setup.letters.joinpath(case.tag).write_text(f"{lines}\n{case.text}\n")
    kept: list[str] = []

    def read_on(asked: Asked) -> Reply:
        found = _PATH.search(messages_of(asked, "tool")[-1])
        assert found is not None
        kept.extend(found.groups())
        return _FINE

    setup.model.when(f"{case.tag}-a", _call("office__read", name=case.tag), read_on)
    await setup.talk(case, f"{case.tag}-a read it")
    await setup.talk(case, "/undo")
    read = {"path": kept[0], "first_line": int(kept[1]), "lines": 2000}
    await _ask(setup, case, step, calls(("read_file", read)))
    return "the file .parley/results/"


# ── commands ──


def _print(setup: Setup, case: Case) -> str:
    """A command that prints the text, and does not hold it."""
    name = f"out-{case.number:03}.txt"
    setup.house.profile.workspace.joinpath(name).write_text(f"{case.text}\n")
    return f"cat {name}"


async def _output(setup: Setup, case: Case, step: Step) -> str:
    command = _print(setup, case)
    await _ask(setup, case, step, run(command))
    return f"the output of {command}"


async def _process_log(setup: Setup, case: Case, step: Step) -> str:
    def log(asked: Asked) -> Reply:
        found = _PROCESS.search(messages_of(asked, "tool")[-1])
        assert found is not None
        return _call("process", action="wait", process_id=found[1])

    start = begin(_print(setup, case), notify_on_complete=False)
    await _ask(setup, case, step, start, log)
    return "the output of a background process"


async def _process_report(setup: Setup, case: Case, step: Step) -> str:
    command = _print(setup, case)
    setup.model.when(case.ref, step, setup.done(case))
    setup.model.when(case.tag, begin(command), _FINE)
    await setup.talk(case, f"{case.tag} run it")
    return f"the output of {command}"


async def _watch_report(setup: Setup, case: Case, step: Step) -> str:
    command = f"{_print(setup, case)}; {waiting('never')}"
    setup.model.when(case.ref, step, setup.done(case))
    setup.model.when(case.tag, begin(command, watch_patterns=["ready"]), _FINE)
    await setup.talk(case, f"{case.tag} run it")
    return f"the output of {_print(setup, case)}"


# ── MCP servers and skills ──


async def _mcp_result(setup: Setup, case: Case, step: Step) -> str:
    setup.letters.joinpath(case.tag).write_text(case.text)
    await _ask(setup, case, step, _call("office__read", name=case.tag))
    return "the tool office__read"


async def _mcp_error(setup: Setup, case: Case, step: Step) -> str:
    setup.letters.joinpath(case.tag).write_text(case.text)
    await _ask(setup, case, step, _call("office__fail", name=case.tag))
    return "the tool office__fail"


async def _skill(setup: Setup, case: Case, step: Step) -> str:
    await _ask(setup, case, step, _call("read_skill", name=case.tag))
    return f"the skill {case.tag}"


async def _skill_file(setup: Setup, case: Case, step: Step) -> str:
    await _ask(setup, case, step, _call("read_skill", name=case.tag, file="more.md"))
    return f"the skill {case.tag}"


def prepare_files(setup: Setup, case: Case) -> None:
    """What must be there before the gateway starts."""
    if case.channel not in ("skill", "skill file"):
        return
    folder = setup.house.profile.home / "skills" / case.tag
    folder.mkdir(parents=True)
    body = case.text if case.channel == "skill" else "Read more.md."
    folder.joinpath("SKILL.md").write_text(
        f"---\nname: {case.tag}\ndescription: Tea.\n---\n{body}\n"
    )
    folder.joinpath("more.md").write_text(case.text)


# ── messages ──


def _keep(setup: Setup, name: str, media_type: str, data: bytes) -> Attachment:
    return keep_file(setup.house.profile.attachments, name, media_type, data)


async def _attachment(setup: Setup, case: Case, step: Step) -> str:
    return await _attached(setup, case, step, "letter.txt", "text/plain", case.text.encode())


async def _attachment_name(setup: Setup, case: Case, step: Step) -> str:
    return await _attached(setup, case, step, case.text, "text/plain", b"tea\n")


async def _pdf(setup: Setup, case: Case, step: Step) -> str:
    return await _attached(setup, case, step, "letter.pdf", "application/pdf", pdf_of(case.text))


async def _attached(
    setup: Setup, case: Case, step: Step, name: str, media_type: str, data: bytes
) -> str:
    setup.model.when(case.tag, step, setup.done(case))
    file = _keep(setup, name, media_type, data)
    await setup.say(case, f"{case.tag} what is this?", attachments=[file])
    return f"the attachment {file.name}"


async def _mail(setup: Setup, case: Case, step: Step) -> str:
    setup.model.when(case.ref, step, setup.done(case))
    await setup.say(case, case.text, outside="a mail of eve@mail.example")
    return "a mail of eve@mail.example"


async def _quoted(setup: Setup, case: Case, step: Step) -> str:
    setup.model.when(case.ref, step, setup.done(case))
    await setup.say(case, case.text, outside="a message of @bob:chat.example")
    return "a message of @bob:chat.example"


async def _steered(setup: Setup, case: Case, step: Step) -> str:
    """The agent has asked something; a mail comes before the answer does."""
    question = f"Which one, {case.who}?"
    setup.model.when(case.tag, _call("clarify", question=question), _FINE)
    setup.model.when(f"{case.tag}-b", step, setup.done(case))
    await setup.say(case, f"{case.tag} choose")
    await until(lambda: any(each.text == question for each in setup.deliveries(case)))
    await setup.say(case, case.text, outside="a mail of eve@mail.example")
    await setup.say(case, f"{case.tag}-b the first")
    return "a mail of eve@mail.example"


async def _others_message(setup: Setup, case: Case, step: Step) -> str:
    await setup.room.reply_to(await setup.say(case, case.text, who=f"bob{case.number:03}"))
    await _ask(setup, case, step)
    return f"a message of desk:bob{case.number:03}"


async def _elsewhere(setup: Setup, case: Case, step: Step) -> str:
    """In another chat a mail was read, and the person let the agent send something of it here."""
    await setup.talk(case, "hello")
    there = f"{case.who}-far"
    session = (await setup.store.session_of(case.lane)) or None
    assert session is not None
    send = _call("send_message", text=case.text, to=session.id)
    setup.model.when(case.ref, send, _FINE)
    number = await setup.say(case, case.text, chat=there, outside="a mail of eve@mail.example")

    def asked() -> list[str]:
        sent = (each for each in setup.room.sent if each.source.chat_id == there)
        return [each.text for each in sent if each.text.startswith("May I ")]

    await until(lambda: asked() or setup.room.answer_to(number))
    if asked():
        await setup.say(case, "!yes", chat=there)
    await setup.room.reply_to(number)
    await _ask(setup, case, step)
    return "a mail of eve@mail.example"


# ── what is kept ──


async def _session_search(setup: Setup, case: Case, step: Step) -> str:
    bob = f"bob{case.number:03}"
    await setup.room.reply_to(await setup.say(case, case.text, who=bob))
    await _ask(setup, case, step, _call("session_search", query=f"lavender {case.ref}"))
    return "earlier conversations"


async def _fact(setup: Setup, case: Case, step: Step) -> str:
    page = f"https://tea.example/{case.number:03}"
    person = f"desk:{case.who}"
    new = NewFact(case.text, kind="other", person=person, outside=page, confidence=0.5)
    await setup.store.remember(case.place, Edit(adds=(new,)), by="test", origin="tool")
    await _ask(setup, case, step, _call("memory", action="search", text="tea"))
    return f"a fact from {page}"


async def _summary(setup: Setup, case: Case, step: Step) -> str:
    url = _put_page(setup, case)
    setup.model.when(f"{case.tag}-a", _call("web_fetch", url=url), _FINE)
    await setup.talk(case, f"{case.tag}-a read it")
    for _ in range(3):
        await setup.talk(case, "and what else is there to say about tea?")
    before = len(setup.deliveries(case))
    await setup.talk(case, "/compact")
    await until(lambda: len(setup.deliveries(case)) > before + 1)
    await _ask(setup, case, step)
    return url


async def _todo(setup: Setup, case: Case, step: Step) -> str:
    """What the list was made of is undone; the list is there."""
    url = setup.site.has(f"/page-{case.number:03}", f"<p>{case.text}</p>")
    note = _call("todo", items=[{"text": case.text}])
    setup.model.when(f"{case.tag}-a", _call("web_fetch", url=url), note, _FINE)
    await setup.talk(case, f"{case.tag}-a read it")
    await setup.talk(case, "/undo")
    await _ask(setup, case, step, _call("todo"))
    return url


async def _stopped(setup: Setup, case: Case, step: Step) -> str:
    url = _put_page(setup, case)
    asked: list[Asked] = []

    def never(request: Asked) -> Reply:
        asked.append(request)
        return Reply(text="…", delay=600.0)

    setup.model.when(f"{case.tag}-a", _call("web_fetch", url=url), never)
    await setup.say(case, f"{case.tag}-a read it")
    await until(lambda: asked)
    await setup.talk(case, "/stop")
    await _ask(setup, case, step)
    return url


# ── later ──


async def _task_result(setup: Setup, case: Case, step: Step) -> str:
    goal = _read_in_a_task(setup, case)
    await _ask(setup, case, step, delegate(goal))
    return f"a delegated task that read {setup.site.url(f'/page-{case.number:03}')}"


async def _task_report(setup: Setup, case: Case, step: Step) -> str:
    goal = _read_in_a_task(setup, case)
    setup.model.when(case.ref, step, setup.done(case))
    setup.model.when(case.tag, delegate(goal, background=True), _FINE)
    await setup.talk(case, f"{case.tag} begin")
    return f"a delegated task that read {setup.site.url(f'/page-{case.number:03}')}"


def _read_in_a_task(setup: Setup, case: Case) -> str:
    url = _put_page(setup, case)
    setup.model.when(f"do-9{case.number:03}", _call("web_fetch", url=url), Reply(text=case.text))
    return f"do-9{case.number:03} read the page"


async def _planned(setup: Setup, case: Case, step: Step) -> str:
    """The person lets the agent plan what a page says, and begins a new conversation."""
    url = _put_page(setup, case)

    def plan(asked: Asked) -> Reply:
        at = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
        return _call("schedule", action="add", text=case.text, at=at)

    setup.model.when(case.ref, step, setup.done(case))
    setup.model.when(case.tag, _call("web_fetch", url=url), plan, _FINE)
    await setup.talk(case, f"{case.tag} read it")
    await setup.talk(case, "/new")
    return url


CHANNELS: Final[Mapping[str, Channel]] = {
    "page": _page,
    "page, in disguise": _page,
    "page that is an error": _page_error,
    "redirect": _redirect,
    "search result, title": _search_title,
    "search result, snippet": _search_snippet,
    "file": _file,
    "file, searched": _file_search,
    "file name": _file_name,
    "long result, read back": _long_result,
    "command output": _output,
    "process log": _process_log,
    "process report": _process_report,
    "watch report": _watch_report,
    "MCP result": _mcp_result,
    "MCP error": _mcp_error,
    "attachment": _attachment,
    "attachment name": _attachment_name,
    "PDF": _pdf,
    "skill": _skill,
    "skill file": _skill_file,
    "session search": _session_search,
    "task result": _task_result,
    "task report": _task_report,
    "planned text": _planned,
    "fact": _fact,
    "summary": _summary,
    "others' message": _others_message,
    "mail": _mail,
    "quoted message": _quoted,
    "mail in the midst of a turn": _steered,
    "message from elsewhere": _elsewhere,
    "to-do list": _todo,
    "stopped turn": _stopped,
}
