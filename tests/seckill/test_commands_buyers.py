"""create_buyers and issue_tokens."""

import json
import time
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import DjangoAssertNumQueries

from seckill import tokens
from tests.factories import FlashSaleFactory, UserFactory
from tests.seckill.test_commands import refuse, run, run_json

pytestmark = pytest.mark.django_db
MANY = 20_000
MOST_SECONDS = 30.0  # ten times what it takes alone: other tests run beside it


def test_create_buyers_makes_those_that_are_missing() -> None:
    UserFactory(username="buyer2", password="kept")

    first = run_json("create_buyers", "--count", "3")
    second = run_json("create_buyers", "--count", "4")

    assert (first, second) == ({"created": 2}, {"created": 1})
    assert set(User.objects.values_list("username", flat=True)) == {
        "buyer1",
        "buyer2",
        "buyer3",
        "buyer4",
    }
    assert User.objects.get(username="buyer2").password == "kept"


def test_create_buyers_makes_accounts_that_can_sign_in() -> None:
    run("create_buyers", "--count", "1", "--prefix", "tester")

    user = User.objects.get()
    assert user.check_password("tester1")
    assert not user.check_password("tester2")
    user.refresh_from_db()
    assert user.password.startswith("argon2$")  # replaced at the first sign-in
    assert (user.is_active, user.is_staff, user.is_superuser) == (True, False, False)


def test_create_buyers_dry_run_makes_none() -> None:
    assert run_json("create_buyers", "--count", "3", "--dry-run") == {"created": 3}
    assert User.objects.count() == 0


@pytest.mark.parametrize("option", ["--count=0", "--count=x", "--prefix=a b", "--prefix="])
def test_create_buyers_refuses_what_makes_no_sense(option: str) -> None:
    refuse("create_buyers", "--count=1", option)

    assert User.objects.count() == 0


def test_create_buyers_and_issue_tokens_are_fast() -> None:
    sale = FlashSaleFactory()
    since = time.monotonic()

    run("create_buyers", "--count", str(MANY))
    lines = run("issue_tokens", "--sale", str(sale.pk), "--count", str(MANY)).splitlines()

    assert time.monotonic() - since < MOST_SECONDS
    assert (User.objects.count(), len(set(lines))) == (MANY, MANY)


def test_issue_tokens_prints_tokens_that_are_valid() -> None:
    sale = FlashSaleFactory(scheduled=True)
    run("create_buyers", "--count", "12")

    lines = run("issue_tokens", "--sale", str(sale.pk), "--count", "12").splitlines()

    ids = [User.objects.get(username=f"buyer{number}").pk for number in range(1, 13)]
    read = [line.split(" ") for line in lines]
    assert [int(user_id) for user_id, _, _ in read] == ids
    for user_id, purchase_id, text in read:
        token = tokens.verify(text)
        assert token is not None
        assert token[:2] == (sale.pk, int(user_id))
        assert token.purchase_id == UUID(purchase_id)
        assert token.valid_from == int(sale.starts_at.timestamp())
    assert len({purchase_id for _, purchase_id, _ in read}) == 12


def test_issue_tokens_prints_json() -> None:
    sale = FlashSaleFactory()
    run("create_buyers", "--count", "2")

    found = json.loads(run("issue_tokens", "--sale", str(sale.pk), "--count", "2", "--json"))

    assert [set(row) for row in found] == [{"user_id", "purchase_id", "token"}] * 2


def test_issue_tokens_asks_no_query_for_each_buyer(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale = FlashSaleFactory()
    run("create_buyers", "--count", "1000")

    with django_assert_num_queries(3):  # the sale, and 500 buyers at a time
        run("issue_tokens", "--sale", str(sale.pk), "--count", "1000")


def test_issue_tokens_wants_the_buyers_first() -> None:
    sale = FlashSaleFactory()
    run("create_buyers", "--count", "2")

    code, text, out = refuse("issue_tokens", "--sale", str(sale.pk), "--count", "5")

    assert (code, out) == (1, "")
    assert text.splitlines() == [
        "3 of the accounts buyer1 to buyer5 don't exist.",
        "Make them first: manage.py create_buyers --count 5 --prefix buyer",
    ]


def test_issue_tokens_refuses_a_sale_that_is_over() -> None:
    sale = FlashSaleFactory(closed=True)

    code, text, out = refuse("issue_tokens", "--sale", str(sale.pk), "--count", "1")

    assert (code, out) == (1, "")
    assert text == f"Sale {sale.pk} is over, so no token for it would work."
