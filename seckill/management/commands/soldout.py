"""Shows the sold-out marks of all web processes."""

from typing import Any

from django.core.management.base import CommandParser

from inventory import reports
from seckill.management.cli import BaseCommand, table


class Command(BaseCommand):
    help = (
        "Show what each live web process believes to be sold out, and whether it hears the others."
    )
    examples = ("show", "show --json")

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["show"], help="the only thing that can be done")

    def handle(self, *args: Any, **options: Any) -> None:
        processes = reports.read()
        if not processes:
            self.say("No web process has reported within the last seconds.")
        self.show({"processes": processes}, _lines(processes), as_json=options["json"])


def _lines(processes: dict[str, Any]) -> list[str]:
    if not processes:
        return []
    heads = [
        (name, report.get("channel", "-"), report.get("listener", "-"), f"{report['age']:.1f} s")
        for name, report in processes.items()
    ]
    marks = [
        (name, mark["sale"], _belief(mark), mark["epoch"], f"{mark['age']:.1f} s")
        for name, report in processes.items()
        for mark in report["marks"]
    ]
    return [
        *table(("process", "channel", "listener", "heard"), heads),
        "",
        *table(("process", "sale", "belief", "epoch", "age"), marks),
    ]


def _belief(mark: dict[str, Any]) -> str:
    if mark["refuses"]:
        return "sold out"
    return "sold out, asks again" if mark["sold_out"] else "asks the gate"
