"""Bodies of the admission routes."""

from __future__ import annotations

from typing import Annotated, Any

from ninja import Schema
from pydantic import ConfigDict, Field, StrictBool

# Money as text: a JSON number would be a binary fraction by the time it is read.
Money = Annotated[str, Field(max_length=24, pattern=r"^[0-9]{1,10}(\.[0-9]{1,6})?$")]
Seconds = Annotated[float, Field(strict=True)]  # a number, no text and no truth value
Name = Annotated[str, Field(min_length=1, max_length=64)]


class _Strict(Schema):
    model_config = ConfigDict(extra="forbid")


class AdmitIn(_Strict):
    """ip: of the person at the other end, where an agent service asks for them; without one the address that the
    request comes from is counted, past configured proxies alone. lease: seconds."""

    action: Name = "chat"
    ip: Annotated[str, Field(max_length=64)] | None = None
    estimate: Money | None = None
    run_id: Name | None = None
    session_id: Name | None = None
    node_id: Annotated[str, Field(max_length=64)] = ""
    lease: Seconds | None = None
    slot: StrictBool = True


class _OfRun(_Strict):
    """Of a run: what its admission said."""

    run_id: Annotated[str, Field(max_length=64)] = ""
    session_id: Annotated[str, Field(max_length=64)] = ""
    fence: Annotated[int, Field(ge=0, lt=2**53, strict=True)] = 0

    def of_run(self) -> dict[str, Any]:
        """As `settle`, `release` and `renew` take it."""
        return {"run": self.run_id, "session": self.session_id, "fence": self.fence}


class SettleIn(_OfRun):
    actual: Money
    action: Annotated[str, Field(max_length=64)] = ""
    keep: StrictBool = False


class ReleaseIn(_OfRun):
    unused: StrictBool = False


class RenewIn(_OfRun):
    lease: Seconds | None = None


class LimitOut(Schema):
    """limit and remaining: calls, or money as text for the budget. reset: seconds until there is more, where known."""

    name: str
    limit: int | str
    remaining: int | str
    reset: int | None


class AdmissionOut(Schema):
    admission_id: str
    allowed: bool
    lease: float
    fence: int | None
    limits: list[LimitOut]


class SettlementOut(Schema):
    admission_id: str
    amount: str
    month: str
    repeated: bool


class ReleaseOut(Schema):
    released: bool


class RenewOut(Schema):
    lease: float
