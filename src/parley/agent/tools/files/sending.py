"""The tool `send_file`: a file of the workspace goes to the person along with the answer."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

from parley.agent.question_text import describe_text
from parley.agent.taint import Taint
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import Tool, ToolContext, ToolError, ToolResult, tool
from parley.agent.tools.files.file_hand import FileHand
from parley.protocol import Attachment
from parley.storage.attachments import clean_name, keep_file, media_type_of, type_of_name

__all__ = ["send_file_tool"]


class SendFileArguments(Arguments):
    path: str


def _guard(arguments: SendFileArguments, context: ToolContext, taint: Taint) -> str | None:
    return describe_text("send the file", arguments.path, "with my answer")


def send_file_tool(hand: FileHand, attachments: Path) -> Tool[Any]:
    """Files are sent as they are at that moment: a copy is kept in `attachments`."""

    def keep(path: str, content: str) -> Attachment:
        data = base64.b64decode(content)
        if hand.quota is not None and (why := hand.quota.refuse_copy(attachments, len(data))):
            raise ToolError(why)
        name = clean_name(path, otherwise="file")
        return keep_file(attachments, name, media_type_of(data, type_of_name(name)), data)

    @tool(safe_to_repeat=True, guard=_guard)
    async def send_file(arguments: SendFileArguments, context: ToolContext) -> ToolResult:
        """Send a file of the workspace with your answer."""
        if context.workspace != hand.workspace:
            raise ToolError("These are the files of another profile.")
        content = await hand.call("take", own=context.private, path=arguments.path)
        file = await asyncio.to_thread(keep, arguments.path, content)
        return ToolResult(f"{file.name} goes out with your answer.", attachments=(file,))

    return send_file
