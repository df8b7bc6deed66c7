"""What the nodes of ZooKeeper hold, without a server."""

import pytest

from inventory.news import News
from inventory.nodes import MOST_KEPT, Bulletin, State

NONSENSE = [b"", b"true", b"[]", b"\xff", b'{"epoch": "x"}', b'{"number": 1, "news": [[1]]}']


@pytest.mark.parametrize("data", NONSENSE)
def test_node_that_makes_no_sense_counts_as_nothing_known(data: bytes) -> None:
    assert State.parse(data) == State()
    assert Bulletin.parse(data) == Bulletin()


def test_nodes_are_read_as_they_were_written() -> None:
    state, bulletin = State(5, True), Bulletin().after([News(7, 5, True, 0.5), News(8, 0, False)])

    assert State.parse(state.dump()) == state
    assert Bulletin.parse(bulletin.dump()) == bulletin


def test_bulletin_tells_what_came_since() -> None:
    first, second, third = (News(7, epoch, epoch % 2 == 1) for epoch in (1, 2, 3))
    bulletin = Bulletin().after([first]).after([second, third])

    assert [bulletin.since(number) for number in (0, 1, 3)] == [
        [first, second, third],
        [second, third],
        [],
    ]


@pytest.mark.parametrize("number", [0, 4, MOST_KEPT + 6])
def test_bulletin_says_when_it_can_not_tell(number: int) -> None:
    """News that were dropped, and a number that it never had."""
    bulletin = Bulletin().after(News(sale_id, 1, True) for sale_id in range(MOST_KEPT + 5))

    assert bulletin.since(number) is None
    assert len(bulletin.since(5) or ()) == MOST_KEPT
