"""The tools `read_file`, `write_file`, `edit_file` and `search_files`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import Tool, ToolContext, ToolError, tool
from parley.agent.tools.files.file_hand import FileHand

__all__ = ["file_tools"]


class _Arguments(Arguments):
    model_config = ConfigDict(str_strip_whitespace=False)  # the space is part of a text


class ReadFileArguments(_Arguments):
    path: str = Field(description="relative to the workspace")
    first_line: int = Field(default=1, ge=1)
    lines: int = Field(default=500, ge=1, le=5000, description="how many to read")
    column: int = Field(default=1, ge=1, description="where to begin in first_line")


class WriteFileArguments(_Arguments):
    path: str
    content: str


class EditFileArguments(_Arguments):
    path: str
    old: str = Field(description="must be there once, exactly")
    new: str
    all: bool = Field(default=False, description="replace every `old`")


class SearchFilesArguments(_Arguments):
    pattern: str = Field(description="regular expression, for one line")
    path: str = "."
    glob: str | None = Field(default=None, description="of names, such as *.py")
    plain: bool = Field(default=False, description="pattern is plain text")
    names_only: bool = Field(
        default=False, description="only names of files; with an empty pattern, all"
    )


def file_tools(hand: FileHand) -> tuple[Tool[Any], ...]:
    """The tools for the files of one workspace."""

    async def do(op: str, arguments: BaseModel, context: ToolContext) -> str:
        if context.workspace != hand.workspace:
            raise ToolError("These are the files of another profile.")
        return await hand.call(op, own=context.private, **arguments.model_dump())

    @tool(safe_to_repeat=True, parallel=True)
    async def read_file(arguments: ReadFileArguments, context: ToolContext) -> str:
        """Read a text file of the workspace, or list a folder."""
        return await do("read", arguments, context)

    @tool(safe_to_repeat=True)
    async def write_file(arguments: WriteFileArguments, context: ToolContext) -> str:
        """Write a whole text file; its folders are made."""
        return await do("write", arguments, context)

    @tool()
    async def edit_file(arguments: EditFileArguments, context: ToolContext) -> str:
        """Replace exact text in a file."""
        return await do("edit", arguments, context)

    @tool(safe_to_repeat=True, parallel=True)
    async def search_files(arguments: SearchFilesArguments, context: ToolContext) -> str:
        """Search the files in a folder of the workspace; hidden ones are skipped."""
        return await do("search", arguments, context)

    return (read_file, write_file, edit_file, search_files)
