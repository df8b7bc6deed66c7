"""Purchases that can't become orders: the unit comes back once, and their buyers are told."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from tests.e2e.shop import REJECTED, UNPAID, Shop, ticket
from tests.e2e.sockets import my_socket, result_of
from tests.support.load import Ticket, unknown
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]

REFUSE = """
CREATE OR REPLACE FUNCTION refuse_order() RETURNS trigger AS $$
BEGIN
    IF NEW.user_id = {user_id} AND NEW.status = 0 THEN RAISE EXCEPTION 'refused by a test'; END IF;
    RETURN NEW;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER refuse_order BEFORE INSERT ON orders_order
    FOR EACH ROW EXECUTE FUNCTION refuse_order();
"""


@contextmanager
def database_refusing(shop: Shop, user_id: int) -> Iterator[None]:
    """PostgreSQL lets this user have no order."""
    shop.rows(REFUSE.format(user_id=user_id))
    yield
    shop.rows("DROP TRIGGER refuse_order ON orders_order")


@contextmanager
def one_batch(shop: Shop) -> Iterator[None]:
    """What is bought meanwhile waits: no worker makes orders of it, and no message is left."""
    assert shop.rabbitmq is not None
    for name in ("orders1", "orders2"):
        shop.stack.kill(name)
    yield
    shop.rabbitmq.purge("orders", vhost=shop.vhost)
    for name in ("orders1", "orders2"):
        shop.stack.launch(name)


def buy(shop: Shop, tickets: list[Ticket]) -> None:
    """All of them are admitted."""
    accepted = shop.load(again=unknown).run(tickets).accepted()
    assert accepted.keys() == {ticket.purchase_id for ticket in tickets}


def expected_failure(failed: Ticket, code: str) -> dict[str, object]:
    return {
        "purchase_id": failed.purchase_id,
        "sale_id": failed.sale_id,
        "code": code,
        "order_id": None,
        "redirect": "/",
    }


def test_bad_entries_of_a_batch_are_rejected_and_the_others_become_orders(shop: Shop) -> None:
    sale_id = shop.create_sale(200)
    tickets = shop.tickets(sale_id, 100)
    refused, twice, *good = tickets
    stranger = ticket(sale_id, 2_000_000_000)
    buy(shop, [twice])
    shop.wait_decided(sale_id, [twice.purchase_id])
    shop.wait_quiet(sale_id)
    # What a failover may lose: the gate lets this buyer in again.
    shop.redis.hdel(shop.key(sale_id, "buyers"), str(twice.user_id))
    duplicate = ticket(sale_id, twice.user_id)

    batch = [*good[:50], refused, stranger, duplicate, *good[50:]]
    with ExitStack() as stack:
        stack.enter_context(database_refusing(shop, refused.user_id))
        watched = (refused, duplicate, good[0])
        sockets = [stack.enter_context(my_socket(shop, t.user_id)) for t in watched]
        with one_batch(shop):
            buy(shop, batch)
            entries = [[t.purchase_id, t.user_id, 1] for t in batch]
            unreadable = [["no purchase", "nobody", None], [], "poison"]
        shop.queue("create_orders", sale_id, [*unreadable, *entries], queue="orders")
        frames = [result_of(*pair) for pair in zip(sockets, watched, strict=True)]
        shop.wait_decided(sale_id, [t.purchase_id for t in batch])

    report = shop.rest(sale_id)
    rows = shop.decided(sale_id)
    assert {pk: row for pk, row in rows.items() if row != (UNPAID, "")} == {
        refused.purchase_id: (REJECTED, "failed"),
        stranger.purchase_id: (REJECTED, "failed"),
        duplicate.purchase_id: (REJECTED, "duplicate"),
    }
    assert (report["allocated"], report["gate"]) == (99, 101)
    assert [frame["type"] for frame in frames] == ["purchase.failed"] * 2 + ["purchase.succeeded"]
    for frame, failed, code in zip(
        frames, (refused, duplicate), ("failed", "duplicate"), strict=False
    ):
        data = dict(frame["data"])
        assert data.pop("message")
        assert data == expected_failure(failed, code)
    answers = shop.check_answers(sale_id, [refused, stranger, duplicate, *good])
    assert answers == {"failed": 3, "succeeded": 98}
    # The gate has adopted the order that it had forgotten.
    replay = shop.load().run([ticket(sale_id, twice.user_id)])
    assert replay.accepted().keys() == {twice.purchase_id}
    assert set(shop.events(sale_id).values()) == {1}
    assert shop.corrections(sale_id) == []


@contextmanager
def without_sweeps(shop: Shop) -> Iterator[None]:
    """Or they might set the gate right before anybody has bought from it."""
    assert shop.rabbitmq is not None
    list_queues = partial(shop.rabbitmq.ctl, "list_queues", "-p", shop.vhost, "name", "messages")
    shop.stack.pause("beat")
    try:
        # Each look takes longer than a sweep that has just begun.
        wait_until(lambda: "sweeps\t0" in list_queues(), 30)
        yield
    finally:
        shop.stack.resume("beat")


def test_units_that_the_gate_had_too_many_are_destroyed(shop: Shop) -> None:
    sale_id = shop.create_sale(10)
    tickets = shop.tickets(sale_id, 15)
    first, surplus = tickets[:10], tickets[10:]
    buy(shop, first)
    shop.wait_decided(sale_id, [t.purchase_id for t in first])
    shop.wait_quiet(sale_id)
    with my_socket(shop, surplus[0].user_id) as socket, without_sweeps(shop):
        shop.redis.set(shop.key(sale_id, "stock"), 5)
        load = shop.load(again=lambda answer: answer.kind != "ok", lasting=30).run(surplus)
        frame = result_of(socket, surplus[0])

    assert load.accepted().keys() == {t.purchase_id for t in surplus}
    shop.wait_decided(sale_id, load.accepted())
    report = shop.rest(sale_id)
    assert (report["allocated"], report["gate"]) == (10, 0)
    assert shop.statuses(sale_id) == {UNPAID: 10, REJECTED: 5}
    data = dict(frame["data"])
    assert data.pop("message")
    assert data == expected_failure(surplus[0], "sold_out")
    answers = shop.check_answers(sale_id, tickets)
    assert answers == {"succeeded": 10, "failed": 5}
    late = shop.load().run([ticket(sale_id, surplus[0].user_id)])
    assert late.codes() == {"sold_out": 1}
