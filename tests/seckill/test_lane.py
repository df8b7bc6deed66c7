"""The two hot routes as a program meets them: every answer that the contract names."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
import uuid_utils.compat
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from inventory import gate, keys
from inventory.models import FlashSale
from inventory.services import close_sale, pause_sale
from inventory.soldout import marks
from orders.models import Order, Rejection, Status
from orders.services import cancel_order, expire_orders
from seckill import services
from tests.factories import FlashSaleFactory, OrderFactory, UserFactory
from tests.seckill.conftest import Shop, bearer, token_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sale() -> FlashSale:
    made: FlashSale = FlashSaleFactory(primed=True, quantity=10)
    return made


@pytest.fixture
def buyer() -> User:
    made: User = UserFactory()
    return made


def stock(sale: FlashSale) -> int | None:
    return gate.stocks([sale.pk])[sale.pk]


# --- trying to buy --------------------------------------------------------------------------------


def test_purchase_is_accepted_and_queued(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()

    answer = shop.buy(sale.pk, token_for(sale, buyer, purchase_id))

    assert answer.status == 202
    assert answer.json == {
        "purchase_id": str(purchase_id),
        "status": "queued",
        "poll_after_ms": 400,
    }
    assert answer.headers["location"] == f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert "idempotent-replayed" not in answer.headers
    wait_until(lambda: shop.broker.messages)
    assert shop.broker.messages == [(sale.pk, [[str(purchase_id), buyer.pk, 1]])]
    assert stock(sale) == 9


@pytest.mark.parametrize("same_token", [True, False])
def test_purchase_asked_again_is_replayed(
    shop: Shop, sale: FlashSale, buyer: User, same_token: bool
) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    other = token if same_token else token_for(sale, buyer)
    shop.buy(sale.pk, token)

    while_queued = shop.buy(sale.pk, other)
    shop.broker.work()
    once_ordered = shop.buy(sale.pk, other)

    assert (while_queued.status, once_ordered.status) == (202, 200)
    assert while_queued.json["status"] == "queued"
    assert once_ordered.json == {
        "purchase_id": str(purchase_id),
        "status": "succeeded",
        "poll_after_ms": 0,
    }
    for answer in (while_queued, once_ordered):
        assert answer.json["purchase_id"] == str(purchase_id)
        assert answer.headers["idempotent-replayed"] == "true"
        assert answer.headers["location"].endswith(f"/{purchase_id}")
    assert stock(sale) == 9
    assert shop.broker.entries == []


def test_purchase_twice_in_one_batch_is_admitted_once(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, quantity=10, per_buyer=2)
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    json = {"Content-Type": "application/json"}

    # The first call to the gate is still under way when the others come.
    first = shop.start_buy(sale.pk, token_for(sale, UserFactory()))
    pair = [
        shop.start_buy(sale.pk, token, headers=json, body=b'{"quantity":%d}' % quantity)
        for quantity in (1, 2)
    ]
    answers = [future.result(5) for future in (first, *pair)]

    assert [answer.status for answer in answers] == [202, 202, 202]
    replayed = [answer.headers.get("idempotent-replayed") for answer in answers]
    assert replayed == [None, None, "true"]
    wait_until(lambda: len(shop.broker.entries) >= 2)
    assert shop.broker.entries[1:] == [[str(purchase_id), buyer.pk, 1]]
    assert stock(sale) == 8


def test_purchase_takes_the_quantity_asked_for(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, quantity=10, per_buyer=3)

    answer = shop.buy(
        sale.pk,
        token_for(sale, buyer),
        headers={"Content-Type": "application/json; charset=UTF-8"},
        body=b'{"quantity": 3, "price": "0.01", "user_id": 1}',
    )

    assert answer.status == 202
    shop.broker.work()
    order = Order.objects.get()
    assert (order.user, order.quantity, order.unit_price_cents) == (buyer, 3, sale.price_cents)


def test_body_without_a_length_counts_in_http_2(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, per_buyer=2)

    answer = shop.buy(sale.pk, token_for(sale, buyer), body=b'{"quantity":2}', http_version="2")

    assert answer.status == 202
    assert stock(sale) == 8


def test_purchase_loads_a_gate_that_was_lost(
    shop: Shop, sale: FlashSale, buyer: User, redis_client: Any
) -> None:
    shop.buy(sale.pk, token_for(sale, UserFactory()))
    shop.broker.work()
    redis_client.flushdb()

    answer = shop.buy(sale.pk, token_for(sale, buyer))

    assert answer.status == 202
    assert stock(sale) == 8


def test_purchase_waits_while_another_process_loads_the_gate(
    shop: Shop, buyer: User, redis_client: Any
) -> None:
    sale = FlashSaleFactory()
    redis_client.set(keys.lock(f"prime:{sale.pk}"), "somebody", px=300)

    answer = shop.buy(sale.pk, token_for(sale, buyer))

    assert answer.status == 202


# --- refusals -------------------------------------------------------------------------------------


def refused(shop: Shop, sale: FlashSale, answer: Any, status: int, code: str) -> None:
    """It is this refusal, whose text is a person's, and nothing was taken."""
    assert (answer.status, answer.code) == (status, code)
    assert set(answer.json) >= {"type", "title", "detail", "instance"}
    assert answer.json["type"] == f"/problems/{code}/"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"] == answer.json["instance"]
    assert shop.broker.entries == []
    assert gate.snapshot(sale.pk).claims == {}


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic dTpw", "Token x"])
def test_no_token_is_refused(shop: Shop, sale: FlashSale, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}

    answer = shop.ask("POST", f"/api/v1/sales/{sale.pk}/purchases", headers=headers)

    # An empty token is there, and is wrong.
    status, code = (403, "token_invalid") if header == "Bearer" else (401, "token_required")
    refused(shop, sale, answer, status, code)
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"


