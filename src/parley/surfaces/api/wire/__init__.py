"""What goes over HTTP: requests as programs write them, answers as they read them. Pure."""

from parley.surfaces.api.wire.errors import BadRequest

__all__ = ["BadRequest"]
