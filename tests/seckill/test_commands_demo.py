"""seed_demo."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django.fixtures import Settings

from inventory import gate
from inventory.models import FlashSale, Product, SaleState
from tests.factories import ProductFactory
from tests.seckill.test_commands import refuse, run, run_json

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _embedded(settings: Settings) -> None:
    settings.EMBEDDED_DATABASE = True


@pytest.fixture
def real_database(settings: Settings) -> None:
    settings.EMBEDDED_DATABASE = False


def test_seed_demo_makes_accounts_and_sales() -> None:
    answer = run_json("seed_demo")

    assert answer["admin"] == {"username": "admin", "password": "admin"}
    assert answer["buyer"] == {"username": "demo", "password": "demo"}
    assert set(answer) == {"sales", "admin", "buyer"}
    sales = [FlashSale.objects.get(pk=pk) for pk in answer["sales"]]
    states = [sale.state() for sale in sales]
    assert states == [SaleState.OPEN, SaleState.SCHEDULED, SaleState.OPEN]
    assert gate.stocks(answer["sales"]) == {sale.pk: sale.quantity for sale in sales}
    assert User.objects.get(username="admin").is_superuser
    assert User.objects.get(username="demo").check_password("demo")
    assert not User.objects.get(username="demo").is_staff


def test_seed_demo_again_changes_nothing() -> None:
    first = run_json("seed_demo")
    before = list(User.objects.values_list("pk", "password"))

    assert run_json("seed_demo") == first
    assert FlashSale.objects.count() == 3
    assert list(User.objects.values_list("pk", "password")) == before


def test_seed_demo_replaces_a_sale_that_is_over_or_sold_out() -> None:
    opened, scheduled, small = run_json("seed_demo")["sales"]
    FlashSale.objects.filter(pk=opened).update(allocated=1000)
    hour = timedelta(hours=1)
    now = timezone.now()
    FlashSale.objects.filter(pk=scheduled).update(starts_at=now - hour, ends_at=now + hour)
    FlashSale.objects.filter(pk=small).update(allocated=3)

    again = run_json("seed_demo")["sales"]

    # The small one is there to be seen sold out.
    assert (again[0] > opened, again[1] > scheduled, again[2]) == (True, True, small)
    states = [FlashSale.objects.get(pk=pk).state() for pk in again]
    assert states == [SaleState.OPEN, SaleState.SCHEDULED, SaleState.SOLD_OUT]
    assert Product.objects.count() == 3


def test_seed_demo_leaves_a_changed_password_alone() -> None:
    run("seed_demo")
    admin = User.objects.get(username="admin")
    admin.set_password("another")
    admin.save()

    assert run_json("seed_demo")["admin"] == {"username": "admin", "password": None}
    admin.refresh_from_db()
    assert admin.check_password("another")


def test_seed_demo_dry_run_makes_nothing() -> None:
    assert run("seed_demo", "--dry-run") == ""
    assert (FlashSale.objects.count(), User.objects.count()) == (0, 0)


@pytest.mark.usefixtures("real_database")
def test_seed_demo_stays_out_of_somebody_elses_shop() -> None:
    ProductFactory()

    code, text, out = refuse("seed_demo")

    assert (code, out) == (2, "")
    assert text.endswith("manage.py seed_demo --real-database")
    assert (FlashSale.objects.count(), User.objects.count()) == (0, 0)


@pytest.mark.usefixtures("real_database")
def test_seed_demo_makes_passwords_that_nobody_guesses_in_a_real_database() -> None:
    ProductFactory()

    answer = run_json("seed_demo", "--real-database")

    for name in ("admin", "buyer"):
        account = answer[name]
        assert len(account["password"]) > 40
        assert User.objects.get(username=account["username"]).check_password(account["password"])