def wrong_tokens(sale: FlashSale, buyer: User) -> dict[str, str]:
    good = token_for(sale, buyer)
    return {
        "cut": good[:-1],
        "longer": good + "A",
        "upper case": good.upper(),
        "path": "../../" + good[6:],
        "not ASCII": "é" * 76,
        "huge": "A" * 1_000_000,
        "of another sale": token_for(FlashSaleFactory(), buyer),
        "expired": token_for(sale, buyer, lifetime=-1),
        "signature": good[:-2] + ("AA" if good[-2:] != "AA" else "BB"),
    }


def test_wrong_tokens_are_refused(shop: Shop, sale: FlashSale, buyer: User) -> None:
    for name, token in wrong_tokens(sale, buyer).items():
        answer = shop.buy(sale.pk, token)

        assert (name, answer.status, answer.code) == (name, 403, "token_invalid")
    assert stock(sale) == 10


def test_token_of_an_older_secret_is_good_as_long_as_it_is_named(
    shop: Shop, sale: FlashSale, buyer: User, settings: Settings
) -> None:
    old = settings.SECRET_KEY
    token = token_for(sale, buyer)

    settings.SECRET_KEY = "a new one " * 5
    forgotten = shop.buy(sale.pk, token)
    settings.SECRET_KEY_FALLBACKS = [old]
    remembered = shop.buy(sale.pk, token)

    assert (forgotten.status, remembered.status) == (403, 202)


def test_before_the_start_it_tells_when(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, scheduled=True)

    answer = shop.buy(sale.pk, token_for(sale, buyer))

    refused(shop, sale, answer, 403, "not_open")
    starts_at = datetime.fromisoformat(answer.json["starts_at"])
    assert abs(starts_at - sale.starts_at) < timedelta(milliseconds=1)
    left = (sale.starts_at - timezone.now()).total_seconds()
    assert left <= int(answer.headers["retry-after"]) < left + 3


def test_after_the_end(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, closed=True)

    refused(shop, sale, shop.buy(sale.pk, token_for(sale, buyer)), 410, "closed")


def test_closed_by_staff(shop: Shop, sale: FlashSale, buyer: User) -> None:
    close_sale(sale.pk)

    refused(shop, sale, shop.buy(sale.pk, token_for(sale, buyer)), 410, "closed")


def test_paused(shop: Shop, sale: FlashSale, buyer: User) -> None:
    pause_sale(sale.pk)

    answer = shop.buy(sale.pk, token_for(sale, buyer))

    refused(shop, sale, answer, 503, "paused")
    assert int(answer.headers["retry-after"]) >= 1


