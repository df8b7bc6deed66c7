"""All buyers at once, in an event loop of their own."""

import asyncio
import random
import threading
import time
from collections.abc import Sequence

from tests.chaos.buyers import TRIES, Buyer, Caller, listen
from tests.chaos.history import TERMINAL, Entry, History
from tests.chaos.site import Sale
from tests.e2e.shop import ticket
from tests.support.load import Ticket

LISTENERS = 6  # buyers with a websocket
BEAT = 0.1  # seconds between two looks at our own clock
PAUSE = 0.5  # seconds before somebody who was refused tries again, after the last fault


async def feel_lag(history: History) -> None:
    """Write down when this machine was too busy to wake us in time: then all were slow."""
    while True:
        began = time.time()
        await asyncio.sleep(BEAT)
        late = time.time() - began - BEAT
        if late > BEAT:
            history.add(Entry("lag", "ok", began, began + BEAT + late, told={"late": late}))


class Crowd:
    """A thread in which buyers live until `stop`."""

    def __init__(self, callers: Sequence[Caller], sales: Sequence[Sale], seed: int) -> None:
        self._callers, self._sales, self._seed = callers, sales, seed
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="crowd", daemon=True)

    def start(self) -> "Crowd":
        self._thread.start()
        return self

    def stop(self) -> None:
        """Wait for the last answers. Raises what a buyer has stumbled over: that is our mistake."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(timeout=60)
        if self._thread.is_alive():
            raise AssertionError("the buyers don't come to an end")
        if self._failures:
            raise self._failures[0]

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._all())
        except BaseException as error:  # noqa: BLE001 - raised again by stop
            self._failures.append(error)
        finally:
            self._loop.close()

    async def _all(self) -> None:
        ears = [
            asyncio.create_task(listen(caller, number % 2, self._over))
            for number, caller in enumerate(self._callers[:LISTENERS])
        ]
        ears.append(asyncio.create_task(feel_lag(self._callers[0].history)))
        async with asyncio.TaskGroup() as group:
            for caller in self._callers:
                dice = random.Random(f"{self._seed} {caller.user}")
                buyer = Buyer(caller, self._sales, dice, self._over)
                group.create_task(buyer.live())
        for ear in ears:
            ear.cancel()
        await asyncio.gather(*ears, return_exceptions=True)


def buy_out(callers: Sequence[Caller], sale: Sale) -> int:
    """Everybody tries to buy, for a while; returns how many got an order."""

    async def one(number: int, caller: Caller) -> bool:
        mine = ticket(sale.sale_id, caller.user)
        for _ in range(TRIES):
            entry = await caller.buy(mine, number % 2)
            if entry.kind == "ok":
                return await _succeeds(caller, mine, str(entry.told["purchase_id"]), number % 2)
            await asyncio.sleep(PAUSE)
        return False

    async def _succeeds(caller: Caller, mine: Ticket, purchase: str, web: int) -> bool:
        for _ in range(TRIES):
            entry = await caller.ask(mine, purchase, web)
            if entry.kind == "ok" and entry.told["status"] in TERMINAL:
                return bool(entry.told["status"] == "succeeded")
        return False

    async def everybody() -> int:
        return sum(await asyncio.gather(*(one(n, caller) for n, caller in enumerate(callers))))

    return asyncio.run(everybody())
