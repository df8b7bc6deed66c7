"""Staff who add units to sales and take some out again, while all else goes on."""

import random
import threading
import time
from collections.abc import Sequence

from tests.chaos.history import Entry, History
from tests.chaos.site import Sale
from tests.marks.clerk import Clerk

MOST = 6  # units by which a sale may differ from what it began with
EVERY = 2.0  # seconds


class Staff:
    """A thread; what it meets with (a back end that is away) is no reason to stop."""

    def __init__(self, clerk: Clerk, sales: Sequence[Sale], history: History, seed: int) -> None:
        self._clerk, self._sales, self._history = clerk, sales, history
        self._dice = random.Random(f"staff {seed}")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="staff", daemon=True)

    def start(self) -> "Staff":
        self._thread.start()
        return self

    def stop(self) -> None:
        self._over.set()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._over.wait(self._dice.uniform(0.5, 1.5) * EVERY):
            now = time.time()
            current = [sale for sale in self._sales if sale.starts_at < now < sale.ends_at]
            self._adjust(self._dice.choice(current).sale_id, self._dice.choice((-3, -2, 2, 3)))

    def _adjust(self, sale_id: int, delta: int) -> None:
        began = time.time()
        told = self._clerk.do(
            "from inventory.models import StockAdjustment",
            "try:",
            f"    booked = StockAdjustment.objects.filter(sale_id={sale_id})",
            "    net = sum(booked.values_list('delta', flat=True))",
            f"    delta = {delta} if abs(net + {delta}) <= {MOST} else {-delta}",
            f"    print(stock.adjust_stock({sale_id}, delta=delta, reason='chaos'))",
            "except Exception as error:",
            "    print(repr(error))",
        )
        done = told.strip().lstrip("-").isdecimal()
        self._history.add(
            Entry(
                *("staff", "ok" if done else "unknown", began, time.time()),
                sale=sale_id,
                told={"delta": delta, "result": told.strip()},
            )
        )
