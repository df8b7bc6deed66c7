"""The gate in Lua against the gate in a few lines of Python, over random histories."""

import dataclasses
from typing import Any

import hypothesis.strategies as st
import msgspec
import uuid_utils.compat
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from inventory import gate, keys
from inventory.gate import Entry, Held, SaleSettings, Settlement
from inventory.redis_clients import sync_client
from tests.inventory.gates import open_sale
from tests.support.params import LONG

SALE = 11
# A failure is shown as it was found, after seconds; making it smaller takes minutes.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
USERS = st.integers(1, 3)
PURCHASES = st.integers(0, 5)  # how long ago it was tried
BATCHES = st.lists(st.tuples(USERS, st.integers(0, 3)), min_size=1, max_size=4)


@dataclasses.dataclass
class Model:
    """What the scripts say that they do. A buyer's entry is (purchase, state)."""

    rebuy: bool
    stock: int | None = None
    paused: bool = False
    buyers: dict[int, tuple[str, str]] = dataclasses.field(default_factory=dict)
    claims: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    results: dict[str, str] = dataclasses.field(default_factory=dict)
    applied: dict[str, int] = dataclasses.field(default_factory=dict)
    calls: dict[str, str] = dataclasses.field(default_factory=dict)  # purchase → call
    crossings: int = 0

    def reserve(self, user: int, purchase: str, quantity: int, call: str) -> str:
        entry = self.buyers.get(user)
        if entry:
            holds, state = entry
            if state in "op":
                return "O" + holds
            if state == "x":
                return "B"
            if holds in self.claims:
                repeated = holds == purchase and self.calls[holds] == call
                return "R" if repeated else "Q" + holds
        if purchase in self.results:
            return "E" + self.results[purchase]
        if self.stock is None:
            return "U"
        if self.paused:
            return "P"
        if not 1 <= quantity <= 2:
            return "M"
        if quantity > self.stock:
            return "S"
        self.move(-quantity)
        self.buyers[user] = (purchase, "q")
        self.claims[purchase] = (user, quantity)
        self.calls[purchase] = call
        return "R"

    def move(self, units: int) -> None:
        assert self.stock is not None
        before, self.stock = self.stock, self.stock + units
        # A batch crosses once, so entries of a batch are compared by its two ends.
        self.crossings += (before == 0) != (self.stock == 0)

    def holds(self, user: int, purchase: str) -> bool:
        entry = self.buyers.get(user)
        return entry is not None and entry[0] == purchase and entry[1] != "x"

    def settle(self, purchase: str, user: int, code: str, back: int, live: str) -> None:
        self.claims.pop(purchase, None)
        self.results[purchase] = f"x|{code}" if code else "o"
        if not self.holds(user, purchase):
            return
        if not code:
            state = self.buyers[user][1]
            self.buyers[user] = (purchase, "p" if state == "p" else "o")
            return
        self.move(back)
        if live:
            self.buyers[user] = (live, "o")
        elif code == "rebuy_not_allowed":
            self.buyers[user] = (purchase, "x")
        else:
            del self.buyers[user]

    def release(self, purchase: str, user: int, units: int, final: bool) -> None:
        self.claims.pop(purchase, None)
        self.results.setdefault(purchase, "o")
        if not self.holds(user, purchase) or (self.buyers[user][1] == "p" and not final):
            return
        self.move(units)
        if self.rebuy:
            del self.buyers[user]
        else:
            self.buyers[user] = (purchase, "x")

    def retake(self, purchase: str, user: int, units: int) -> bool:
        if self.stock is None:
            return False
        holds, state = self.buyers.get(user, ("", "x"))
        if state != "x" and holds != purchase:
            return False
        if state != "x":
            units = 0
        if units > self.stock:
            return False
        self.move(-units)
        self.buyers[user] = (purchase, "p")
        return True

    def adjust(self, name: str, units: int) -> int:
        assert self.stock is not None
        if name not in self.applied:
            self.applied[name] = max(units, -self.stock)
            self.move(self.applied[name])
        return self.applied[name]

    def prime(self, stock: int, buyers: dict[int, tuple[str, str]]) -> None:
        self.buyers, self.applied = dict(buyers), {}
        for purchase, (user, quantity) in sorted(self.claims.items()):
            if self.buyers.get(user, ("",))[0] != purchase:
                stock -= quantity
                self.buyers.setdefault(user, (purchase, "q"))
        self.stock = max(0, stock)