def test_sold_out(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, quantity=1, allocated=1)

    by_the_gate = shop.buy(sale.pk, token_for(sale, buyer))
    by_the_mark = shop.buy(sale.pk, token_for(sale, buyer))

    assert marks.believed() == {sale.pk: True}
    for answer in (by_the_gate, by_the_mark):
        refused(shop, sale, answer, 409, "sold_out")
        assert "retry-after" not in answer.headers


def test_too_fast(shop: Shop, sale: FlashSale, buyer: User, settings: Settings) -> None:
    settings.PURCHASE_RATE = (2, 60.0)
    token = token_for(sale, buyer)

    answers = [shop.buy(sale.pk, token) for _ in range(3)]

    assert [answer.status for answer in answers] == [202, 202, 429]
    assert answers[2].code == "rate_limited"
    assert 1 <= int(answers[2].headers["retry-after"]) <= 30
    assert shop.buy(sale.pk, token_for(sale, UserFactory())).status == 202


def test_too_fast_over_all_processes(shop: Shop, buyer: User, settings: Settings) -> None:
    settings.PURCHASE_RATE = (2, 60.0)
    sale = FlashSaleFactory(primed=True, per_buyer=1)
    json = {"Content-Type": "application/json"}
    answers = []
    for _ in range(3):
        services.throttle.cache_clear()  # Another process, as far as the limiter tells.
        token = token_for(sale, buyer)
        answers.append(shop.buy(sale.pk, token, headers=json, body=b'{"quantity":2}'))

    assert [answer.status for answer in answers] == [422, 422, 429]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 30


def test_second_try_where_none_is_allowed(shop: Shop, buyer: User) -> None:
    sale = FlashSaleFactory(primed=True, rebuy=False)
    shop.buy(sale.pk, token_for(sale, buyer))
    shop.broker.work()
    assert cancel_order(Order.objects.get().pk, actor=buyer.username)

    answer = shop.buy(sale.pk, token_for(sale, buyer))

    assert (answer.status, answer.code) == (409, "rebuy_not_allowed")
    assert stock(sale) == 10


@pytest.mark.parametrize("end", ["canceled", "expired"])
def test_purchase_repeated_after_its_order_ended(
    shop: Shop, sale: FlashSale, buyer: User, end: str
) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    shop.broker.work()
    if end == "canceled":
        cancel_order(purchase_id, actor=buyer.username)
    else:
        Order.objects.update(pay_before=timezone.now() - timedelta(seconds=1))
        expire_orders()
    assert stock(sale) == 10

    again = shop.buy(sale.pk, token)
    anew = shop.buy(sale.pk, token_for(sale, buyer))

    assert (again.status, again.json["purchase_id"]) == (200, str(purchase_id))
    assert again.headers["idempotent-replayed"] == "true"
    assert shop.outcome(sale.pk, purchase_id, token).json["order"]["status"] == end
    assert anew.status == 202
    assert anew.json["purchase_id"] != str(purchase_id)


@pytest.mark.parametrize("code", list(Rejection.values))
def test_purchase_repeated_after_it_failed(
    shop: Shop, sale: FlashSale, buyer: User, code: str
) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    gate.settle(sale.pk, [gate.Settlement(str(purchase_id), buyer.pk, code)])

    answer = shop.buy(sale.pk, token)

    refused(shop, sale, answer, 409, code)


def test_sale_that_is_not_there(
    shop: Shop, sale: FlashSale, buyer: User, redis_client: Any
) -> None:
    sale_id = sale.pk
    token = token_for(sale, buyer)
    gate.forget(sale_id)
    FlashSale.objects.all().delete()
    before = set(redis_client.keys())

    answer = shop.buy(sale_id, token)

    assert (answer.status, answer.code) == (404, "not_found")
    assert set(redis_client.keys()) == before


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        *((method, "purchases", "POST") for method in ("GET", "HEAD", "PUT", "OPTIONS", "TRACE")),
        *(
            (method, f"purchases/{uuid.UUID(int=1)}", "GET, HEAD")
            for method in ("POST", "PUT", "DELETE", "OPTIONS")
        ),
    ],
)
def test_wrong_method(shop: Shop, sale: FlashSale, method: str, target: str, allow: str) -> None:
    answer = shop.ask(method, f"/api/v1/sales/{sale.pk}/{target}")

    assert answer.status == 405
    assert answer.headers["allow"] == allow
    assert answer.body == b"" if method == "HEAD" else answer.code == "method_not_allowed"


