"""A buyer's browser as far as websockets go: signs in over HTTP, then listens."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from scripts.smoke import Client, log_in
from tests.e2e.shop import Shop
from tests.support.load import Ticket

Frame = Mapping[str, Any]


@contextmanager
def my_socket(shop: Shop, user_id: int, *, web: int = 0) -> Iterator[ClientConnection]:
    """`/ws/v1/me` of a buyer on one of the web processes, after its `hello`."""
    base_url = shop.stack.base_urls[web]
    client = Client(base_url)
    name = shop.name_of(user_id)
    log_in(client, name, name)
    url = base_url.replace("http", "ws", 1) + "/ws/v1/me"
    cookie = {"Cookie": f"sessionid={client.cookie('sessionid')}"}
    with connect(url, origin=Origin(base_url), additional_headers=cookie) as socket:
        assert next_frame(socket)["type"] == "hello"
        yield socket


def next_frame(socket: ClientConnection, timeout: float = 30) -> Frame:
    result: Frame = json.loads(socket.recv(timeout=timeout))
    return result


def result_of(socket: ClientConnection, ticket: Ticket) -> Frame:
    """The first frame about this purchase; a buyer who has orders already is told of them first.

    Raises TimeoutError after 30 seconds without it, whatever else comes meanwhile.
    """
    until = time.monotonic() + 30
    while True:
        frame = next_frame(socket, timeout=until - time.monotonic())
        if frame["data"].get("purchase_id") == ticket.purchase_id:
            return frame
