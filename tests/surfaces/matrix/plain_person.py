"""A person on Matrix without a client: what they see is asked of the homeserver anew each time.

For rooms that are not encrypted, and homeservers that go away.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any
from urllib.parse import quote

from tests.servers.synapse import Account, Synapse

__all__ = ["PlainPerson"]


class PlainPerson:
    def __init__(self, synapse: Synapse, account: Account) -> None:
        self.synapse = synapse
        self.account = account

    @classmethod
    async def on(cls, synapse: Synapse) -> PlainPerson:
        return cls(synapse, await asyncio.to_thread(synapse.register))

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        return await asyncio.to_thread(
            self.synapse.call, method, f"/_matrix/client/v3{path}", body, token=self.account.token
        )

    async def create_dm(self, other: str) -> str:
        wanted = {"preset": "trusted_private_chat", "is_direct": True, "invite": [other]}
        return str((await self.call("POST", "/createRoom", wanted))["room_id"])

    async def send(self, room_id: str, text: str) -> str:
        path = f"/rooms/{quote(room_id)}/send/m.room.message/{secrets.token_hex(8)}"
        return str((await self.call("PUT", path, {"msgtype": "m.text", "body": text}))["event_id"])

    async def texts(self, room_id: str, sender: str) -> list[str]:
        """What the messages of someone say now."""
        shown: dict[str, str] = {}
        start = ""
        while True:
            path = f"/rooms/{quote(room_id)}/messages?dir=f&limit=500{start}"
            told = await self.call("GET", path)
            for event in told["chunk"]:
                if event["type"] == "m.room.message" and event["sender"] == sender:
                    _take(shown, event)
            if "end" not in told or not told["chunk"]:
                return list(shown.values())
            start = f"&from={told['end']}"

    async def wait_for(
        self, room_id: str, sender: str, text: str, *, seconds: float = 60.0
    ) -> None:
        """Until a message of theirs says just this, or begins so if it ends with `…`."""
        begins = text.endswith("…")
        async with asyncio.timeout(seconds):
            while True:
                seen = await self.texts(room_id, sender)
                if any(t.startswith(text[:-1]) if begins else t == text for t in seen):
                    return
                await asyncio.sleep(0.1)


def _take(shown: dict[str, str], event: dict[str, Any]) -> None:
    content = event["content"]
    relation = content.get("m.relates_to", {})
    if relation.get("rel_type") == "m.replace":
        shown[relation["event_id"]] = content["m.new_content"]["body"]
    elif content:
        shown[event["event_id"]] = content["body"]
