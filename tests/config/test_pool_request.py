"""From ASGI to WSGI: bodies within their limits, and the environ that Django sees."""

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIRequest

from config.pool_request import BODY_IN_MEMORY, ClientGone, Refusal, make_environ, read_body

SCOPE: dict[str, Any] = {
    "type": "http",
    "http_version": "1.1",
    "method": "POST",
    "path": "/",
    "query_string": b"",
    "headers": [],
    "client": ("192.0.2.1", 5000),
    "server": ("shop.example", 8000),
}


def receiver(*chunks: bytes, ends: bool = True) -> Callable[[], Awaitable[dict[str, Any]]]:
    """A server that has these pieces of a body, and then waits for more unless it `ends`."""
    rest = list(chunks)

    async def receive() -> dict[str, Any]:
        if not rest:
            await asyncio.Event().wait()
        body = rest.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(rest) or not ends}

    return receive


def read(receive: Any, *headers: tuple[bytes, bytes], **options: Any) -> tuple[bytes, int]:
    scope = SCOPE | {"headers": headers} | options.pop("scope", {})
    limits = {"limit": 10 * BODY_IN_MEMORY, "deadline": 5.0} | options
    file, length = asyncio.run(read_body(scope, receive, **limits))
    with file:
        return file.read(), length


def refused(receive: Any, *headers: tuple[bytes, bytes], **options: Any) -> tuple[int, str]:
    with pytest.raises(Refusal) as caught:
        read(receive, *headers, **options)
    return int(caught.value.status), caught.value.code


def environ(**changes: Any) -> dict[str, Any]:
    return make_environ(SCOPE | changes, BytesIO(), 0)


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"6")]])
def test_read_body_joins_its_pieces(headers: list[tuple[bytes, bytes]]) -> None:
    assert read(receiver(b"ab", b"", b"cdef"), *headers) == (b"abcdef", 6)


def test_read_body_keeps_a_large_body_on_disk() -> None:
    pieces = [bytes([number]) * BODY_IN_MEMORY for number in range(3)]

    async def scenario() -> tuple[bool, bytes]:
        file, _ = await read_body(SCOPE, receiver(*pieces), limit=10**9, deadline=5)
        with file:
            return isinstance(file, BytesIO), file.read()

    assert asyncio.run(scenario()) == (False, b"".join(pieces))


def test_read_body_asks_nothing_for_a_plain_get() -> None:
    assert read(receiver(ends=False), scope={"method": "GET"}) == (b"", 0)


def test_read_body_reads_a_get_of_http2_which_announces_nothing() -> None:
    scope = {"method": "GET", "http_version": "2"}

    assert read(receiver(b"x"), scope=scope) == (b"x", 1)


def test_read_body_refuses_a_declared_length_over_the_limit_unread() -> None:
    assert refused(receiver(ends=False), (b"content-length", b"11"), limit=10) == (
        413,
        "body_too_large",
    )


def test_read_body_refuses_an_undeclared_body_as_soon_as_it_is_too_long() -> None:
    assert refused(receiver(b"12345", b"678901", ends=False), limit=10) == (413, "body_too_large")


@pytest.mark.parametrize("length", [b"2", b"4", b"-3", b"+3", b"3,3", b"", b"0x3", b"\xb3"])
def test_read_body_refuses_a_false_content_length(length: bytes) -> None:
    assert refused(receiver(b"abc"), (b"content-length", length))[0] == 400


def test_read_body_refuses_a_number_too_long_to_convert() -> None:
    assert refused(receiver(b"abc"), (b"content-length", b"9" * 5000))[0] == 413


def test_read_body_refuses_contradicting_lengths() -> None:
    lengths = [(b"content-length", b"3"), (b"content-length", b"4")]

    assert refused(receiver(b"abc"), *lengths)[0] == 400


def test_read_body_refuses_a_length_beside_a_transfer_encoding() -> None:
    headers = [(b"content-length", b"3"), (b"transfer-encoding", b"chunked")]

    assert refused(receiver(b"abc"), *headers)[0] == 400


def test_read_body_refuses_at_the_deadline() -> None:
    assert refused(receiver(b"ab", ends=False), deadline=0.05) == (408, "request_timeout")


def test_read_body_tells_that_the_client_left() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        read(receive)


def test_make_environ_gives_the_length_that_arrived() -> None:
    made = make_environ(SCOPE | {"headers": [(b"content-length", b"9")]}, BytesIO(b"abc"), 3)

    assert made["CONTENT_LENGTH"] == "3"


def test_make_environ_decodes_the_path_as_django_expects() -> None:
    # A server has decoded %2F and UTF-8 already.
    request = WSGIRequest(environ(path="/a/b/caf\xe9/\u5546", query_string=b"q=%E5%95%86"))

    assert request.path == "/a/b/caf\xe9/\u5546"
    assert request.GET["q"] == "\u5546"


def test_make_environ_survives_a_path_that_is_no_text() -> None:
    assert WSGIRequest(environ(path="/\udcff")).path == "/?"


@pytest.mark.parametrize(
    ("root", "path", "info"),
    [
        ("/shop", "/shop/orders/", "/orders/"),
        ("/shop", "/shop", "/"),
        ("/shop", "/orders/", "/orders/"),
        ("/shop", "/shopping/", "/shopping/"),
        ("", "/orders/", "/orders/"),
    ],
)
def test_make_environ_takes_the_root_off_the_path(root: str, path: str, info: str) -> None:
    request = WSGIRequest(environ(root_path=root, path=path))

    assert (request.META["SCRIPT_NAME"], request.path_info) == (root, info)
    assert request.path == root + info


def test_make_environ_names_both_ends() -> None:
    made = environ()

    assert (made["REMOTE_ADDR"], made["REMOTE_PORT"]) == ("192.0.2.1", "5000")
    assert (made["SERVER_NAME"], made["SERVER_PORT"]) == ("shop.example", "8000")


def test_make_environ_does_without_addresses() -> None:
    made = environ(client=None, server=None)

    assert (made["REMOTE_ADDR"], made["SERVER_NAME"], made["SERVER_PORT"]) == ("", "unknown", "0")


def test_make_environ_does_without_a_port() -> None:
    assert environ(server=("/run/socket", None))["SERVER_PORT"] == "0"


def test_make_environ_drops_headers_with_an_underscore() -> None:
    made = environ(
        headers=[
            (b"x-forwarded-for", b"198.51.100.1"),
            (b"x_forwarded_for", b"203.0.113.9"),
            (b"content_length", b"7"),
        ]
    )

    assert made["HTTP_X_FORWARDED_FOR"] == "198.51.100.1"
    assert made["CONTENT_LENGTH"] == ""


def test_make_environ_joins_repeated_headers() -> None:
    made = environ(
        headers=[
            (b"accept", b"text/html"),
            (b"cookie", b"a=1"),
            (b"accept", b"*/*"),
            (b"cookie", b"b=2"),
        ]
    )

    assert (made["HTTP_ACCEPT"], made["HTTP_COOKIE"]) == ("text/html,*/*", "a=1; b=2")


def test_make_environ_reads_headers_as_latin1() -> None:
    made = environ(headers=[(b"content-type", b"text/plain"), (b"x-name", b"caf\xe9")])

    assert (made["CONTENT_TYPE"], made["HTTP_X_NAME"]) == ("text/plain", "caf\xe9")
