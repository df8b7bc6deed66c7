"""The demo shop: two accounts, and sales in each state that a visitor should see."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TypedDict

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import F
from django.utils import timezone

from config import embedded
from inventory.models import FlashSale, Product
from inventory.services import create_sale
from orders.priming import prime


class Account(TypedDict):
    username: str
    password: str | None  # None: the account was there already, with a password of its own


class Demo(TypedDict):
    sales: list[int]
    admin: Account
    buyer: Account


@dataclass(frozen=True)
class Offer:
    """A sale that the demo shop should have. Times in seconds from now."""

    name: str
    description: str
    price_cents: int
    list_price_cents: int
    stock: int
    starts_in: int
    duration: int
    per_buyer: int = 1
    refill: bool = True  # a new one is made when it has sold out


OFFERS = (
    Offer(
        name="Walnut desk lamp",
        description="Warm light, brass switch, made to last. On sale now.",
        price_cents=990,
        list_price_cents=9900,
        stock=1000,
        starts_in=0,
        duration=30 * 86400,
    ),
    Offer(
        name="Mechanical keyboard",
        description="Hot-swap switches and a solid case. Starts soon: watch the countdown.",
        price_cents=19900,
        list_price_cents=59900,
        stock=200,
        starts_in=600,
        duration=86400,
        per_buyer=2,
    ),
    Offer(
        name="Signed first edition",
        description="Three copies, and no more: sells out at once.",
        price_cents=100,
        list_price_cents=12000,
        stock=3,
        starts_in=0,
        duration=30 * 86400,
        refill=False,
    ),
)


def is_foreign_shop() -> bool:
    """Whether somebody else's products are here: then a demo has no business here unasked."""
    return Product.objects.exclude(name__in=[offer.name for offer in OFFERS]).exists()


def seed() -> Demo:
    """Make what is missing; running it again changes nothing that still works."""
    admin = _account("admin", partial(User.objects.create_superuser, "admin"))
    buyer = _account("demo", partial(User.objects.create_user, "demo"))
    sales = [_current(offer) or _make(offer) for offer in OFFERS]
    for sale in sales:
        prime(sale.pk)
    return {"sales": [sale.pk for sale in sales], "admin": admin, "buyer": buyer}


def _account(username: str, create: "partial[User]") -> Account:
    password = _password(username)
    user = User.objects.filter(username=username).first()
    if user is None:
        create(password=password)
    elif not user.check_password(password):
        return {"username": username, "password": None}  # nosec B105
    return {"username": username, "password": password}


def _password(username: str) -> str:
    """Easy to type where nobody else gets to; a database of one's own may be reached by others."""
    return username if settings.EMBEDDED_DATABASE else embedded.secret(f"{username}_password")


def _current(offer: Offer) -> FlashSale | None:
    """The offer's sale, if it still shows what it is there for."""
    now = timezone.now()
    sales = FlashSale.objects.filter(product__name=offer.name, paused=False)
    if offer.starts_in:
        return sales.filter(starts_at__gt=now).order_by("pk").last()
    running = sales.filter(starts_at__lte=now, ends_at__gt=now + timedelta(hours=1))
    if offer.refill:
        running = running.filter(allocated__lt=F("quantity"))
    return running.order_by("pk").last()


def _make(offer: Offer) -> FlashSale:
    starts_at = timezone.now() + timedelta(seconds=offer.starts_in)
    sale = create_sale(
        name=offer.name,
        price_cents=offer.price_cents,
        list_price_cents=offer.list_price_cents,
        quantity=offer.stock,
        starts_at=starts_at,
        ends_at=starts_at + timedelta(seconds=offer.duration),
        per_buyer=offer.per_buyer,
    )
    Product.objects.filter(pk=sale.product_id, description="").update(description=offer.description)
    return sale
