"""Makes buyer accounts for rehearsals and load tests."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from seckill.management import arguments
from seckill.management.buyers import create_buyers, missing_buyers
from seckill.management.cli import BaseCommand


class Command(BaseCommand):
    help = (
        "Make accounts buyer1, buyer2, … whose password is their username. Those that exist stay "
        "as they are. For rehearsals and load tests: their passwords protect nothing."
    )
    writes = True
    examples = ("--count 2000", "--count 100 --prefix tester --json")

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("--count", type=arguments.buyers, required=True, help="how many")
        parser.add_argument("--prefix", type=arguments.prefix, default="buyer", help="buyer")

    def handle(self, *args: Any, **options: Any) -> None:
        prefix, count = options["prefix"], options["count"]
        if options["dry_run"]:
            created, verb = len(missing_buyers(prefix, count)), "would be made"
        else:
            created, verb = create_buyers(prefix, count), "made"
        last = f"{prefix}1 to {prefix}{count}"
        lines = [f"{created} accounts {verb}; {last}, password = username"]
        self.show({"created": created}, lines, as_json=options["json"])
        if created and not settings.EMBEDDED_DATABASE:
            self.say("Anybody can guess these passwords: remove the accounts before the real sale.")
