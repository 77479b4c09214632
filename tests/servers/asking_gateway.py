"""`python -m tests.servers.asking_gateway gateway run`: a gateway with a tool that must be allowed.

Each time the tool is run, its word is added to `deeds.txt` in the workspace.
"""

from __future__ import annotations

from pydantic import BaseModel

from parley.__main__ import main
from parley.agent.tools import TOOLS, ToolContext
from parley.agent.tools.base import tool

__all__: list[str] = []


class Deed(BaseModel):
    word: str = ""


@tool(needs_approval=True)
async def deed(arguments: Deed, context: ToolContext) -> str:
    """Does what cannot be undone."""
    with (context.workspace / "deeds.txt").open("a") as file:
        file.write(arguments.word + "\n")
    return f"did {arguments.word}"


if __name__ == "__main__":
    TOOLS[deed.name] = deed
    main()
