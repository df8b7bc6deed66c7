"""Issues purchase tokens in bulk, for rehearsals and load tests."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import uuid_utils.compat
from django.core.management.base import CommandParser
from django.utils import timezone

from inventory.models import FlashSale
from seckill import tokens
from seckill.management import arguments
from seckill.management.buyers import buyer_ids
from seckill.management.cli import BaseCommand, Failed, find_sale
from seckill.services import TOKEN_AFTERLIFE


class Issued(NamedTuple):
    user_id: int
    purchase_id: str
    token: str


class Command(BaseCommand):
    help = (
        "Print one line `user_id purchase_id token` for each of the buyers that create_buyers "
        "made. A staff tool: who has a token needs no captcha and no password."
    )
    examples = ("--sale 7 --count 2000 > tokens.txt", "--sale 7 --count 10 --json")

    def add_options(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--sale", type=arguments.sale_id, required=True, metavar="ID", help="the sale")
        add("--count", type=arguments.buyers, required=True, help="how many")
        add("--prefix", type=arguments.prefix, default="buyer", help="of the usernames (buyer)")

    def handle(self, *args: Any, **options: Any) -> None:
        sale = find_sale(options["sale"])
        if timezone.now() >= sale.ends_at:
            raise Failed(f"Sale {sale.pk} is over, so no token for it would work.")
        issued = list(_issue(sale, _buyers(options["prefix"], options["count"])))
        data = [row._asdict() for row in issued]
        self.show(
            data, ["\n".join(" ".join(map(str, row)) for row in issued)], as_json=options["json"]
        )


def _buyers(prefix: str, count: int) -> list[int]:
    ids = buyer_ids(prefix, count)
    found = [pk for pk in ids if pk is not None]
    if len(found) < count:
        raise Failed(
            f"{count - len(found)} of the accounts {prefix}1 to {prefix}{count} don't exist.\n"
            f"Make them first: manage.py create_buyers --count {count} --prefix {prefix}"
        )
    return found


def _issue(sale: FlashSale, user_ids: list[int]) -> Iterator[Issued]:
    """As seckill.services.issue_token does, without a query for each."""
    valid_from, expires_at = (
        sale.starts_at.timestamp(),
        (sale.ends_at + TOKEN_AFTERLIFE).timestamp(),
    )
    for user_id in user_ids:
        purchase_id = uuid_utils.compat.uuid7()
        token = tokens.issue(
            sale_id=sale.pk,
            user_id=user_id,
            purchase_id=purchase_id,
            valid_from=valid_from,
            expires_at=expires_at,
        )
        yield Issued(user_id, str(purchase_id), token)
