"""What clients and the nemesis did, one JSON line for each call, as in Jepsen.

A call ends in one of three ways: `ok`, `fail` (it did nothing) or `unknown` (it may have done it:
no answer came, or a 5xx).
"""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

Kind = Literal["ok", "fail", "unknown"]
TERMINAL = ("succeeded", "failed")


@dataclass(frozen=True)
class Entry:
    """One call. `op`: buy, ask, pay, press, cancel, look, frame; or fault; or lag of our own;
    or staff.

    `began` and `ended` are Unix time; `purchase` is what the call was about, `told` what the answer
    said; `target` is who was called, or the component that the fault met. `wait`: how long the
    client had asked to be kept waiting.
    """

    op: str
    kind: Kind
    began: float
    ended: float
    user: int = 0
    sale: int = 0
    purchase: str = ""
    target: str = ""
    status: int = 0
    wait: float = 0.0
    quantity: int = 1
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return str(self.told.get("code") or "")

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def overlaps(self, began: float, ended: float) -> bool:
        return self.began <= ended and self.ended >= began


class History:
    """Appended to by any thread; also to a file, line by line, so that a crash leaves it whole."""

    def __init__(self, path: Path | None = None) -> None:
        self.entries: list[Entry] = []
        self._lock = threading.Lock()
        self._file: IO[str] | None = path.open("w", buffering=1) if path else None

    def add(self, entry: Entry) -> Entry:
        with self._lock:
            self.entries.append(entry)
            if self._file:
                self._file.write(json.dumps(asdict(entry)) + "\n")
        return entry

    def of(self, *ops: str) -> Iterator[Entry]:
        return (entry for entry in list(self.entries) if entry.op in ops)

    @property
    def faults(self) -> list[Entry]:
        return list(self.of("fault"))

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None


def read(lines: Iterable[str]) -> History:
    """A history as `History` has written it."""
    history = History()
    for line in lines:
        history.add(Entry(**json.loads(line)))
    return history


def accepted(history: History) -> dict[str, Entry]:
    """Purchases that a buyer was promised an answer for: id → the call that promised it first."""
    promised: dict[str, Entry] = {}
    for entry in history.of("buy"):
        if entry.kind == "ok":
            promised.setdefault(str(entry.told["purchase_id"]), entry)
    return promised


def undecided(history: History) -> set[str]:
    """Purchases that may have been admitted, as far as the client can know."""
    return {entry.purchase for entry in history.of("buy") if entry.kind == "unknown"}
