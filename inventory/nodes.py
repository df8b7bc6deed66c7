"""What the nodes of ZooKeeper hold: the state of each sale, and the latest news of all."""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import msgspec

from inventory.news import News

MOST_KEPT = 300  # news in the bulletin; who has missed more drops all marks

T = TypeVar("T")


class State(msgspec.Struct, frozen=True):
    """Of one sale. `epoch` 0: nothing known."""

    epoch: int = 0
    sold_out: bool = False

    @classmethod
    def parse(cls, data: bytes) -> "State":
        return _decode(data, cls())

    def dump(self) -> bytes:
        return msgspec.json.encode(self)


class Numbered(NamedTuple):
    """`News`, and its place in the order of all."""

    number: int
    sale_id: int
    epoch: int
    sold_out: bool
    age: float = 0.0

    @property
    def news(self) -> News:
        return News(*self[1:])


class Bulletin(msgspec.Struct, frozen=True):
    """`number`: of the last news there ever was."""

    number: int = 0
    news: tuple[Numbered, ...] = ()

    @classmethod
    def parse(cls, data: bytes) -> "Bulletin":
        return _decode(data, cls())

    def dump(self) -> bytes:
        return msgspec.json.encode(self)

    def after(self, news: Iterable[News]) -> "Bulletin":
        added = [
            Numbered(number, item.sale_id, item.epoch, item.sold_out, round(item.age, 3))
            for number, item in enumerate(news, self.number + 1)
        ]
        return Bulletin(self.number + len(added), (*self.news, *added)[-MOST_KEPT:])

    def since(self, number: int) -> list[News] | None:
        """What came after that number; None if it can't be told any more."""
        later = [item.news for item in self.news if item.number > number]
        return later if len(later) == self.number - number else None


def _decode(data: bytes, unknown: T) -> T:
    """What makes no sense comes from another version of this program, and counts as unknown."""
    try:
        return msgspec.json.decode(data, type=type(unknown))
    except msgspec.MsgspecError:
        return unknown
