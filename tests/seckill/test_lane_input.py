"""What a buggy or hostile program sends to the hot routes, and the texts it gets in return."""

import uuid

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User
from django.utils import translation

from inventory import gate
from inventory.models import FlashSale
from orders.models import Rejection
from tests.factories import FlashSaleFactory, OrderFactory
from tests.seckill.conftest import Shop, bearer, token_for

NOBODYS = uuid.UUID(int=1)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sale() -> FlashSale:
    made: FlashSale = FlashSaleFactory(primed=True, quantity=10)
    return made


def stock(sale: FlashSale) -> int | None:
    return gate.stocks([sale.pk])[sale.pk]


def test_wrong_method(shop: Shop) -> None:
    purchases = "/api/v1/sales/1/purchases"
    wrong = [(m, purchases, "POST") for m in ("GET", "HEAD", "PUT", "OPTIONS", "TRACE")]
    wrong += [(m, f"{purchases}/{NOBODYS}", "GET, HEAD") for m in ("POST", "PUT", "DELETE")]

    for method, target, allow in wrong:
        answer = shop.ask(method, target)

        assert (answer.status, answer.headers["allow"]) == (405, allow)
        assert answer.body == b"" if method == "HEAD" else answer.code == "method_not_allowed"


def test_other_addresses_go_to_the_application_behind(shop: Shop) -> None:
    for path in ("/", "/api/v1/sales", "/api/v1/sales/1", "/api/v1/sales/1/token", "/a/b/c/d/e/f"):
        assert shop.ask("POST", path).headers == {"x-behind": "yes"}


def test_sale_ids_that_are_none(shop: Shop, sale: FlashSale) -> None:
    token = bearer(token_for(sale, 1))
    odd = ["0", "-1", "1.5", "1e9", str(2**63), "1 OR 1=1", "１", "\0", "9" * 10_000, "01", ""]

    for sale_id in odd:
        for method, tail in (("POST", ""), ("GET", f"/{NOBODYS}")):
            answer = shop.ask(method, f"/api/v1/sales/{sale_id}/purchases{tail}", headers=token)

            assert (sale_id, answer.status) == (sale_id, 404)
    assert stock(sale) == 10


JSON = "application/json"
BODIES = [
    *((JSON, body, 400, "bad_request") for body in (b"{", b'{"quantity":1', b"[]", b"[1]", b"1")),
    *((JSON, body, 400, "bad_request") for body in (b'"a"', b"true", b"NaN", b"\xff\xfe", b"\0")),
    (JSON, b"[" * 4000, 400, "bad_request"),
    (JSON, b'{"a":' * 800, 400, "bad_request"),
    *(
        (JSON, b'{"quantity":%b}' % value, 422, "quantity_invalid")
        for value in (b"0", b"-1", b'"1"', b"true", b"null", b"1.5", b"2", b"2147483648", b"[]")
    ),
    (JSON, b'{"quantity":NaN}', 400, "bad_request"),
    (JSON, b'{"quantity":%b}' % (b"9" * 4000), 422, "quantity_invalid"),
    (JSON, b" " * 4097, 413, "too_large"),
    ("text/plain", b"{}", 415, "unsupported_media_type"),
    ("application/x-www-form-urlencoded", b"quantity=1", 415, "unsupported_media_type"),
    ("application/json; charset=utf-16", "{}".encode("utf-16"), 415, "unsupported_media_type"),
]


def test_bad_bodies(shop: Shop, sale: FlashSale) -> None:
    for kind, body, status, code in BODIES:
        answer = shop.buy(sale.pk, token_for(sale, 1), headers={"Content-Type": kind}, body=body)

        assert (body, answer.status, answer.code) == (body, status, code)
    assert shop.broker.entries == []
    assert stock(sale) == 10


def test_huge_number_is_no_quantity(shop: Shop, sale: FlashSale, buyer: User) -> None:
    answer = shop.buy(
        sale.pk, token_for(sale, buyer), headers={"Content-Type": JSON}, body=b'{"quantity":1e309}'
    )

    assert answer.status in (400, 422)
    assert stock(sale) == 10


def test_bodies_that_ask_for_one(shop: Shop, sale: FlashSale) -> None:
    bodies = [b"", b"null", b"{}", b" \n", b'{"quantity":2,"quantity":1}']

    for user_id, body in enumerate(bodies, 1):
        token = token_for(sale, user_id)
        answer = shop.buy(sale.pk, token, headers={"Content-Type": JSON}, body=body)

        assert (body, answer.status) == (body, 202)
    assert stock(sale) == 5


