"""Bytes that no browser sends, to the port of a real web process: HTTP itself is bad input too."""

import http.client
import re
import socket
import time
from collections.abc import Iterator

import pytest

from tests.e2e.shop import Shop
from tests.support.load import Ticket
from tests.support.waiting import HOST

LINE = "POST /api/v1/sales/{sale}/purchases HTTP/1.1"
HOSTS = "Host: 127.0.0.1"


@pytest.fixture(scope="module")
def ticket(site: Shop) -> Ticket:
    return site.tickets(site.create_sale(10), 1)[0]


@pytest.fixture(autouse=True)
def _unharmed(site: Shop, ticket: Ticket) -> Iterator[None]:
    """Whatever was sent: no unit moved, no row came, and the process answers others at once."""
    yield
    assert site.gate_stock(ticket.sale_id) == 10
    assert site.statuses(ticket.sale_id) == {}
    started = time.monotonic()
    connection = http.client.HTTPConnection(HOST, site.stack.ports[0], timeout=5)
    connection.request("GET", "/api/v1/time")
    assert connection.getresponse().status == 200
    connection.close()
    assert time.monotonic() - started < 3


def exchange(site: Shop, sent: bytes, *, patience: float = 6) -> bytes:
    """What comes back until the server closes, or for a while."""
    with socket.create_connection((HOST, site.stack.ports[0]), timeout=patience) as link:
        answer = b""
        try:
            link.sendall(sent)
            link.settimeout(1.5)
            while piece := link.recv(65536):
                answer += piece
        except (TimeoutError, ConnectionError):
            pass  # It keeps the connection open, or cut it.
        return answer