@pytest.mark.parametrize(
    "path",
    ["/", "/api/v1/sales", "/api/v1/sales/1", "/api/v1/sales/1/token", "/api/v1/sales/1/a/b/c"],
)
def test_other_addresses_go_to_the_application_behind(shop: Shop, path: str) -> None:
    assert shop.ask("POST", path).headers == {"x-behind": "yes"}


@pytest.mark.parametrize(
    "sale_id",
    ["0", "-1", "1.5", "1e9", str(2**63), "1 OR 1=1", "１", "\0", "9" * 10_000, "01", ""],
)
def test_sale_ids_that_are_none(shop: Shop, sale: FlashSale, buyer: User, sale_id: str) -> None:
    token = bearer(token_for(sale, buyer))

    for method, tail in (("POST", ""), ("GET", f"/{uuid.UUID(int=1)}")):
        answer = shop.ask(method, f"/api/v1/sales/{sale_id}/purchases{tail}", headers=token)

        assert answer.status in (403, 404) if sale_id == str(2**63) else answer.status == 404


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


@pytest.mark.parametrize(("kind", "body", "status", "code"), BODIES)
def test_bad_bodies(
    shop: Shop, sale: FlashSale, buyer: User, kind: str, body: bytes, status: int, code: str
) -> None:
    answer = shop.buy(sale.pk, token_for(sale, buyer), headers={"Content-Type": kind}, body=body)

    refused(shop, sale, answer, status, code)
    assert stock(sale) == 10


def test_huge_number_is_no_quantity(shop: Shop, sale: FlashSale, buyer: User) -> None:
    answer = shop.buy(
        sale.pk, token_for(sale, buyer), headers={"Content-Type": JSON}, body=b'{"quantity":1e309}'
    )

    assert answer.status in (400, 422)
    assert stock(sale) == 10


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b" \n", b'{"quantity":2,"quantity":1}'])
def test_bodies_that_ask_for_one(shop: Shop, sale: FlashSale, buyer: User, body: bytes) -> None:
    answer = shop.buy(sale.pk, token_for(sale, buyer), headers={"Content-Type": JSON}, body=body)

    assert answer.status == 202
    assert stock(sale) == 9


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


@pytest.mark.parametrize("headers", ODD_HEADERS, ids=lambda headers: next(iter(headers)))
def test_odd_headers_never_break_it(
    shop: Shop, sale: FlashSale, buyer: User, headers: dict[str, str]
) -> None:
    token = token_for(sale, buyer)
    more = {"body": [b"{}"]} if "Content-Encoding" in headers else {}

    answer = shop.buy(sale.pk, token, headers=headers, **more)
    question = shop.ask(
        "GET",
        f"/api/v1/sales/{sale.pk}/purchases/{uuid.UUID(int=1)}",
        headers=headers | bearer(token),
    )

    assert answer.status in (202, 400, 413, 415)
    assert (answer.status == 202) == (stock(sale) == 9)
    assert question.status == 404


@pytest.mark.parametrize(
    "query",
    [
        *("?" + "a=1&" * 1000, "?wait=" + "9" * 100_000, "?wait=nan", "?wait=-1", "?wait=inf"),
        *("?wait=", "?wait=1e9", "?wait=0&wait=x", "?%ff=%00", "?wait=１"),
    ],
)
def test_odd_queries_never_wait(shop: Shop, sale: FlashSale, buyer: User, query: str) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    query = query.encode().decode("latin-1")

    future = shop.start(
        "GET", f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}{query}", headers=bearer(token)
    )[1]

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

    assert english.json["message"] == str(Rejection.SOLD_OUT.label)
    assert chinese.json["message"] != english.json["message"]
    assert not chinese.json["message"].isascii()


@pytest.mark.parametrize("given", ["abcdefgh", "0af7651916cd43dd8448eb211c80319c", "a.b-c_d.e"])
def test_request_id_is_echoed(shop: Shop, sale: FlashSale, buyer: User, given: str) -> None:
    headers = {"X-Request-Id": given}

    assert (
        shop.buy(sale.pk, token_for(sale, buyer), headers=headers).headers["x-request-id"] == given
    )
    assert shop.buy(sale.pk, "wrong", headers=headers).json["instance"] == given


