"""Repairs drift."""

from typing import Any

from django.core.management.base import CommandParser

from orders.repair import reconcile
from seckill.management import arguments
from seckill.management.cli import DRIFT, BaseCommand, Failed, find_sale


class Command(BaseCommand):
    help = (
        "Make the gate's stock and the sales' counters match the orders again, and say what was "
        "done. Safe during a sale. With --dry-run: exit code 3 if there is something to repair."
    )
    writes = True
    examples = ("", "--sale 7 --dry-run")

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("--sale", type=arguments.sale_id, metavar="ID", help="only this sale")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["sale"] is not None:
            find_sale(options["sale"])
        dry_run = options["dry_run"]
        lines = reconcile(options["sale"], dry_run=dry_run)
        self.show({"dry_run": dry_run, "repairs": lines}, lines, as_json=options["json"])
        if not lines:
            self.say("Nothing to repair.")
        elif dry_run:
            raise Failed("Nothing was changed. Run it without --dry-run to repair.", code=DRIFT)
