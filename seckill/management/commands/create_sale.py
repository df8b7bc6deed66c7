"""Makes a flash sale, and its product if none has that name."""

import argparse
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandParser
from django.db import transaction
from django.utils import timezone

from inventory.gate import GateError
from inventory.models import FlashSale
from inventory.redis_clients import sync_client
from inventory.services import create_sale
from orders.presentation import money, rfc3339
from orders.priming import prime
from seckill.management import arguments
from seckill.management.cli import WRONG_USE, BaseCommand, Failed
from seckill.management.errors import explain


class Command(BaseCommand):
    help = "Make a flash sale that buyers may enter at its start, and load its gate."
    writes = True
    examples = (
        '--name "Walnut chair" --price 9.90 --stock 100',
        '--name "Walnut chair" --price 9.90 --list-price 99 --stock 100 --starts-in 60 --json',
    )

    def add_options(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--name", type=arguments.name, required=True, help="the product's name")
        add("--price", type=arguments.money, required=True, help="such as 9.90")
        add("--stock", type=arguments.units, required=True, help="units on sale")
        add("--list-price", type=arguments.money, help="the price before the sale")
        add("--starts-in", type=arguments.seconds(0), default=0.0, help="seconds (default: 0)")
        add("--duration", type=arguments.seconds(0.1), default=3600.0, help="seconds (3600)")
        add("--per-buyer", type=arguments.per_buyer, default=1, help="units per buyer (1)")
        add(
            "--rebuy",
            action=argparse.BooleanOptionalAction,
            default=True,
            help="may a buyer whose order expired or was canceled buy again?",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list_price"] is not None and options["list_price"] < options["price"]:
            raise Failed("--list-price is below --price.", code=WRONG_USE)
        if options["dry_run"]:
            with transaction.atomic():
                sale = _create(options)
                transaction.set_rollback(True)
            self.say(f"Would make this sale: {_in_words(sale)}")
            self.show({"sale_id": None}, [], as_json=options["json"])
            return
        sync_client().ping()  # Before anything is written, so that the sale is whole or not there.
        sale = _create(options)
        self._prime(sale)
        self.show(
            {"sale_id": sale.pk}, [f"sale {sale.pk}: {_in_words(sale)}"], as_json=options["json"]
        )

    def _prime(self, sale: FlashSale) -> None:
        try:
            prime(sale.pk)
        except GateError as error:
            raise Failed(
                f"Sale {sale.pk} is made, but its gate is not loaded. {explain(error)}\n"
                f"Then run `manage.py prime_sale {sale.pk}`."
            ) from error


def _create(options: dict[str, Any]) -> FlashSale:
    starts_at = timezone.now() + timedelta(seconds=options["starts_in"])
    try:
        return create_sale(
            name=options["name"],
            price_cents=options["price"],
            list_price_cents=options["list_price"],
            quantity=options["stock"],
            starts_at=starts_at,
            ends_at=starts_at + timedelta(seconds=options["duration"]),
            per_buyer=options["per_buyer"],
            rebuy=options["rebuy"],
        )
    except ValidationError as error:
        raise Failed("\n".join(_messages(error)), code=WRONG_USE) from error


def _messages(error: ValidationError) -> list[str]:
    if not hasattr(error, "error_dict"):
        return list(error.messages)
    return [
        text if field == "__all__" else f"{field}: {text}"
        for field, texts in error.message_dict.items()
        for text in texts
    ]


def _in_words(sale: FlashSale) -> str:
    return (
        f"{sale.quantity} × {sale.product.name} at {money(sale.price_cents)} {sale.currency}, "
        f"{rfc3339(sale.starts_at)} to {rfc3339(sale.ends_at)}"
    )