class GateMachine(RuleBasedStateMachine):
    """Each rule does the same to both sides and compares the answers."""

    @initialize(rebuy=st.booleans(), stock=st.integers(0, 4))
    def start(self, rebuy: bool, stock: int) -> None:
        gate.forget(SALE)
        self.sale: SaleSettings = open_sale(rebuy=rebuy)
        self.model = Model(rebuy)
        self.known: list[tuple[str, int, int]] = []  # purchase, user, quantity
        self.last: list[Any] | None = None
        self.epoch = 0
        self.load(stock)

    def load(self, stock: int) -> None:
        live = {u: e for u, e in self.model.buyers.items() if e[1] in "oxp"}
        buyers = {user: "|".join(entry) for user, entry in live.items()}
        loaded = gate.prime(SALE, stock=stock, sale=self.sale, buyers=buyers, adjustments=[])
        assert loaded == (self.model.stock is None)
        if loaded:
            self.model.prime(stock, live)
            self.model.paused = self.sale.paused
            self.epoch = gate.snapshot(SALE).epoch
            self.model.crossings = 0

    def pick(self, number: int) -> tuple[str, int, int] | None:
        return self.known[-1 - number % len(self.known)] if self.known else None

    # --- reserve ----------------------------------------------------------------------------------
    @rule(batch=BATCHES, fresh=st.booleans(), number=PURCHASES)
    def reserve(self, batch: list[tuple[int, int]], fresh: bool, number: int) -> None:
        entries = [Entry(user, str(uuid_utils.compat.uuid7()), n) for user, n in batch]
        old = self.pick(number)
        if old and not fresh:
            entries[0] = Entry(old[1], old[0], old[2])
        args = gate._reserve_args(entries, False)
        self.last = args
        self._reserve(args)
        # Mostly those that were admitted: they are what the other rules should meet again.
        admitted = [e for e in entries if e.purchase_id in self.model.claims] or entries[:1]
        self.known += [(e.purchase_id, e.user_id, e.quantity) for e in admitted]

    @rule()
    def repeat_the_last_call(self) -> None:
        if self.last:
            self._reserve(self.last)

    def _reserve(self, args: list[Any]) -> None:
        call, flat = args[0], msgspec.msgpack.decode(args[3])
        entries = [(int(flat[i]), *flat[i + 1 : i + 3]) for i in range(0, len(flat), 3)]
        crossings, before = self.model.crossings, self.model.stock
        expected = [self.model.reserve(user, p, n, call) for user, p, n in entries]
        # One call crosses at most once.
        crossed = bool(before) and self.model.stock == 0
        self.model.crossings = crossings + crossed

        reservation = gate._reservation(gate._run("reserve", SALE, args))

        assert [v.admission.value + v.detail for v in reservation.verdicts] == expected
        assert reservation.level.crossed == crossed

    # --- what the database decided ----------------------------------------------------------------
    @rule(number=PURCHASES)
    def settle_an_order(self, number: int) -> None:
        self._settle(number, "", 0, "")

    @rule(
        number=PURCHASES,
        code=st.sampled_from(["sold_out", "failed", "rebuy_not_allowed"]),
        less=st.integers(0, 1),
    )
    def reject(self, number: int, code: str, less: int) -> None:
        self._settle(number, code, less, "")

    @rule(number=PURCHASES, other=PURCHASES)
    def reject_a_duplicate(self, number: int, other: int) -> None:
        live = self.pick(other)
        self._settle(number, "duplicate", 0, live[0] if live else "")

    def _settle(self, number: int, code: str, less: int, live: str) -> None:
        entry = self.pick(number)
        if entry is None:
            return
        purchase, user, quantity = entry
        back = max(0, quantity - less) if code else 0
        gate.settle(SALE, [Settlement(purchase, user, code, back, live)])
        if self.model.stock is not None:
            self.model.settle(purchase, user, code, back, live)

    @rule(number=PURCHASES, final=st.booleans())
    def release(self, number: int, final: bool) -> None:
        entry = self.pick(number)
        if entry is None:
            return
        purchase, user, quantity = entry
        gate.release(SALE, [Held(purchase, user, max(0, quantity), final)])
        if self.model.stock is not None:
            self.model.release(purchase, user, max(0, quantity), final)

    @rule(number=PURCHASES)
    def retake(self, number: int) -> None:
        entry = self.pick(number)
        if entry is None:
            return
        purchase, user, quantity = entry
        level, held = gate.retake(SALE, Held(purchase, user, max(0, quantity)))
        assert held == self.model.retake(purchase, user, max(0, quantity))
        assert level.stock == self.model.stock

    @rule(name=st.sampled_from("abc"), units=st.integers(-3, 3))
    def adjust(self, name: str, units: int) -> None:
        _level, moved = gate.adjust(SALE, name, units)
        expected = self.model.adjust(name, units) if self.model.stock is not None else 0
        assert moved == expected

    # --- staff and sweeps -------------------------------------------------------------------------
    @rule(paused=st.booleans(), late=st.booleans())
    def configure(self, paused: bool, late: bool) -> None:
        told = self.sale._replace(paused=paused, revision=self.sale.revision + (-1 if late else 1))
        done = gate.configure(SALE, told)
        assert done == (self.model.stock is not None and not late)
        if not late:
            self.sale = told
        if done:
            self.model.paused = paused

    @rule()
    def due(self) -> None:
        found = {e.purchase_id: (e.user_id, e.quantity) for e in gate.due(SALE, retry_after=0)}
        assert found == self.model.claims

    @rule(right=st.integers(0, 4), changed=st.booleans())
    def reconcile(self, right: int, changed: bool) -> None:
        version = "1" if changed else gate.snapshot(SALE).version
        _level, done = gate.reconcile(SALE, version=version, stock=right)
        assert done == (self.model.stock is not None and not changed)
        if done:
            self.model.move(right - (self.model.stock or 0))

    # --- losses -----------------------------------------------------------------------------------
    @rule(stock=st.integers(0, 4))
    def prime(self, stock: int) -> None:
        self.load(stock)

    @rule()
    def flush(self) -> None:
        gate.forget(SALE)
        self.model = Model(self.model.rebuy)
        self.last = None

    @rule(stock=st.integers(0, 6), at_once=st.booleans())
    def lose_the_stock(self, stock: int, at_once: bool) -> None:
        sync_client().delete(keys.of_sale(SALE, "stock"))
        self.model.stock = None
        if at_once:
            self.load(stock)

    # --- what must hold ---------------------------------------------------------------------------
    @invariant()
    def both_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        seen = gate.snapshot(SALE)
        assert (seen.stock, seen.claims) == (self.model.stock, self.model.claims)
        assert seen.stock is None or seen.stock >= 0
        entries = {user: (purchase, state) for user, purchase, state in gate.buyers(SALE)}
        assert entries == self.model.buyers
        results = sync_client().hgetall(keys.of_sale(SALE, "results"))
        assert {k.decode(): v.decode() for k, v in results.items()} == self.model.results
        if seen.stock is not None:
            assert seen.epoch == self.epoch + self.model.crossings


def test_gate_agrees_with_its_model(redis_url: str) -> None:
    run = settings(
        max_examples=60 if LONG else 30,
        stateful_step_count=100,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
    )
    GateMachine.TestCase.settings = run
    GateMachine.TestCase().runTest()
