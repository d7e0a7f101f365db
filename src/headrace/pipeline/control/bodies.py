"""Say what the orders to the private address take."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headrace.pipeline.order_desk import LogLevelName
from headrace.status.bodies import NoOptions


class VerifyBody(NoOptions):
    """What a verification takes; see `VerifyOptions`."""

    repair: bool = False
    percent: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] | None = None
    seed: Annotated[str, Field(max_length=200)] | None = None
    sink: Annotated[str, Field(max_length=63)] | None = None


class QuarantineBody(NoOptions):
    """Which documents in quarantine are meant: the one with this id, else all."""

    id: str | None = None


class LogLevelBody(NoOptions):
    """The least severe messages that are logged."""

    level: LogLevelName
