"""The commands that make and look after sales."""

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone
from pytest_django.fixtures import Settings

from inventory import gate, keys, redis_clients
from inventory.models import FlashSale, Product
from orders.models import Order
from tests.factories import FlashSaleFactory, OrderFactory
from tests.support.waiting import free_port

pytestmark = pytest.mark.django_db
SALE = ["create_sale", "--name", "Chair", "--price", "9.90", "--stock", "5"]


def run(*arguments: str) -> str:
    """What a command printed to stdout."""
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def run_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def refuse(*arguments: str) -> tuple[int, str, str]:
    """Exit code, message and what stood on stdout of a command that must fail."""
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command(*arguments, stdout=out, stderr=io.StringIO())
    return caught.value.returncode, str(caught.value), out.getvalue()


@pytest.fixture
def redis_down(settings: Settings) -> Iterator[None]:
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    redis_clients.forget()
    yield
    redis_clients.forget()


# --- create_sale --------------------------------------------------------------------------------
def test_create_sale_makes_product_sale_and_gate() -> None:
    before = timezone.now()
    options = [
        "--list-price",
        "99",
        "--starts-in",
        "60.5",
        "--duration",
        "30",
        "--per-buyer",
        "2",
        "--no-rebuy",
    ]

    answer = run_json(*SALE, *options)

    sale = FlashSale.objects.select_related("product").get()
    assert answer == {"sale_id": sale.pk}
    assert (sale.product.name, sale.price_cents, sale.list_price_cents) == ("Chair", 990, 9900)
    assert (sale.quantity, sale.per_buyer, sale.rebuy) == (5, 2, False)
    assert timedelta(seconds=60) < sale.starts_at - before < timedelta(seconds=62)
    assert sale.ends_at - sale.starts_at == timedelta(seconds=30)
    assert gate.stocks([sale.pk]) == {sale.pk: 5}


def test_create_sale_is_open_for_an_hour_unless_told_otherwise() -> None:
    run(*SALE)

    sale = FlashSale.objects.get()
    assert sale.starts_at <= timezone.now()
    assert sale.ends_at - sale.starts_at == timedelta(hours=1)
    assert (sale.per_buyer, sale.rebuy, sale.list_price_cents) == (1, True, None)


def test_create_sale_takes_the_product_that_has_the_name() -> None:
    run(*SALE)
    run(*SALE)

    assert Product.objects.count() == 1
    assert FlashSale.objects.count() == 2


@pytest.mark.parametrize(("text", "cents"), [("9.9", 990), ("9", 900), ("0.05", 5), ("09.90", 990)])
def test_create_sale_reads_a_price(text: str, cents: int) -> None:
    run("create_sale", "--name", "Chair", "--price", text, "--stock", "1")

    assert FlashSale.objects.get().price_cents == cents


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--price", text)
        for text in ("1e3", "NaN", "-1", "9.999", "9,90", "٩", "0", "0.00", "", " 1")
    ]
    + [("--stock", text) for text in ("0", "1.5", "-1", "ten", "99999999999")]
    + [("--starts-in", "-1"), ("--starts-in", "inf"), ("--duration", "0"), ("--duration", "1h")]
    + [("--name", "  "), ("--name", "x" * 201), ("--name", "a\0b"), ("--per-buyer", "0")]
    + [("--list-price", "9.89")],
)
def test_create_sale_refuses_what_makes_no_sense(option: str, value: str) -> None:
    _, text, out = refuse(*SALE, f"{option}={value}")

    assert option in text
    assert (out, FlashSale.objects.count(), Product.objects.count()) == ("", 0, 0)


def test_create_sale_dry_run_writes_nothing(redis_client: redis.Redis) -> None:
    answer = run_json(*SALE, "--dry-run")

    assert answer == {"sale_id": None}
    assert (FlashSale.objects.count(), Product.objects.count()) == (0, 0)
    assert redis_client.keys("*sale:*") == []


@pytest.mark.usefixtures("redis_down")
def test_create_sale_without_redis_says_what_to_do_and_writes_nothing() -> None:
    code, text, out = refuse(*SALE)

    assert code == 1
    assert text.startswith("Redis can't be used: ")
    assert text.splitlines()[1].startswith("Check REDIS_URL; `manage.py doctor`")
    assert (out, FlashSale.objects.count(), Product.objects.count()) == ("", 0, 0)


# --- prime_sale ---------------------------------------------------------------------------------
def test_prime_sale_loads_a_gate_once() -> None:
    sale = FlashSaleFactory(quantity=7)

    first = run_json("prime_sale", str(sale.pk))
    second = run_json("prime_sale", str(sale.pk))

    assert first == {"sale_id": sale.pk, "primed": True}
    assert second == {"sale_id": sale.pk, "primed": False}
    assert gate.stocks([sale.pk]) == {sale.pk: 7}


def test_prime_sale_dry_run_loads_nothing() -> None:
    sale = FlashSaleFactory()

    assert run_json("prime_sale", str(sale.pk), "--dry-run")["primed"] is True
    assert gate.stocks([sale.pk]) == {sale.pk: None}


