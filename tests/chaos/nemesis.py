"""What goes wrong, when: a plan that a seed decides, and the hands that carry it out."""

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, cycle
from typing import NamedTuple

from tests.chaos.history import Entry, History, Kind
from tests.chaos.site import DATABASE, GROUPS, Channel, Site, links
from tests.e2e.shop import FAULTPOINTS
from tests.support.proxy import Mode
from tests.support.waiting import wait_until

QUEUES = ("orders", "timers", "payments", "sweeps")
MODES: tuple[Mode, ...] = (
    *("refuse", "cut", "blackhole", "delay_reply", "delay_request"),
    *("drop_reply", "drop_reply_once", "cut_reply_once", "cut_request_once"),
)
DELAY = 0.7  # seconds
WORKERS = ("orders1", "orders2", "timers")
PROCESSES = ("web1", "web2", *WORKERS, "beat")
# RabbitMQ takes ten seconds to start, so it is killed less often than the others are.
BACK_ENDS = {
    "postgres": ("kill", "restart", "pause", "terminate"),
    "redis": ("kill", "restart", "pause", "flush", "lose stock"),
    "rabbitmq": ("kill", "restart", "pause", "purge", "repeat"),
    "zookeeper": ("kill", "restart", "pause", "wipe"),
}
# Only before and after these must nothing else be on its way: they are losses of data, and a
# promise survives one loss, not a loss of the journal and of the message at once.
LOSSES = {("redis", "flush"), ("redis", "lose stock")}
CALM = 20.0  # seconds that such a fault waits for
# So that ten minutes are enough for twenty faults of each process and back end.
TURNS = ("process", "link", "server", "process", "link", "server", "link", "point")
Deck = list[tuple[str, str]]
LASTING, REST = (0.5, 2.5), (0.2, 0.8)  # seconds of a fault, and after it; from, to


class Step(NamedTuple):
    """A fault that lasts so many seconds, and the time of rest after it."""

    component: str
    fault: str
    lasting: float
    rest: float


def menu(channel: Channel) -> dict[str, list[Deck]]:
    """Every (component, fault). Decks of the same kind take turns."""
    servers = [name for name in BACK_ENDS if name != "zookeeper" or channel == "zookeeper"]
    ends: dict[str, list[str]] = {}
    for group, back_end in links(channel):
        ends.setdefault(group, []).append(f"{group}→{back_end}")
    return {
        "process": [
            [
                *((name, fault) for name in PROCESSES for fault in ("kill", "stop", "pause")),
                *((name, "kill first") for name in WORKERS),
            ]
        ],
        "link": [[(link, mode) for link in found for mode in MODES] for found in ends.values()],
        "server": [[(name, fault) for fault in BACK_ENDS[name]] for name in servers],
        "point": [[("point", point) for point in FAULTPOINTS]],
    }


def plan(seed: int, seconds: float, channel: Channel) -> Iterator[Step]:
    """The same for the same arguments: kinds take turns, the seed decides the order in each."""
    dice = random.Random(seed)
    left = seconds
    dealt = {kind: _dealt(dice, decks) for kind, decks in menu(channel).items()}
    for kind in cycle(TURNS):
        component, fault = next(dealt[kind])
        step = Step(component, fault, dice.uniform(*LASTING), dice.uniform(*REST))
        left -= step.lasting + step.rest
        if left < 0:
            return
        yield step


def _dealt(dice: random.Random, decks: list[Deck]) -> Iterator[tuple[str, str]]:
    """One of each deck in turn, without an end: a deck that is empty is shuffled again."""

    def deal(deck: Deck) -> Iterator[tuple[str, str]]:
        while True:
            yield from dice.sample(deck, len(deck))

    return chain.from_iterable(zip(*map(deal, decks), strict=True))


