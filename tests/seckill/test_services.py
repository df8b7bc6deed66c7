"""Buying by the form, tokens, and outcomes for the pages."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from inventory import gate
from inventory.gate import Admission
from inventory.models import FlashSale
from inventory.soldout import marks
from orders.models import Rejection
from seckill import services, tokens
from seckill.publisher import Publisher
from seckill.services import SaleClosed, issue_token, outcome, purchase
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory
from tests.seckill.conftest import Broker, forget

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def publisher(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    forget()
    publisher = Publisher(broker)
    monkeypatch.setattr(services, "publisher", publisher)
    yield publisher
    publisher.close()
    forget()


@pytest.fixture
def sale() -> FlashSale:
    made: FlashSale = FlashSaleFactory(primed=True)
    return made


def test_purchase_takes_a_unit_and_sends_it_on(
    sale: FlashSale, buyer: User, broker: Broker, publisher: Publisher
) -> None:
    bought = purchase(sale_id=sale.pk, user_id=buyer.pk)

    assert bought.admission is Admission.RESERVED
    publisher.close()
    assert broker.messages == [(sale.pk, [[str(bought.purchase_id), buyer.pk, 1]])]
    assert gate.stocks([sale.pk]) == {sale.pk: 9}


def test_purchase_again_is_the_live_one(
    sale: FlashSale, buyer: User, broker: Broker, publisher: Publisher
) -> None:
    first = purchase(sale_id=sale.pk, user_id=buyer.pk)

    again = purchase(sale_id=sale.pk, user_id=buyer.pk)

    assert (again.purchase_id, again.admission) == (first.purchase_id, Admission.QUEUED)
    publisher.close()
    assert len(broker.entries) == 1


def test_purchase_loads_a_gate_that_is_not(buyer: User) -> None:
    sale = FlashSaleFactory()

    assert purchase(sale_id=sale.pk, user_id=buyer.pk).admission is Admission.RESERVED
    assert gate.stocks([sale.pk]) == {sale.pk: 9}


@pytest.mark.parametrize(
    ("traits", "admission"),
    [
        ({"closed": True}, Admission.CLOSED),
        ({"paused": True}, Admission.PAUSED),
        ({"allocated": 10}, Admission.SOLD_OUT),
    ],
)
def test_purchase_is_refused(
    buyer: User, broker: Broker, traits: dict[str, Any], admission: Admission
) -> None:
    sale = FlashSaleFactory(primed=True, **traits)

    assert purchase(sale_id=sale.pk, user_id=buyer.pk).admission is admission
    assert gate.snapshot(sale.pk).claims == {}
    assert broker.entries == []


def test_purchase_before_the_start_tells_when(buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, scheduled=True)

    refused = purchase(sale_id=sale.pk, user_id=buyer.pk)

    assert refused.admission is Admission.NOT_OPEN
    assert refused.starts_at is not None
    assert abs(refused.starts_at - sale.starts_at) < timedelta(milliseconds=1)
    assert refused.retry_after == pytest.approx(3600, abs=10)


def test_purchase_is_refused_by_the_mark_without_the_gate(
    buyer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = FlashSaleFactory(primed=True, allocated=10)
    purchase(sale_id=sale.pk, user_id=buyer.pk)
    assert marks.believed() == {sale.pk: True}
    monkeypatch.delattr(gate, "reserve")

    assert purchase(sale_id=sale.pk, user_id=buyer.pk).admission is Admission.SOLD_OUT


def test_purchase_is_limited(sale: FlashSale, buyer: User, settings: Settings) -> None:
    settings.PURCHASE_RATE = (1, 60.0)
    purchase(sale_id=sale.pk, user_id=buyer.pk)

    refused = purchase(sale_id=sale.pk, user_id=buyer.pk)

    assert refused.admission is Admission.THROTTLED
    assert refused.retry_after == pytest.approx(60, abs=5)


def test_purchase_in_a_sale_that_is_not_there(buyer: User) -> None:
    with pytest.raises(FlashSale.DoesNotExist):
        purchase(sale_id=999_999, user_id=buyer.pk)

    assert gate.stocks([999_999]) == {999_999: None}


def test_token_says_what_was_told(buyer: User) -> None:
    sale = FlashSaleFactory(scheduled=True)

    issued = issue_token(sale_id=sale.pk, user_id=buyer.pk)

    token = tokens.verify(issued.token)
    assert token is not None
    assert (token.sale_id, token.user_id) == (sale.pk, buyer.pk)
    assert token.purchase_id == issued.purchase_id
    assert token.valid_from == int(sale.starts_at.timestamp())
    assert issued.valid_from == sale.starts_at
    assert issued.expires_at == sale.ends_at + services.TOKEN_AFTERLIFE
    assert issue_token(sale_id=sale.pk, user_id=buyer.pk).purchase_id != issued.purchase_id


def test_token_is_not_given_after_the_end(buyer: User) -> None:
    sale = FlashSaleFactory(closed=True)

    with pytest.raises(SaleClosed):
        issue_token(sale_id=sale.pk, user_id=buyer.pk)
    with pytest.raises(FlashSale.DoesNotExist):
        issue_token(sale_id=999_999, user_id=buyer.pk)


def test_outcome_comes_from_the_row_or_else_from_the_journal(sale: FlashSale, buyer: User) -> None:
    queued = purchase(sale_id=sale.pk, user_id=buyer.pk).purchase_id
    ordered = OrderFactory(sale=sale, user=buyer)
    failed = OrderFactory(sale=sale, user=buyer, rejected=True, code=Rejection.CLOSED)
    asked = [queued, ordered.pk, failed.pk, uuid_utils.compat.uuid7()]

    def told(user: User, sale_id: int) -> list[services.Outcome | None]:
        return [outcome(sale_id=sale_id, purchase_id=pk, user_id=user.pk) for pk in asked]

    assert told(buyer, sale.pk) == [
        services.Outcome("queued"),
        services.Outcome("succeeded", "", ordered),
        services.Outcome("failed", "closed"),
        None,
    ]
    assert told(UserFactory(), sale.pk) == [None] * 4
    assert told(buyer, FlashSaleFactory().pk) == [None] * 4
