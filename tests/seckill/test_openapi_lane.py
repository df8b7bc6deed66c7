"""What the OpenAPI document says of the lane is what the lane answers."""

from typing import Any

import pytest
import uuid_utils.compat
from django.utils import timezone
from pytest_django.fixtures import Settings

from inventory import gate
from inventory.services import pause_sale
from orders.models import Rejection
from seckill import problems
from seckill.openapi import LANE, complete
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory
from tests.seckill.conftest import Shop, bearer, token_for
from tests.support.asgi import Answer

pytestmark = pytest.mark.django_db(transaction=True)

BUY, FOLLOW = LANE
DOCUMENT = complete({"paths": {}, "components": {}})


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return found


def holds(operation: dict[str, Any], answer: Answer) -> str:
    """The answer is as told: its status, its members, its headers. Returns its code or status."""
    entry = operation["responses"][str(answer.status)]
    kind = answer.headers["content-type"]
    schema = resolved(entry["content"][kind]["schema"])
    told, members = schema["properties"], answer.json
    assert set(members) <= set(told)
    assert set(schema["required"]) <= set(members)
    for name, value in members.items():
        assert value in told[name].get("enum", [value]), name
    for name in entry.get("headers", {}):
        assert name == "Idempotent-Replayed" or name.lower() in answer.headers
    if kind == problems.MEDIA_TYPE:
        assert f"`{members['code']}`" in entry["description"]
    return str(members.get("code") or answer.status)


def purchases(shop: Shop, settings: Settings) -> list[Answer]:
    """One answer of each kind to a try to buy."""
    settings.PURCHASE_RATE = (2, 60.0)
    sale, buyer = FlashSaleFactory(primed=True), UserFactory()
    token = token_for(sale, buyer)
    answers = [shop.buy(sale.pk, token)]
    shop.broker.work()
    answers += [shop.buy(sale.pk, token), shop.buy(sale.pk, token)]  # The third is too fast.
    answers += [shop.buy(sale.pk, "wrong"), shop.ask("POST", f"/api/v1/sales/{sale.pk}/purchases")]
    answers += [shop.ask("POST", "/api/v1/sales/x/purchases")]
    for body, kind in ((b"{", "application/json"), (b"{}", "text/plain"), (b" " * 5000, "")):
        headers = {"Content-Type": kind}
        answers.append(shop.buy(sale.pk, token_for(sale, 999), headers=headers, body=body))
    body = b'{"quantity":9}'
    answers.append(shop.buy(sale.pk, token_for(sale, 998), body=body))
    for traits in ({"scheduled": True}, {"closed": True}, {"quantity": 1, "allocated": 1}):
        other = FlashSaleFactory(primed=True, **traits)
        answers.append(shop.buy(other.pk, token_for(other, 997)))
    return answers + _after_an_end(shop)


def _after_an_end(shop: Shop) -> list[Answer]:
    once = FlashSaleFactory(rebuy=False)
    order = OrderFactory(sale=once, canceled=True, closed_at=timezone.now())
    answers = [shop.buy(once.pk, token_for(once, order.user))]
    sale = FlashSaleFactory(primed=True)
    for user_id, code in enumerate(Rejection.values, 900):
        purchase_id = uuid_utils.compat.uuid7()
        gate.settle(sale.pk, [gate.Settlement(str(purchase_id), user_id, code)])
        answers.append(shop.buy(sale.pk, token_for(sale, user_id, purchase_id)))
    pause_sale(sale.pk)
    answers.append(shop.buy(sale.pk, token_for(sale, 899)))
    shop.host.call(shop.lane.close())
    return [*answers, shop.buy(sale.pk, token_for(sale, 898))]


def test_document_tells_every_answer_to_a_purchase(shop: Shop, settings: Settings) -> None:
    operation = LANE[BUY]["post"]

    seen = {holds(operation, answer) for answer in purchases(shop, settings)}

    named = {
        code
        for entry in operation["responses"].values()
        for code in entry["description"].split("`")[1::2]
        if code in problems.CODES
    }
    assert seen == named | {"200", "202"}


def test_document_tells_every_answer_to_a_question(shop: Shop) -> None:
    operation = LANE[FOLLOW]["get"]
    sale, buyer = FlashSaleFactory(primed=True), UserFactory()
    queued = uuid_utils.compat.uuid7()
    shop.buy(sale.pk, token_for(sale, buyer, queued))
    ordered = OrderFactory(sale=sale, user=buyer)
    failed = OrderFactory(sale=sale, user=buyer, rejected=True)
    target = f"/api/v1/sales/{sale.pk}/purchases"
    token = token_for(sale, buyer)

    seen = [
        holds(operation, shop.outcome(sale.pk, purchase_id, token))
        for purchase_id in (queued, ordered.pk, failed.pk, uuid_utils.compat.uuid7())
    ]
    seen += [
        holds(operation, shop.ask("GET", f"{target}/{queued}", headers=headers))
        for headers in ({}, bearer("wrong"))
    ]

    assert seen == ["200", "200", "sold_out", "not_found", "login_required", "token_invalid"]
