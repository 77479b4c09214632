"""The kinds of values that settings are made of."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from parley.protocol import ParleyError

__all__ = ["Count", "Id", "Minutes", "Number", "Seconds", "Section", "TimeOfDay", "TimeZone"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


def _no_truth(value: object) -> object:
    """`port: true` is a slip, not the number 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("number_type", "wants a number")
    return value


Number = BeforeValidator(_no_truth)
Seconds = Annotated[float, Field(ge=0, le=86_400), Number]
Count = Annotated[int, Field(ge=1), Number]


def _id_text(value: object) -> object:
    """An id is text, also where YAML reads a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else value


def _time_of_day(value: str) -> str:
    if re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", value) is None:
        raise PydanticCustomError("clock_time", "wants a time of day")
    return value


def _time_zone(value: str) -> str:
    from parley.config.zones import time_zone

    try:
        time_zone(value)
    except ParleyError as error:
        raise PydanticCustomError("zone_name", "wants a time zone") from error
    return value


Id = Annotated[str, Field(min_length=1), BeforeValidator(_id_text)]
Minutes = Annotated[int, Field(ge=1, le=525_600), Number]
TimeOfDay = Annotated[str, AfterValidator(_time_of_day)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
