"""Loads a sale's gate."""

from typing import Any

from django.core.management.base import CommandParser

from inventory import gate
from orders.priming import prime
from seckill.management import arguments
from seckill.management.cli import BaseCommand, find_sale


class Command(BaseCommand):
    help = "Load a sale's gate from the database if, and only if, it isn't loaded."
    writes = True
    examples = ("7", "7 --dry-run")

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("sale_id", type=arguments.sale_id, metavar="ID", help="the sale")

    def handle(self, *args: Any, **options: Any) -> None:
        sale = find_sale(options["sale_id"])
        if options["dry_run"]:
            primed = gate.snapshot(sale.pk).stock is None
            words = "would be loaded" if primed else "is loaded already"
        else:
            primed = prime(sale.pk)
            words = "is loaded now" if primed else "was loaded already"
        data = {"sale_id": sale.pk, "primed": primed}
        self.show(data, [f"sale {sale.pk}: the gate {words}"], as_json=options["json"])
