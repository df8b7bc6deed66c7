"""Puts a sale back to the state before its start."""

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from orders.repair import NotResettable, reset_sale
from seckill.management import arguments
from seckill.management.cli import BaseCommand, Failed, find_sale


class Command(BaseCommand):
    help = (
        "Remove everything that a sale has led to, orders, payments and a pause included, so that "
        "it can start again. Its window stays as it is. Refuses a sale with paid orders unless "
        "--force is given."
    )
    writes = True
    examples = ("7 --dry-run", "7", "7 --force --no-input")

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("sale_id", type=arguments.sale_id, metavar="ID", help="the sale")
        parser.add_argument("--force", action="store_true", help="also if there are paid orders")

    def handle(self, *args: Any, **options: Any) -> None:
        sale = find_sale(options["sale_id"])
        force, dry_run = options["force"], options["dry_run"]
        try:
            plan = reset_sale(sale.pk, force=force, dry_run=True)
            if not dry_run:
                question = f"Sale {sale.pk} ({sale.product.name}): {', '.join(plan)}. Go on?"
                self.confirm(question, no_input=options["no_input"])
                plan = reset_sale(sale.pk, force=force)
        except NotResettable as error:
            raise Failed(
                f"Nothing was changed: {error}. Their buyers would lose them; if that is what you "
                f"want: manage.py reset_sale {sale.pk} --force"
            ) from error
        data = {"sale_id": sale.pk, "dry_run": dry_run, "done": plan}
        self.show(data, [f"sale {sale.pk}: {line}" for line in plan], as_json=options["json"])
        if sale.ends_at <= timezone.now():
            self.say("Its window is over: nobody can buy until its end is moved, in the admin.")
