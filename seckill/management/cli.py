"""What all commands have in common: output, flags, exit codes, and errors a reader can act on.

Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 failed, 2 wrong use or configuration,
3 violation or drift found.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand as DjangoCommand
from django.core.management.base import CommandError, CommandParser, DjangoHelpFormatter

from inventory.models import FlashSale
from seckill.management.errors import EXPECTED, explain

FAILED, WRONG_USE, DRIFT = 1, 2, 3
INTERRUPTED = 130  # Ctrl-C, as shells number it
EXAMPLES = "examples:"


class Failed(CommandError):
    """Ends a command with a text that says what happened and what to do next."""

    def __init__(self, text: str, *, code: int = FAILED) -> None:
        super().__init__(text, returncode=code)


class BaseCommand(DjangoCommand):
    """A command of this project. `examples` are lines that `--help` shows."""

    requires_system_checks = ()
    examples: Sequence[str] = ()
    writes = False  # adds --dry-run
    _called_from_command_line: bool  # set by Django

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        lines = [f"  manage.py {subcommand} {example}".rstrip() for example in self.examples]
        epilog = "\n".join([EXAMPLES, *lines]) if lines else ""
        parser = super().create_parser(prog_name, subcommand, epilog=epilog, **kwargs)
        parser.formatter_class = _HelpFormatter
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON, for machines")
        parser.add_argument("--no-input", action="store_true", help="never ask anything")
        if self.writes:
            parser.add_argument(
                "--dry-run", action="store_true", help="say what would be done, and change nothing"
            )
        self.add_options(parser)

    def add_options(self, parser: CommandParser) -> None:
        """The command's own arguments."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        if os.environ.get("NO_COLOR") and not options.get("force_color"):
            options["no_color"] = True
        try:
            return super().execute(*args, **options)
        except EXPECTED as error:
            failure = Failed(explain(error))
            if options.get("traceback"):
                raise failure from error
            self._end(failure)
        except CommandError as error:
            if options.get("traceback"):
                raise
            self._end(error)
        except BrokenPipeError:
            # Whoever read the output has seen enough (`| head`); the rest goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(FAILED)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        return None

    def _end(self, error: CommandError) -> None:
        """On the command line the text alone, without the name of a Python class before it."""
        if not self._called_from_command_line:
            raise error from None
        text = str(error).strip()
        if text:
            self.stderr.write(text)
        sys.exit(error.returncode)

    # --- output -------------------------------------------------------------------------------
    def say(self, text: str) -> None:
        self.stderr.write(text, style_func=str)

    def show(self, data: Any, lines: Sequence[str], *, as_json: bool) -> None:
        """Print the result: JSON for machines, lines for people."""
        if as_json:
            self.stdout.write(json.dumps(data))
            return
        for line in lines:
            self.stdout.write(line)

    def confirm(self, question: str, *, no_input: bool) -> None:
        """Ask before something is lost; nobody is asked where nobody could answer."""
        if no_input or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return
        self.stderr.write(f"{question} [y/N] ", ending="", style_func=str)
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Failed("Nothing was changed.")


class _HelpFormatter(DjangoHelpFormatter):
    """Keeps the lines of the examples; everything else is wrapped as usual."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(EXAMPLES) else super()._fill_text(text, width, indent)


def find_sale(sale_id: int) -> FlashSale:
    sale = FlashSale.objects.select_related("product").filter(pk=sale_id).first()
    if sale is None:
        raise Failed(f"There is no sale {sale_id}. {_known_sales()}")
    return sale


def _known_sales() -> str:
    ids = list(FlashSale.objects.order_by("-pk").values_list("pk", flat=True)[:11])
    if not ids:
        return "There is none at all yet: `manage.py create_sale --help` shows how to make one."
    more = ", …" if len(ids) > 10 else ""
    return f"There are: {', '.join(str(pk) for pk in ids[:10])}{more}."


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Columns as wide as what stands in them; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    right = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        pairs = zip(row, widths, right, strict=True)
        return "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in pairs).rstrip()

    return [line(row) for row in cells]