ODD_HEADERS: list[dict[str, str]] = [
    {"Content-Encoding": "gzip", "Content-Type": JSON},
    {"Content-Length": "99999999999999999999"},
    {"Content-Length": "-5"},
    {"Content-Length": "x"},
    {"Cookie": "\x00; =;;" * 50},
    {"Accept-Language": "x" * 60_000},
    {"Accept-Language": "\xff\xfe,*;q=x"},
    {"X-Request-Id": "a\r\nb"},
    {"X-Request-Id": "x" * 65_000},
    {"X-Forwarded-For": "1, " * 2000, "X_Forwarded_For": "1"},
    {f"X-{number}": "1" for number in range(1000)},
]


def test_odd_headers_never_break_it(shop: Shop, sale: FlashSale) -> None:
    target = f"/api/v1/sales/{sale.pk}/purchases"
    taken = 0
    for user_id, headers in enumerate(ODD_HEADERS, 1):
        token = token_for(sale, user_id)
        more = {"body": [b"{}"]} if "Content-Encoding" in headers else {}

        answer = shop.buy(sale.pk, token, headers=headers, **more)
        question = shop.ask("GET", f"{target}/{NOBODYS}", headers=headers | bearer(token))

        assert (headers, answer.status in (202, 400, 413, 415)) == (headers, True)
        assert (headers, question.status) == (headers, 404)
        taken += answer.status == 202
    assert stock(sale) == 10 - taken


ODD_QUERIES = [
    *("?" + "a=1&" * 1000, "?wait=" + "9" * 100_000, "?wait=nan", "?wait=-1", "?wait=inf"),
    *("?wait=", "?wait=1e9", "?wait=0&wait=x", "?%ff=%00", "?wait=１"),
]


def test_odd_queries_never_wait(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)

    for query in ODD_QUERIES:
        target = f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}"
        target += query.encode().decode("latin-1")
        future = shop.start("GET", target, headers=bearer(token))[1]

        assert future.result(1).json["status"] == "queued"


# --- languages and request ids --------------------------------------------------------------------


def test_refusal_is_in_the_readers_language(shop: Shop, sale: FlashSale) -> None:
    target = f"/api/v1/sales/{sale.pk}/purchases"

    chinese = shop.ask("POST", target, headers={"Accept-Language": "zh-CN,zh;q=0.9"})
    english = shop.ask("POST", target, headers={"Accept-Language": "fr"})

    assert chinese.json["title"] != english.json["title"] == "Purchase token required"
    assert not chinese.json["title"].isascii()
    assert chinese.headers["content-language"] == "zh-hans"
    assert english.headers["content-language"] == "en"


def test_failure_is_told_in_the_readers_language(shop: Shop, sale: FlashSale, buyer: User) -> None:
    order = OrderFactory(sale=sale, user=buyer, rejected=True)
    target = f"/api/v1/sales/{sale.pk}/purchases/{order.pk}"
    token = bearer(token_for(sale, buyer))

    chinese = shop.ask("GET", target, headers=token | {"Cookie": "django_language=zh-hans"})
    english = shop.ask("GET", target, headers=token)

    with translation.override("en"):
        assert english.json["message"] == str(Rejection.SOLD_OUT.label)
    assert chinese.json["message"] != english.json["message"]
    assert not chinese.json["message"].isascii()


def test_request_id_is_echoed(shop: Shop, sale: FlashSale, buyer: User) -> None:
    for given in ("abcdefgh", "0af7651916cd43dd8448eb211c80319c", "a.b-c_d.e"):
        headers = {"X-Request-Id": given}
        accepted = shop.buy(sale.pk, token_for(sale, buyer), headers=headers)

        assert accepted.headers["x-request-id"] == given
        assert shop.buy(sale.pk, "wrong", headers=headers).json["instance"] == given


def test_request_id_that_is_none_is_replaced(shop: Shop, sale: FlashSale) -> None:
    given = ["short", "x" * 65, 'quote"quote', "söndag-söndag", "two words"]
    used = [shop.buy(sale.pk, "wrong", headers={"X-Request-Id": g}).json["instance"] for g in given]

    assert not set(given) & set(used)
    assert len(set(used)) == len(given)
