"""What admission keeps of a customer: blocks lose the name, limits go, the ledger stays and the receipt says so."""

from __future__ import annotations

from decimal import Decimal

import pytest

from guard.admission import admit, settle
from guard.admission.blocks import block_actor, lift_block
from guard.admission.limits import set_limit
from guard.admission.models import ActorBlock, AdmissionLimit, BudgetLedger
from tests.memory.erasure.helpers import ALICE, ALICE_ID, BOB_ID, erase

pytestmark = pytest.mark.django_db(transaction=True)


def blocked(actor_id: str) -> None:
    block_actor(tenant="default", actor_id=actor_id, code="OFFICER", by="lin", reason=f"{actor_id} pastes prompts")


def test_blocks_and_limits_lose_the_customer_and_the_ledger_is_told() -> None:
    spent = admit(ALICE, action="chat", estimate=Decimal(1))
    settle(ALICE, spent, actual=Decimal(1))
    for actor in (ALICE_ID, BOB_ID):
        blocked(actor)
        lift_block(tenant="default", actor_id=actor, by="lin")
        blocked(actor)
        set_limit(tenant="default", kind="rate", value=Decimal(5), actor_id=actor, by="lin")
    code, receipt = erase()
    assert code == 0
    assert receipt["removed"]["guard.admission"] == {"blocks": 2, "limits": 1}
    assert "budget_ledger" in receipt["kept"]
    assert BudgetLedger.objects.filter(actor_id=ALICE_ID).count() == 1
    mine = ActorBlock.objects.exclude(actor_id=BOB_ID)
    assert [(row.actor_id.startswith("erased-"), row.reason, row.open) for row in mine] == [(True, "", None)] * 2
    assert not AdmissionLimit.objects.filter(actor_id=ALICE_ID).exists()
    # Bob has his.
    assert ActorBlock.objects.filter(actor_id=BOB_ID, open=1).count() == 1
    assert AdmissionLimit.objects.filter(actor_id=BOB_ID).count() == 1


def test_a_customer_without_any_has_none_on_the_receipt() -> None:
    blocked(BOB_ID)
    _code, receipt = erase()
    assert "guard.admission" not in receipt["removed"] or receipt["removed"]["guard.admission"] == {}
    assert "budget_ledger" not in receipt["kept"]
