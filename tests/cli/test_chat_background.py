"""`parley chat` with its own gateway inside: what runs in the background is told there."""

from __future__ import annotations

from tests.agent.processes.house import needs_bubblewrap
from tests.cli.household import Household
from tests.cli.test_chat_screen import ENTER, PROMPT, leave, see
from tests.gateway.workshop import Scenes, begin, end_processes, waiting
from tests.servers.scripted_model import Reply
from tests.waiting import until_now


@needs_bubblewrap
def test_the_end_of_a_process_is_answered_on_the_screen(
    household: Household, scenes: Scenes
) -> None:
    scenes.when("build", begin(waiting("done")), Reply(text="It builds now."))
    scenes.when("[Background", Reply(text="The build is over."))
    try:
        with household.chat() as screen:
            screen.expect(PROMPT)
            screen.send("build" + ENTER)
            see(screen, "It builds now.")
            workspace = household.home / "workspace"
            until_now(workspace.is_dir)
            (workspace / "done").touch()
            see(screen, "The build is over.")
            leave(screen)
    finally:
        end_processes(household.home)
