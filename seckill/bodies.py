"""The body of a try to buy: small, optional JSON, read within a deadline."""

import asyncio

import msgspec

from seckill.asgi_types import Receive
from seckill.replies import Refused, Request

LARGEST = 4096  # bytes
DEADLINE = 2.5  # seconds


class Wish(msgspec.Struct):
    """Unknown members are ignored: price and buyer are never the client's to say."""

    quantity: int = 1


_decoder = msgspec.json.Decoder(Wish | None)


async def read_quantity(request: Request, receive: Receive) -> int:
    """How many units the client asks for; 1 if it says nothing. Raises Refused."""
    if request.length is None or request.length == b"0":
        return 1
    if request.length.isdigit() and int(request.length[:12]) > LARGEST:
        raise Refused("too_large", headers=[(b"connection", b"close")])
    try:
        async with asyncio.timeout(DEADLINE):
            body = await _read(receive)
    except TimeoutError:
        raise Refused("bad_request", headers=[(b"connection", b"close")]) from None
    if not body.strip():
        return 1
    if request.encoded or not _is_json(request.content_type):
        raise Refused("unsupported_media_type")
    return _parse(body)


async def _read(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused("bad_request")
        body += message.get("body", b"")
        if len(body) > LARGEST:
            raise Refused("too_large", headers=[(b"connection", b"close")])
        if not message.get("more_body"):
            return body


def _is_json(content_type: bytes) -> bool:
    kind, _, parameters = content_type.lower().partition(b";")
    charset = parameters.replace(b" ", b"").replace(b'"', b"")
    return kind.strip() in (b"", b"application/json") and charset in (b"", b"charset=utf-8")


def _parse(body: bytes) -> int:
    try:
        wish = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refused("quantity_invalid" if "quantity" in str(error) else "bad_request") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused("bad_request") from None
    quantity = 1 if wish is None else wish.quantity
    if not 1 <= quantity <= 32767:
        raise Refused("quantity_invalid")
    return quantity
