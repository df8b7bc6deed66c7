"""Checks the invariants of the sales."""

from typing import Any

from django.core.management.base import CommandParser

from orders.audit import Report, audit
from seckill.management import arguments
from seckill.management.cli import DRIFT, BaseCommand, Failed, find_sale, table

HEAD = ("sale", "quantity", "allocated", "available", "gate", "in flight", "unpaid", "paid")


class Command(BaseCommand):
    help = (
        "Compare stock, orders and gate of one sale or all, and name what doesn't fit. Reads "
        "only. Exit code 3 if something is violated."
    )
    examples = ("", "--sale 7", "--json")

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("--sale", type=arguments.sale_id, metavar="ID", help="only this sale")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["sale"] is not None:
            find_sale(options["sale"])
        report = audit(options["sale"])
        self.show(report, _lines(report), as_json=options["json"])
        if not report["ok"]:
            raise Failed(
                "Something doesn't fit. `manage.py reconcile --dry-run` says what can be repaired.",
                code=DRIFT,
            )
        self.say(f"Sales checked: {len(report['sales'])}, nothing violated.")


def _lines(report: Report) -> list[str]:
    rows = [
        (
            sale["sale_id"],
            sale["quantity"],
            sale["allocated"],
            sale["available"],
            "not primed" if sale["gate"] is None else sale["gate"],
            sale["in_flight"],
            sale["orders"]["unpaid"],
            sale["orders"]["paid"],
        )
        for sale in report["sales"]
    ]
    violations = [
        f"violation: sale {sale['sale_id']}: {text}"
        for sale in report["sales"]
        for text in sale["violations"]
    ]
    return [*table(HEAD, rows), *violations]
