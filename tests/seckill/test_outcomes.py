"""Outcomes are looked up for many at once, and by what is known, whoever is away."""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
import uuid_utils.compat

from inventory import gate
from inventory.gate import GateError, Trace
from orders.models import Order
from seckill import outcomes as module
from seckill.outcomes import Outcomes, Unavailable
from seckill.services import Outcome

MINE, SALE = 1, 7


class Back:
    """Gate and database, as far as outcomes are concerned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.traces: dict[str, Trace] = {}
        self.orders: dict[uuid.UUID, Order] = {}
        self.gate_error: Exception | None = None
        self.database_error: Exception | None = None
        self.questions: list[int] = []
        self.lookups: list[int] = []
        self.hang = False
        monkeypatch.setattr(gate, "traces_async", self.ask_gate)

    async def ask_gate(self, sale_id: int, ids: Sequence[str]) -> list[Trace]:
        self.questions.append(len(ids))
        if self.hang:
            await asyncio.sleep(60)
        if self.gate_error:
            raise self.gate_error
        return [self.traces.get(name, Trace("unknown")) for name in ids]

    async def run(self, function: Any, ids: list[uuid.UUID], *, deadline: float) -> Any:
        self.lookups.append(len(ids))
        if self.database_error:
            raise self.database_error
        return {pk: self.orders[pk] for pk in ids if pk in self.orders}


@pytest.fixture
def back(monkeypatch: pytest.MonkeyPatch) -> Back:
    return Back(monkeypatch)


@pytest.fixture
def outcomes(back: Back) -> Outcomes:
    return Outcomes(back.run)


def order(*, user_id: int = MINE, sale_id: int = SALE) -> Order:
    return Order(id=uuid_utils.compat.uuid7(), user_id=user_id, sale_id=sale_id)


async def test_queued_needs_no_database(back: Back, outcomes: Outcomes) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    back.traces[str(purchase_id)] = Trace("queued", "", MINE)

    mine = await outcomes.get(SALE, purchase_id, user_id=MINE, owned=False)
    theirs = await outcomes.get(SALE, purchase_id, user_id=2, owned=False)

    assert (mine, theirs) == (Outcome("queued"), None)
    assert back.lookups == []


async def test_rejection_needs_no_database_if_the_token_names_it(
    back: Back, outcomes: Outcomes
) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    back.traces[str(purchase_id)] = Trace("rejected", "sold_out")

    owned = await outcomes.get(SALE, purchase_id, user_id=MINE, owned=True)
    other = await outcomes.get(SALE, purchase_id, user_id=MINE, owned=False)

    assert (owned, other) == (Outcome("failed", "sold_out"), None)
    assert back.lookups == [1]


@pytest.mark.parametrize("trace", [Trace("ordered"), Trace("unknown")])
async def test_order_is_told_to_its_owner_in_its_sale(
    back: Back, outcomes: Outcomes, trace: Trace
) -> None:
    made = order()
    back.orders[made.pk] = made
    back.traces[str(made.pk)] = trace

    assert await outcomes.get(SALE, made.pk, user_id=MINE, owned=True) == Outcome(
        "succeeded", "", made
    )
    assert await outcomes.get(SALE, made.pk, user_id=2, owned=False) is None
    assert await outcomes.get(SALE + 1, made.pk, user_id=MINE, owned=False) is None


@pytest.mark.parametrize("error", [GateError("away"), TimeoutError()])
async def test_database_answers_while_the_gate_is_away(
    back: Back, outcomes: Outcomes, error: Exception
) -> None:
    made = order()
    back.orders[made.pk] = made
    back.gate_error = error

    known = await outcomes.get(SALE, made.pk, user_id=MINE, owned=False)

    assert known == Outcome("succeeded", "", made)
    with pytest.raises(Unavailable):
        await outcomes.get(SALE, uuid_utils.compat.uuid7(), user_id=MINE, owned=True)


async def test_gate_that_hangs_costs_everybody_one_deadline(
    back: Back, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEADLINE", 0.3)
    made = order()
    back.orders[made.pk] = made
    back.hang = True
    loop = asyncio.get_running_loop()

    async def ask(after: float) -> float:
        await asyncio.sleep(after)
        begun = loop.time()
        await outcomes.get(SALE, made.pk, user_id=MINE, owned=False)
        return loop.time() - begun

    # The second waits for a place behind the first, which hangs.
    times = await asyncio.gather(ask(0), ask(0.15), ask(0.2))

    assert max(times) < 0.6


async def test_database_that_hangs_is_unavailable(back: Back, outcomes: Outcomes) -> None:
    back.database_error = TimeoutError()

    with pytest.raises(Unavailable):
        await outcomes.get(SALE, uuid_utils.compat.uuid7(), user_id=MINE, owned=False)


async def test_questions_of_a_moment_go_together(back: Back, outcomes: Outcomes) -> None:
    made = [order() for _ in range(50)]
    back.orders.update({o.pk: o for o in made})

    found = await asyncio.gather(
        *(outcomes.get(SALE, o.pk, user_id=MINE, owned=False) for o in made)
    )

    assert [outcome and outcome.order for outcome in found] == made
    assert (back.questions, back.lookups) == ([50], [50])