class Nemesis:
    """Carries out one step after the other; what it did is in the history."""

    def __init__(self, site: Site, history: History, seed: int) -> None:
        self.site, self.history = site, history
        self._dice = random.Random(seed)

    def run(self, steps: Iterator[Step], until: float) -> None:
        for step in steps:
            if time.time() > until:
                return
            self.carry_out(step)
            time.sleep(step.rest)

    def carry_out(self, step: Step) -> None:
        calm = (step.component, step.fault) in LOSSES
        if calm and not self._is_calm():
            return
        began = time.time()
        happened = self._do(step)
        told = {"component": step.component, "fault": step.fault}
        kind: Kind = "ok" if happened else "fail"
        self.history.add(Entry("fault", kind, began, time.time(), target=step.component, told=told))
        _say(f"{step.component} {step.fault}, {time.time() - began:.1f} s {kind}")
        if calm:
            self._is_calm()

    def _do(self, step: Step) -> bool:
        """Whether the fault happened; all is whole again when this returns."""
        if step.component == "point":
            return self._point(step)
        if "→" in step.component:
            return self._link(step)
        if step.component in PROCESSES:
            return self._process(step)
        return self._server(step)

    # --- the hands ------------------------------------------------------------------------------
    def _process(self, step: Step) -> bool:
        stack, name = self.site.stack, step.component
        if step.fault == "pause":
            stack.pause(name)
            time.sleep(step.lasting)
            stack.resume(name)
            return True
        if step.fault == "kill first":
            stack.kill_first(name)
        else:
            stack.kill(name, signal.SIGKILL if step.fault == "kill" else signal.SIGTERM)
        time.sleep(step.lasting / 2)
        stack.launch(name)
        return True

    def _server(self, step: Step) -> bool:
        service = self.site.services[step.component]
        match step.fault:
            case "kill":
                service.kill()
                time.sleep(step.lasting / 2)
                service.start()
            case "restart":
                service.restart()
            case "pause":
                service.pause()
                time.sleep(step.lasting)
                service.resume()
            case "wipe":
                service.wipe()
                service.start()
            case other:
                return self._meddle(other)
        return True

    def _meddle(self, fault: str) -> bool:
        hands: dict[str, Callable[[], object]] = {
            "terminate": self._terminate,
            "flush": self.site.shop.redis.flushall,
            "lose stock": self._lose_stock,
            "purge": self._purge,
            "repeat": self._repeat,
        }
        return hands[fault]() is not False

    def _link(self, step: Step) -> bool:
        group, _, back_end = step.component.partition("→")
        proxy = self.site.proxies[group, back_end]
        mode: Mode = step.fault  # type: ignore[assignment]
        proxy.set(mode, seconds=DELAY)
        if not mode.endswith("_once"):
            time.sleep(step.lasting)
            proxy.heal()
            return True
        happened = proxy.fired.wait(step.lasting)
        proxy.heal()
        return happened

    def _point(self, step: Step) -> bool:
        """Whoever comes to the point first is killed there."""
        marker = self.site.shop.arm(step.fault)
        try:
            wait_until(marker.exists, step.lasting)
        except AssertionError:
            marker.touch()  # Nobody came by.
            return False
        time.sleep(step.lasting / 2)
        return True

    def _terminate(self) -> None:
        server = self.site.services["postgres"]
        server.terminate_connections(DATABASE)  # type: ignore[attr-defined]

    def _lose_stock(self) -> None:
        sale = self._dice.choice(self.site.sales)
        self.site.shop.redis.delete(self.site.shop.key(sale.sale_id, "stock"))

    def _purge(self) -> None:
        for queue in QUEUES:
            self.site.rabbitmq.purge(queue, vhost=DATABASE)

    def _repeat(self) -> bool:
        """Old messages come again, all mixed up."""
        rows = self._decided()
        for sale_id, purchase, user in rows:
            entries = [[purchase, user, 1]]
            self.site.shop.queue("create_orders", sale_id, entries, queue="orders")
        self.site.shop.queue("expire_orders", queue="timers")
        return bool(rows)

    def _decided(self) -> list[tuple[int, str, int]]:
        statement = (
            "SELECT sale_id, id::text, user_id FROM orders_order"
            " WHERE user_id IS NOT NULL ORDER BY random() LIMIT 20"
        )
        return [(sale, pk, user) for sale, pk, user in self.site.shop.rows(statement)]

    # --- calm -----------------------------------------------------------------------------------
    def _is_calm(self) -> bool:
        try:
            wait_until(partial(_journal_is_young, self.site), CALM, 0.1)
        except AssertionError:
            return False
        return True


def _journal_is_young(site: Site) -> bool:
    """Nothing waits for long, so each message is there still, or was there in time."""
    seconds, micros = site.shop.redis.time()
    oldest = (seconds + micros / 1e6 - 0.3) * 1000
    keys = (site.shop.key(sale.sale_id, "pending") for sale in site.sales)
    return not any(site.shop.redis.zcount(key, 0, oldest) for key in keys)


def _say(text: str) -> None:
    sys.stderr.write(f"  {text}\n")


def counted(faults: Sequence[Entry]) -> dict[tuple[str, str], int]:
    """How often each fault met each component."""
    return Counter(_what(entry) for entry in faults if entry.kind == "ok")


def hits(faults: Sequence[Entry]) -> dict[str, int]:
    """How often anything met each process or back end; a network fault meets both of its ends.

    Those who share a proxy share its faults.
    """
    found: Counter[str] = Counter()
    for (component, _), times in counted(faults).items():
        group, _, back_end = component.partition("→")
        for name in (*GROUPS.get(group, (group,)), *filter(None, [back_end])):
            found[name] += times
    return found


def _what(entry: Entry) -> tuple[str, str]:
    return str(entry.told["component"]), str(entry.told["fault"])
