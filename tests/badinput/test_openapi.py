"""What the OpenAPI document allows and what it doesn't, made up by schemathesis, at a real process.

The same examples in every run. Whatever comes, no answer is an error of ours, each is one that the
document names, and what the document forbids changes nothing.
"""

from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from scripts.smoke import Client, log_in
from tests.e2e.shop import Shop
from tests.support.load import Ticket
from tests.support.waiting import wait_until

EXAMPLES = 25  # for each operation, of each kind
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = [
    *("GET /api/v1/time", "GET /api/v1/sales", "GET /api/v1/sales/{sale}", "GET /api/v1/captcha"),
    *("POST /api/v1/sales/{sale}/token", "POST /api/v1/sales/{sale}/purchases"),
    "GET /api/v1/sales/{sale}/purchases/{purchase}",
    *("GET /api/v1/orders", "GET /api/v1/orders/{order}"),
    *("POST /api/v1/orders/{order}/pay", "POST /api/v1/orders/{order}/cancel"),
    "POST /api/v1/payments/{provider}/webhook",
]


# Without a body, and with no parameter that could be wrong but a name that is none.
NOTHING_WRONG = OPERATIONS[:4]


@dataclass
class Visitor:
    """A buyer with an order: who gets deeper into the shop than a stranger would."""

    shop: Shop
    ticket: Ticket
    operations: dict[str, Any]
    headers: dict[str, str]

    @property
    def names(self) -> dict[str, str]:
        """Half of the calls ask for something that there is."""
        sale, order = str(self.ticket.sale_id), self.ticket.purchase_id
        return {"sale": sale, "purchase": order, "order": order, "provider": "sandbox"}

    def state(self) -> tuple[object, ...]:
        tables = ("orders_order", "orders_payment", "orders_webhookevent", "orders_orderevent")
        counts = [self.shop.rows(f"SELECT count(*) FROM {table}") for table in tables]
        sales = self.shop.rows("SELECT quantity, allocated, paused FROM inventory_flashsale")
        orders = self.shop.rows("SELECT status, amount_cents FROM orders_order ORDER BY id")
        return counts, sales, orders, self.shop.gate_stock(self.ticket.sale_id)


@pytest.fixture(scope="module")
def visitor(site: Shop) -> Visitor:
    load_all_checks()
    sale_id = site.create_sale(20)
    ticket = site.tickets(sale_id, 1)[0]
    client = Client(site.stack.base_url)
    name = site.name_of(ticket.user_id)
    log_in(client, name, name)
    bearer = {"Authorization": f"Bearer {ticket.token}"}
    path = f"/api/v1/sales/{sale_id}/purchases"
    client.request("POST", path, body=b"", headers=bearer, expect=(202,))
    wait_until(lambda: site.statuses(sale_id))
    document = schemathesis.openapi.from_url(f"{site.stack.base_url}/api/v1/openapi.json")
    operations = {
        operation.ok().label: operation.ok() for operation in document.get_all_operations()
    }
    cookie = f"sessionid={client.cookie('sessionid')}; csrftoken={client.cookie('csrftoken')}"
    session = {"Cookie": cookie, "X-CSRFToken": client.cookie("csrftoken")}
    return Visitor(site, ticket, operations, session | bearer)


def test_every_operation_is_tried(visitor: Visitor) -> None:
    assert set(visitor.operations) == set(OPERATIONS)


KINDS = [
    (label, mode)
    for label in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or label not in NOTHING_WRONG
]


@pytest.mark.parametrize(("label", "mode"), KINDS)
def test_answers_are_those_of_the_document(
    visitor: Visitor, label: str, mode: GenerationMode
) -> None:
    operation, before = visitor.operations[label], visitor.state()
    asked: list[int] = []

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def try_it(case: Any) -> None:
        if len(asked) % 2 and "cancel" not in label:
            wanted = set(case.path_parameters)
            case.path_parameters.update({k: v for k, v in visitor.names.items() if k in wanted})
        response = case.call(headers=visitor.headers)
        asked.append(response.status_code)
        case.validate_response(response, checks=CHECKS)

    try_it()

    assert asked
    assert without_payments(visitor.state(), label) == without_payments(before, label)


def without_payments(state: tuple[object, ...], label: str) -> object:
    """To begin a payment of one's own order is allowed, and counts no money."""
    return state[1:] if label.endswith("/pay") else state
