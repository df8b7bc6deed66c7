"""Makes the demo shop."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from inventory.redis_clients import sync_client
from seckill.management.cli import WRONG_USE, BaseCommand, Failed
from seckill.management.demo import Account, is_foreign_shop, seed


class Command(BaseCommand):
    help = (
        "Make a demo shop: an admin, a buyer, a sale that is open, one that starts soon and one "
        "that sells out at once. Run it again, and it makes what has ended anew."
    )
    writes = True
    examples = ("", "--json")

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--real-database",
            action="store_true",
            help="also if DATABASE_URL names a database that has products of its own",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not (settings.EMBEDDED_DATABASE or options["real_database"]) and is_foreign_shop():
            raise Failed(
                "The database named by DATABASE_URL has products of its own, so no demo shop is "
                "made in it.\nIf you want it there nevertheless: manage.py seed_demo "
                "--real-database",
                code=WRONG_USE,
            )
        sync_client().ping()
        if options["dry_run"]:
            self.say("Would make the demo accounts and those demo sales that are missing.")
            return
        demo = seed()
        lines = [
            f"sales: {', '.join(str(pk) for pk in demo['sales'])}",
            f"admin: {_in_words(demo['admin'])}",
            f"buyer: {_in_words(demo['buyer'])}",
        ]
        self.show(demo, lines, as_json=options["json"])


def _in_words(account: Account) -> str:
    return f"{account['username']} / {account['password'] or '(has a password of its own)'}"
