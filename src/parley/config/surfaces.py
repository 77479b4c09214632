"""Settings of the places where people talk."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parley.config.backends import BackendName
from parley.config.fields import Id, Number, Seconds, Section

__all__ = ["MatrixSettings", "PlainSurfaceSettings", "SurfaceSettings", "WebhookSettings"]

_WHO_ANSWERS = "who answers there; as `backend` says if unset"


class PlainSurfaceSettings(Section):
    """It is always served."""

    backend: BackendName | None = Field(default=None, description=_WHO_ANSWERS)


class WebhookSettings(Section):
    """Any program may bring messages in and take answers out; `WEBHOOK_TOKEN` is in `.env`."""

    enabled: bool = Field(default=False, description="serve it")
    callback_url: str | None = Field(default=None, description="where answers are posted")
    greet: bool = Field(
        default=False, description="greet a person who first writes to the agent alone"
    )
    backend: BackendName | None = Field(default=None, description=_WHO_ANSWERS)


class MatrixSettings(Section):
    """Matrix, by the account of `parley matrix login`."""

    enabled: bool = Field(default=False, description="serve it")
    allow: list[Id] = Field(
        default_factory=list,
        description=(
            "who may speak besides owners: `@user:server`, `*:server` for all of a server, or `*`; "
            "empty: nobody"
        ),
    )
    groups: Literal["mention", "always", "never"] = Field(
        default="mention",
        description=(
            "what it answers in a room with several people; `mention`: what mentions it or replies "
            "to it"
        ),
    )
    spaces: bool = Field(
        default=True, description="the chats of each person are in a space of their own"
    )
    thumbs: bool = Field(
        default=True,
        description="👍 or 👎 below a question answers it; Matrix never encrypts these",
    )
    encrypt: bool = Field(default=True, description="the rooms it makes are encrypted")
    edit_seconds: Annotated[float, Field(ge=0.1, le=60), Number] = Field(
        default=1.0, description="shortest time between two edits of a reply that is being made"
    )
    file_mb: Annotated[int, Field(ge=1, le=1024), Number] = Field(
        default=20, description="the largest file that is taken in, in megabytes"
    )
    fetch_seconds: Seconds = Field(
        default=20.0, description="longest time that fetching such a file may take"
    )
    backend: BackendName | None = Field(default=None, description=_WHO_ANSWERS)


class SurfaceSettings(Section):
    """The places where people talk."""

    terminal: PlainSurfaceSettings = PlainSurfaceSettings()
    api: PlainSurfaceSettings = PlainSurfaceSettings()
    webhook: WebhookSettings = WebhookSettings()
    matrix: MatrixSettings = MatrixSettings()
    direct: PlainSurfaceSettings = PlainSurfaceSettings()

    def backend_of(self, platform: str) -> BackendName | None:
        """Who answers on this surface, where that is said of it."""
        found = getattr(self, platform, None)
        backend: BackendName | None = getattr(found, "backend", None)
        return backend
