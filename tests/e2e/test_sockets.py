"""Buyers are told over websockets, from whatever process, whenever they come."""

import pytest

from tests.e2e.shop import Shop
from tests.e2e.sockets import my_socket, next_frame
from tests.support.load import unknown

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def sale_id(shared_shop: Shop) -> int:
    return shared_shop.create_sale(10)


def test_socket_that_was_idle_for_long_gets_its_result(shop: Shop, sale_id: int) -> None:
    """A Redis client with a socket timeout loses such a subscription without a word."""
    ticket = shop.tickets(sale_id, 1, prefix="idle")[0]
    with my_socket(shop, ticket.user_id) as socket:
        with pytest.raises(TimeoutError):
            socket.recv(timeout=7)

        shop.load(again=unknown).run([ticket])

        frame = next_frame(socket)
    assert frame["type"] == "purchase.succeeded"
    assert frame["data"]["purchase_id"] == ticket.purchase_id
    assert frame["data"]["order_id"] == ticket.purchase_id
    assert frame["data"]["redirect"] == f"/orders/{ticket.purchase_id}/"


def test_socket_gets_only_its_own_result_from_any_web_process(shop: Shop, sale_id: int) -> None:
    one, other, late = shop.tickets(sale_id, 3, prefix="viewer")
    with (
        my_socket(shop, one.user_id, web=0) as first,
        my_socket(shop, other.user_id, web=1) as second,
    ):
        shop.load(again=unknown).run([other, late, one])

        frames = [next_frame(first), next_frame(second)]
        for socket in (first, second):
            with pytest.raises(TimeoutError):
                socket.recv(timeout=0.5)
    told = [frame["data"]["purchase_id"] for frame in frames]
    assert told == [one.purchase_id, other.purchase_id]

    shop.wait_decided(sale_id, [late.purchase_id])
    with my_socket(shop, late.user_id) as socket:
        frame = next_frame(socket)
    assert (frame["type"], frame["data"]["purchase_id"]) == ("purchase.succeeded", late.purchase_id)