@pytest.mark.parametrize("given", ["short", "x" * 65, 'quote"quote', "söndag-söndag", "two words"])
def test_request_id_that_is_none_is_replaced(shop: Shop, sale: FlashSale, given: str) -> None:
    ids = [shop.buy(sale.pk, "wrong", headers={"X-Request-Id": given}).json["instance"]] * 2
    ids.append(shop.buy(sale.pk, "wrong").json["instance"])

    assert given not in ids
    assert ids[0] != ids[2]


# --- asking for the outcome -----------------------------------------------------------------------


def test_outcome_while_queued(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)

    answer = shop.outcome(sale.pk, purchase_id, token)

    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json == {
        "purchase_id": str(purchase_id),
        "status": "queued",
        "code": None,
        "message": None,
        "order": None,
        "poll_after_ms": 400,
    }


def test_outcome_of_an_order(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    shop.broker.work()

    answer = shop.outcome(sale.pk, purchase_id, token)

    told = answer.json
    order = told.pop("order")
    assert told == {
        "purchase_id": str(purchase_id),
        "status": "succeeded",
        "code": None,
        "message": None,
        "poll_after_ms": 0,
    }
    assert (order["id"], order["status"], order["amount"]) == (str(purchase_id), "unpaid", "9.90")


@pytest.mark.parametrize("in_gate", [True, False])
def test_outcome_of_a_failure(shop: Shop, sale: FlashSale, buyer: User, in_gate: bool) -> None:
    order = OrderFactory(sale=sale, user=buyer, rejected=True, code=Rejection.DUPLICATE)
    if in_gate:
        gate.settle(sale.pk, [gate.Settlement(str(order.pk), buyer.pk, "duplicate")])

    answer = shop.outcome(sale.pk, order.pk, token_for(sale, buyer, order.pk))

    assert answer.json == {
        "purchase_id": str(order.pk),
        "status": "failed",
        "code": "duplicate",
        "message": str(Rejection.DUPLICATE.label),
        "order": None,
        "poll_after_ms": 0,
    }


def test_outcome_is_the_same_by_head(shop: Shop, sale: FlashSale, buyer: User) -> None:
    order = OrderFactory(sale=sale, user=buyer)
    target = f"/api/v1/sales/{sale.pk}/purchases/{order.pk}"
    headers = bearer(token_for(sale, buyer)) | {"X-Request-Id": "the-same-id"}

    get, head = (shop.ask(method, target, headers=headers) for method in ("GET", "HEAD"))

    assert head == (200, get.headers, b"")


def foreign_purchases(sale: FlashSale, other: User) -> dict[str, uuid.UUID]:
    """By how it stands: what another buyer has, or nobody."""
    queued = uuid_utils.compat.uuid7()
    gate.reserve(sale.pk, [gate.Entry(other.pk, str(queued))])
    failed = OrderFactory(sale=sale, user=other, rejected=True).pk
    gate.settle(sale.pk, [gate.Settlement(str(failed), other.pk, "sold_out")])
    return {
        "queued": queued,
        "ordered": OrderFactory(sale=sale, user=UserFactory()).pk,
        "failed": failed,
        "of my other sale": OrderFactory(user=other).pk,
        "unknown": uuid_utils.compat.uuid7(),
    }


def test_another_buyers_purchase_is_not_found(shop: Shop, sale: FlashSale, buyer: User) -> None:
    token = token_for(sale, buyer)

    for name, purchase_id in foreign_purchases(sale, UserFactory()).items():
        answer = shop.outcome(sale.pk, purchase_id, token, "?wait=5")

        assert (name, answer.status, answer.code) == (name, 404, "not_found")


@pytest.mark.parametrize(
    "purchase_id", ["", "x", "../../x", str(uuid.UUID(int=1)).upper() + "A", "0" * 32, "é" * 36]
)
def test_purchase_ids_that_are_none(
    shop: Shop, sale: FlashSale, buyer: User, purchase_id: str
) -> None:
    target = f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}"

    assert shop.ask("GET", target, headers=bearer(token_for(sale, buyer))).status == 404


