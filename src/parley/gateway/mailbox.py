"""What a backend brings in outside of a turn, such as the result of remote work that took long."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from parley.gateway.delivery import Deliveries
from parley.gateway.persist import until_stored
from parley.protocol import REMOTE_AGENT, Attachment, ChatMessage
from parley.storage.contract import Draft, Store

__all__ = ["GatewayMailbox"]


class GatewayMailbox:
    """The mailbox of one profile's backend."""

    def __init__(self, store: Store, deliveries: Deliveries, *, owner: str) -> None:
        self._store = store
        self._deliveries = deliveries
        self._owner = owner

    async def post(
        self,
        lane: str,
        id: str,
        text: str,
        *,
        session: str | None,
        attachments: tuple[Attachment, ...] = (),
    ) -> bool:
        found = await until_stored(partial(self._store.conversation_at, lane))
        if found is None:
            return False
        draft = Draft(
            dedupe=f"callback:{id}",
            source=found.source,
            text=text,
            kind="reply" if found.session == session else "notice",
            handover=self._deliveries.knows_repeats(found.source),
            attachments=attachments,
        )
        is_here = found.session == session
        said = ChatMessage("assistant", text, outside=REMOTE_AGENT) if is_here else None
        post = partial(self._store.post, lane, draft, said=said, owner=self._owner)
        self._deliveries.hand_over(await until_stored(post), found.source.platform)
        return True

    async def keep(self, name: str, value: str | None) -> None:
        await until_stored(partial(self._store.put_marks, {name: value}))

    async def kept(self, prefix: str) -> Mapping[str, str]:
        return await self._store.marks(prefix)
