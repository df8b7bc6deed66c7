"""One run: buyers and faults at the same time, then healing, rest, and the verdict."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tests.chaos.buyers import Caller
from tests.chaos.crowd import Crowd, buy_out
from tests.chaos.evidence import Closing, Evidence, audit, collect
from tests.chaos.history import History, accepted
from tests.chaos.invariants import INVARIANTS, broken
from tests.chaos.nemesis import Nemesis, counted, hits, plan
from tests.chaos.sampler import Sampler
from tests.chaos.site import UNITS, Channel, Sale, Site
from tests.chaos.staff import MOST, Staff
from tests.e2e.shop import Shop, ticket
from tests.support.load import outcomes
from tests.support.waiting import wait_until

BUYERS = 40
SURPLUS = 5  # buyers more than units, at the end
CLOSERS = UNITS + MOST + SURPLUS  # who buy what is left of a sale at the end
RECOVERY = 45.0  # seconds after the last fault
# Everything that may still be under way, in the order in which it comes to an end.
UNDER_WAY = {
    "orders are unpaid": "SELECT count(*) FROM orders_order WHERE status = 0",
    "charges are still to be captured": (
        "SELECT count(*) FROM orders_sandboxcharge WHERE captured_at > now()"
    ),
    "payments are not ended": (
        "SELECT count(*) FROM orders_payment WHERE status = 0 AND ask_at IS NOT NULL"
    ),
    "payments have no use": "SELECT count(*) FROM orders_payment WHERE status = 1 AND use = ''",
    "payments were taken, and nobody knows": (
        "SELECT count(*) FROM orders_payment p JOIN orders_sandboxcharge c ON c.payment_id = p.id"
        " WHERE c.captured_at <= now() AND p.status <> 1"
    ),
    "refunds are not done": "SELECT count(*) FROM orders_refund WHERE status = 0",
    "adjustments are not known to the gate": (
        "SELECT count(*) FROM inventory_stockadjustment WHERE gate_applied_at IS NULL"
    ),
    "units are not back at the gate": (
        "SELECT count(*) FROM orders_order WHERE restocked AND gate_released_at IS NULL"
    ),
}


@dataclass
class Result:
    seed: int
    evidence: Evidence
    broken: Mapping[int, Sequence[str]]

    @property
    def faults(self) -> int:
        return sum(counted(self.evidence.faults).values())

    def table(self) -> str:
        """Component × fault → how often, and what each invariant came to."""
        rows = [
            f"{component:<22}{fault:<22}{times:>4}"
            for (component, fault), times in sorted(counted(self.evidence.faults).items())
        ]
        met = ", ".join(
            f"{name} {times}" for name, times in sorted(hits(self.evidence.faults).items())
        )
        names = {0: ("the audit", None), **INVARIANTS}
        verdicts = [
            f"{number:>3} {name:<32}{len(self.broken.get(number, ())) or 'holds'}"
            for number, (name, _) in names.items()
        ]
        texts = [f"{n}: {text}" for n, found in self.broken.items() for text in found[:5]]
        return "\n".join([*rows, "", f"hit: {met}", "", *verdicts, "", *texts, *self._figures()])

    def _figures(self) -> list[str]:
        history, orders = self.evidence.history, self.evidence.rest.orders
        calls = [
            entry for entry in history.entries if entry.op not in ("fault", "frame", "lag", "staff")
        ]
        kinds = [sum(entry.kind == kind for entry in calls) for kind in ("ok", "fail", "unknown")]
        lag = sum(entry.told["late"] for entry in history.of("lag"))
        slowest = max((entry.seconds - entry.wait for entry in calls), default=0)
        return [
            f"seed {self.seed}: {self.faults} faults, {len(calls)} calls"
            f" ({kinds[0]} ok, {kinds[1]} fail, {kinds[2]} unknown),"
            f" {len(accepted(history))} purchases accepted, {len(orders)} decided,"
            f" {len(self.evidence.samples)} samples; slowest answer {slowest:.1f} s;"
            f" this machine was late by {lag:.1f} s in all",
        ]


def run(
    site: Site, *, seed: int, seconds: float, channel: Channel, file: Path | None = None
) -> Result:
    history = History(file)
    site.open_sales(seconds)
    sessions = site.sign_in(BUYERS + CLOSERS)
    callers = [Caller(history, site.stack.ports, *pair) for pair in sessions.items()]
    sampler = Sampler(site.shop, [sale.sale_id for sale in site.sales]).start()
    crowd = Crowd(callers[:BUYERS], site.sales, seed).start()
    staff = Staff(site.clerk, site.sales, history, seed).start()
    until = time.time() + seconds
    Nemesis(site, history, seed).run(plan(seed, seconds, channel), until)
    site.heal()
    staff.stop()
    crowd.stop()
    evidence = _at_rest(site, history, callers[BUYERS:], sampler)
    history.close()
    return Result(seed, evidence, broken(evidence))


def _at_rest(site: Site, history: History, closers: Sequence[Caller], sampler: Sampler) -> Evidence:
    site.stack.wait_ready()
    unrest = settle(site)
    closings = [_close(site, sale, closers) for sale in site.sales if sale.forever]
    unrest += settle(site)
    answers = _final_answers(site, history)
    samples = sampler.stop()
    rest = collect(site.shop, site.sales, audited=audit(site.shop))
    return Evidence(history, samples, rest, site.sales, closings, answers, unrest)


def _close(site: Site, sale: Sale, closers: Sequence[Caller]) -> Closing:
    units = site.shop.gate_stock(sale.sale_id) or 0
    return Closing(sale.sale_id, units, buy_out(closers[: units + SURPLUS], sale))


def settle(site: Site) -> list[str]:
    """Wait until nothing moves any more; what still does after RECOVERY seconds is told."""
    try:
        wait_until(lambda: not _moving(site), RECOVERY, 0.3)
    except AssertionError:
        return _moving(site)
    return []


def _moving(site: Site) -> list[str]:
    shop = site.shop
    found = [
        f"{count} {text}"
        for text, statement in UNDER_WAY.items()
        if (count := shop.rows(statement)[0][0])
    ]
    return found + [line for sale in site.sales for line in _sale_moving(shop, sale.sale_id)]


def _sale_moving(shop: Shop, sale_id: int) -> list[str]:
    if size := shop.journal_size(sale_id):
        return [f"sale {sale_id}: {size} entries in the journal"]
    statement = "SELECT quantity - allocated FROM inventory_flashsale WHERE id = %s"
    left, stock = shop.rows(statement, sale_id)[0][0], shop.gate_stock(sale_id)
    return [] if stock == left else [f"sale {sale_id}: gate {stock}, database {left}"]


def _final_answers(site: Site, history: History) -> dict[str, tuple[str, str]]:
    """Everybody whose purchase was accepted asks once more."""
    tickets = [
        ticket(entry.sale, entry.user, UUID(purchase))
        for purchase, entry in accepted(history).items()
    ]
    told = outcomes(site.stack.ports, tickets, within=20)
    return {
        purchase: (str(answer.get("status")), str(answer.get("code") or ""))
        for purchase, answer in told.items()
    }