def statuses(answer: bytes) -> list[int]:
    """Of all answers of a connection: one may begin right behind the body of the last."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3})", answer)]


def request(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


BAD = {
    "headers over 64 kB": (HOSTS, "X-Long: " + "x" * 100_000),
    "a thousand headers": (HOSTS, *(f"X-{n}: 1" for n in range(1000))),
    "NUL in a header": (HOSTS, "X-A: a\0b"),
    "header without a colon": (HOSTS, "nonsense"),
    "space before the colon": (HOSTS, "Content-Length : 2"),
    "folded header": (HOSTS, "X-A: a", " b"),
    "negative length": (HOSTS, "Content-Length: -1"),
    "length that is none": (HOSTS, "Content-Length: 1e3"),
    "two lengths": (HOSTS, "Content-Length: 2", "Content-Length: 3"),
    "two lengths in one": (HOSTS, "Content-Length: 2, 3"),
    "length and chunks": (HOSTS, "Content-Length: 4", "Transfer-Encoding: chunked"),
    "chunks twice": (HOSTS, "Transfer-Encoding: chunked, chunked"),
    "unknown transfer encoding": (HOSTS, "Transfer-Encoding: gzip"),
    "chunked with a tab": (HOSTS, "Transfer-Encoding:\tchunked"),
    "chunk size that is none": (HOSTS, "Transfer-Encoding: chunked"),
    "no host": (),
    "two hosts": (HOSTS, "Host: evil.example"),
    "repeated cookies": (HOSTS, *("Cookie: sessionid=x" for _ in range(50))),
    "expect what is not there": (HOSTS, "Expect: 200-maybe"),
}


@pytest.mark.parametrize("case", BAD)
def test_broken_requests_buy_nothing(site: Shop, ticket: Ticket, case: str) -> None:
    line = LINE.format(sale=ticket.sale_id)

    answer = exchange(site, request(line, *BAD[case], "Connection: close", body=b"zz\r\n{}\r\n"))

    assert [status for status in statuses(answer) if status < 400 or status >= 500] == []
    assert b"Traceback" not in answer


LINES = [
    *(
        "GET / HTTP/9.9",
        "GET",
        "\0\0\0\0",
        "GET  /  HTTP/1.1",
        "get / http/1.1",
        "GET http:// HTTP/1.1",
    ),
    *(
        "TRACE / HTTP/1.1",
        "CONNECT evil.example:443 HTTP/1.1",
        "PRI * HTTP/2.0",
        "OPTIONS * HTTP/1.1",
    ),
    *(
        "GET /%00 HTTP/1.1",
        "GET /%ff%fe HTTP/1.1",
        "GET /sales/%2e%2e/ HTTP/1.1",
        "GET //x/ HTTP/1.1",
    ),
    "GET /static/..%2f..%2f..%2fetc/passwd HTTP/1.1",
    "GET /static/%2e%2e/%2e%2e/%2e%2e/etc/passwd HTTP/1.1",
    "GET /\\..\\..\\windows\\win.ini HTTP/1.1",
    "GET /" + "a" * 100_000 + " HTTP/1.1",
    "GET /orders/?" + "a=1&" * 1000 + " HTTP/1.1",
    "GET http://evil.example/login/ HTTP/1.1",
    "GET /api/v1/sales/0/purchases/%0a HTTP/1.1",
]


@pytest.mark.parametrize("line", LINES, ids=[line[:40] for line in LINES])
def test_odd_lines_get_a_plain_answer_or_none(site: Shop, line: str) -> None:
    answer = exchange(site, request(line, HOSTS, "Connection: close"))

    assert [status for status in statuses(answer) if status >= 500 and status != 501] == []
    assert b"Traceback" not in answer
    assert b"root:" not in answer
    assert b"TRACE /" not in answer


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1@evil.example", "127.0.0.1:x", "[::1", ""]
)
def test_another_host_gets_no_page(site: Shop, host: str) -> None:
    answer = exchange(site, request("GET /login/ HTTP/1.1", f"Host: {host}", "Connection: close"))

    assert statuses(answer) in ([400], [])
    assert b"evil.example" not in answer


def test_second_request_hidden_in_a_body_is_not_read(site: Shop, ticket: Ticket) -> None:
    """A length that is too short leaves bytes that look like a request of their own."""
    hidden = request(
        LINE.format(sale=ticket.sale_id), HOSTS, f"Authorization: Bearer {ticket.token}x"
    )
    outer = request(
        "POST /api/v1/sales/1/token HTTP/1.1",
        HOSTS,
        "Content-Length: 3",
        "Transfer-Encoding: chunked",
        body=b"0\r\n\r\n" + hidden,
    )

    answer = exchange(site, outer)

    assert 202 not in statuses(answer)
    assert len(statuses(answer)) <= 1


def test_requests_of_one_connection_are_answered_in_order(site: Shop, ticket: Ticket) -> None:
    one = request("GET /api/v1/time HTTP/1.1", HOSTS)
    two = request("GET /api/v1/nothing HTTP/1.1", HOSTS)
    last = request("GET /livez HTTP/1.0", HOSTS)

    assert statuses(exchange(site, one + two + last)) == [200, 404, 200]


@pytest.mark.parametrize(
    "path", ["/api/v1/sales/{sale}/purchases", "/login/", "/api/v1/orders/x/pay"]
)
def test_body_of_100_megabytes_is_refused_unread(site: Shop, ticket: Ticket, path: str) -> None:
    head = request(
        f"POST {path.format(sale=ticket.sale_id)} HTTP/1.1",
        HOSTS,
        f"Authorization: Bearer {ticket.token}",
        "Content-Type: application/json",
        "Content-Length: 104857600",
    )

    answer = exchange(site, head + b"x" * 20_000)

    assert statuses(answer) == [413]


def test_body_without_an_end_is_refused(site: Shop, ticket: Ticket) -> None:
    head = request(
        LINE.format(sale=ticket.sale_id),
        HOSTS,
        f"Authorization: Bearer {ticket.token}",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    )
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"

    assert statuses(exchange(site, head + chunk * 40)) == [413]


def test_body_that_trickles_is_not_waited_for(site: Shop, ticket: Ticket) -> None:
    head = request(
        LINE.format(sale=ticket.sale_id),
        HOSTS,
        f"Authorization: Bearer {ticket.token}",
        "Content-Length: 10",
    )
    started = time.monotonic()
    with socket.create_connection((HOST, site.stack.ports[0]), timeout=10) as link:
        link.sendall(head + b"{")
        first = link.recv(65536)

    assert statuses(first) == [400]
    assert time.monotonic() - started < 4