@pytest.mark.parametrize(
    "command", [["prime_sale", "{}"], ["audit", "--sale={}"], ["reset_sale", "{}"]]
)
def test_commands_name_the_sales_that_there_are(command: list[str]) -> None:
    sale = FlashSaleFactory()
    unknown = sale.pk + 1

    code, text, out = refuse(*[part.format(unknown) for part in command])

    assert (code, out) == (1, "")
    assert text == f"There is no sale {unknown}. There are: {sale.pk}."


# --- audit, reconcile ---------------------------------------------------------------------------
def test_audit_reports_as_the_contract_says() -> None:
    sale = FlashSaleFactory(quantity=5)
    OrderFactory(sale=sale, paid=True)
    run("prime_sale", str(sale.pk))

    assert run_json("audit") == {
        "ok": True,
        "sales": [
            {
                "sale_id": sale.pk,
                "quantity": 5,
                "allocated": 1,
                "available": 4,
                "gate": 4,
                "in_flight": 0,
                "orders": {
                    "unpaid": 0,
                    "paid": 1,
                    "expired": 0,
                    "canceled": 0,
                    "refunded": 0,
                    "rejected": 0,
                },
                "violations": [],
            }
        ],
    }


def test_audit_looks_at_one_sale_only_if_told() -> None:
    first, second = FlashSaleFactory(primed=True), FlashSaleFactory(primed=True)

    assert [s["sale_id"] for s in run_json("audit")["sales"]] == [first.pk, second.pk]
    assert [s["sale_id"] for s in run_json("audit", "--sale", str(second.pk))["sales"]] == [
        second.pk
    ]


def test_audit_and_reconcile_tell_drift_by_their_exit_code(redis_client: redis.Redis) -> None:
    sale = FlashSaleFactory(primed=True, quantity=5)
    redis_client.set(keys.of_sale(sale.pk, "stock"), 3)

    code, _, out = refuse("audit", "--json")
    dry_code, _, dry_out = refuse("reconcile", "--dry-run", "--json")

    assert (code, json.loads(out)["ok"]) == (3, False)
    assert len(json.loads(out)["sales"][0]["violations"]) == 1
    assert (dry_code, len(json.loads(dry_out)["repairs"])) == (3, 1)
    assert gate.stocks([sale.pk]) == {sale.pk: 3}


def test_reconcile_repairs_drift(redis_client: redis.Redis) -> None:
    sale = FlashSaleFactory(primed=True, quantity=5)
    redis_client.set(keys.of_sale(sale.pk, "stock"), 3)

    answer = run_json("reconcile", "--sale", str(sale.pk))

    assert answer == {"dry_run": False, "repairs": ["gate stock corrected from 3 to 5"]}
    assert run_json("audit")["ok"] is True
    assert run_json("reconcile") == {"dry_run": False, "repairs": []}


# --- reset_sale ---------------------------------------------------------------------------------
def test_reset_sale_goes_back_to_the_start() -> None:
    order = OrderFactory(sale__quantity=5)
    run("prime_sale", str(order.sale_id))

    answer = run_json("reset_sale", str(order.sale_id))

    sale = FlashSale.objects.get()
    assert (answer["sale_id"], answer["dry_run"]) == (sale.pk, False)
    assert (sale.allocated, Order.objects.count()) == (0, 0)
    assert gate.stocks([sale.pk]) == {sale.pk: 5}
    assert run_json("audit")["ok"] is True


@pytest.mark.parametrize("over", [True, False])
def test_reset_sale_says_that_a_window_is_over(over: bool) -> None:
    sale, said = FlashSaleFactory(closed=over), io.StringIO()

    call_command("reset_sale", str(sale.pk), stdout=io.StringIO(), stderr=said)

    assert ("Its window is over" in said.getvalue()) is over


def test_reset_sale_refuses_paid_orders_unless_forced() -> None:
    order = OrderFactory(paid=True)
    sale_id = str(order.sale_id)

    code, text, out = refuse("reset_sale", sale_id)

    assert (code, out, Order.objects.count()) == (1, "", 1)
    assert f"manage.py reset_sale {sale_id} --force" in text
    run("reset_sale", sale_id, "--force")
    assert Order.objects.count() == 0


def test_reset_sale_dry_run_removes_nothing() -> None:
    order = OrderFactory()

    assert run_json("reset_sale", str(order.sale_id), "--dry-run")["dry_run"] is True
    assert Order.objects.count() == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "left"), [("n\n", 1), ("\n", 1), ("y\n", 0)])
def test_reset_sale_asks_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    order = OrderFactory()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", Terminal())

    if left:
        assert refuse("reset_sale", str(order.sale_id)) == (1, "Nothing was changed.", "")
    else:
        run("reset_sale", str(order.sale_id))

    assert Order.objects.count() == left


def test_reset_sale_asks_nothing_with_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    order = OrderFactory()
    monkeypatch.setattr("sys.stdin", Terminal(""))
    monkeypatch.setattr("sys.stderr", Terminal())

    run("reset_sale", str(order.sale_id), "--no-input")

    assert Order.objects.count() == 0
