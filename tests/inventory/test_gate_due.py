"""Which journal entries count as lost: not those that only wait their turn in a long queue."""

import time

import uuid_utils.compat

from inventory import gate
from inventory.gate import Entry, Settlement
from tests.inventory.gates import SALE, prime

RETRY = 0.2  # seconds


def admit(users: range) -> list[Entry]:
    entries = [Entry(user, str(uuid_utils.compat.uuid7())) for user in users]
    gate.reserve(SALE, entries, limited=False)
    return entries


def settle(entry: Entry) -> None:
    gate.settle(SALE, [Settlement(entry.purchase_id, entry.user_id)])


def due() -> list[str]:
    return [entry.purchase_id for entry in gate.due(SALE, retry_after=RETRY)]


def test_due_leaves_a_long_queue_alone_while_it_moves(redis_url: str) -> None:
    prime(10)
    first, second = admit(range(1, 3))
    time.sleep(1.5 * RETRY)  # Entries have to be old; nothing else happens meanwhile.

    settle(first)

    assert due() == []
    assert gate.snapshot(SALE).claims.keys() == {second.purchase_id}


def test_due_finds_what_later_purchases_overtook(redis_url: str) -> None:
    prime(10)
    (lost,) = admit(range(1, 2))
    time.sleep(1.5 * RETRY)
    (later,) = admit(range(2, 3))

    settle(later)

    assert due() == [lost.purchase_id]


def test_due_finds_everything_old_once_nothing_moves(redis_url: str) -> None:
    prime(10)
    first, second = admit(range(1, 3))
    settle(first)
    time.sleep(1.5 * RETRY)

    assert due() == [second.purchase_id]


def test_due_finds_what_is_too_old_to_wait_any_longer(redis_url: str) -> None:
    prime(10)
    first, second = admit(range(1, 3))
    time.sleep(1.5 * RETRY)
    settle(first)

    found = gate.due(SALE, retry_after=RETRY, give_up_after=RETRY)

    assert [entry.purchase_id for entry in found] == [second.purchase_id]
