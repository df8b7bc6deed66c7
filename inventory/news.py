"""What processes tell each other about sold-out marks, and what a transport has to offer."""

import threading
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

# Seconds without any word after which a connection counts as dead; SOLD_OUT_TTL if that is longer.
DEAF_AFTER = 2.0


class News(NamedTuple):
    """`epoch` 0: something else about the sale changed, so the gate must be asked.

    `age`: seconds since somebody learnt it from the gate.
    """

    sale_id: int
    epoch: int
    sold_out: bool
    age: float = 0.0


class Deaf(Exception):
    """Raised when a connection that looks alive brings nothing any more."""


class Ear(Protocol):
    """Whom a transport tells. `check` raises Deaf; nothing else of this ever raises."""

    stopping: threading.Event

    def connected(self) -> None: ...
    def hear(self, news: News) -> None: ...
    def beat(self) -> None: ...
    def check(self) -> None: ...


class Transport(Protocol):
    """`listen` returns when the ear is stopping, and raises whatever goes wrong.

    `send` raises too; sending the same again is harmless.
    `needs_beats`: somebody has to send a message now and then (an empty one is enough).
    """

    needs_beats: bool

    def listen(self, ear: Ear) -> None: ...
    def send(self, news: Sequence[News]) -> None: ...
    def tidy(self, keep: Collection[int]) -> int: ...
    def close(self) -> None: ...