def test_outcome_needs_a_token_or_a_session(shop: Shop, sale: FlashSale) -> None:
    target = f"/api/v1/sales/{sale.pk}/purchases/{uuid.UUID(int=1)}"

    nobody = shop.ask("GET", target)
    stale = shop.ask("GET", target, headers={"Cookie": "sessionid=nonsense"})
    wrong = shop.ask("GET", target, headers=bearer("wrong"))

    assert (nobody.status, nobody.code) == (stale.status, stale.code) == (401, "login_required")
    assert nobody.headers["www-authenticate"] == "Bearer"
    assert (wrong.status, wrong.code) == (403, "token_invalid")


def test_session_is_as_good_as_a_token(shop: Shop, sale: FlashSale, buyer: User) -> None:
    order = OrderFactory(sale=sale, user=buyer)
    browsers = [Client(), Client()]
    for browser, user in zip(browsers, (buyer, UserFactory()), strict=True):
        browser.force_login(user)
    target = f"/api/v1/sales/{sale.pk}/purchases/{order.pk}"

    mine, theirs = (
        shop.ask("GET", target, headers={"Cookie": f"sessionid={b.cookies['sessionid'].value}"})
        for b in browsers
    )

    assert (mine.status, mine.json["status"]) == (200, "succeeded")
    assert theirs.status == 404


# --- the long poll --------------------------------------------------------------------------------


def test_long_poll_ends_with_the_state_as_it_is(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    begun = timezone.now()

    answer = shop.outcome(sale.pk, purchase_id, token, "?wait=0.5")

    assert answer.json["status"] == "queued"
    assert timedelta(seconds=0.5) <= timezone.now() - begun < timedelta(seconds=2)


def test_long_poll_of_what_has_ended_returns_at_once(
    shop: Shop, sale: FlashSale, buyer: User
) -> None:
    order = OrderFactory(sale=sale, user=buyer)
    target = f"/api/v1/sales/{sale.pk}/purchases/{order.pk}?wait=10"

    future = shop.start("GET", target, headers=bearer(token_for(sale, buyer)))[1]

    assert future.result(2).json["status"] == "succeeded"


def test_long_polls_all_hear_of_the_outcome(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    target = f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}?wait=10"
    futures = [shop.start("GET", target, headers=bearer(token))[1] for _ in range(5)]
    wait_until(lambda: shop.host.tasks() >= 5)
    assert not any(future.done() for future in futures)

    shop.broker.work()

    statuses = [future.result(3).json["status"] for future in futures]
    assert statuses == ["succeeded"] * 5
    wait_until(lambda: shop.host.tasks() == 0)


def test_long_poll_ends_when_its_client_goes(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    target = f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}?wait=10"
    (gone, first), (_, second) = (
        shop.start("GET", target, headers=bearer(token)) for _ in range(2)
    )
    wait_until(lambda: shop.host.tasks() >= 5)

    shop.host.loop.call_soon_threadsafe(gone.left.set)

    first.result(2)
    assert not second.done()
    shop.broker.work()
    assert second.result(3).json["status"] == "succeeded"
    wait_until(lambda: shop.host.tasks() == 0)


def test_long_poll_ends_when_the_process_does(shop: Shop, sale: FlashSale, buyer: User) -> None:
    purchase_id = uuid_utils.compat.uuid7()
    token = token_for(sale, buyer, purchase_id)
    shop.buy(sale.pk, token)
    target = f"/api/v1/sales/{sale.pk}/purchases/{purchase_id}?wait=10"
    future = shop.start("GET", target, headers=bearer(token))[1]
    wait_until(lambda: shop.host.tasks() >= 3)

    shop.host.call(shop.lane.close())

    assert future.result(1).json["status"] == "queued"
    assert shop.buy(sale.pk, token).code == "unavailable"


def test_rejected_order_of_a_deleted_buyer_is_nobodys(shop: Shop, sale: FlashSale) -> None:
    order = OrderFactory(sale=sale, user=None, rejected=True)

    answer = shop.outcome(sale.pk, order.pk, token_for(sale, UserFactory()))

    assert answer.status == 404
    assert Order.objects.get().status == Status.REJECTED
