"""What is measured: each part starts its own processes, loads them with wrk, and stops them."""

import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import django
from django.conf import settings

from seckill import tokens
from tests.bench import wrk
from tests.e2e.shop import SETTINGS, Shop
from tests.support import environment
from tests.support.postgres import Postgres
from tests.support.processes import Command, kill_family, this_run
from tests.support.rabbitmq import RabbitMQ
from tests.support.redis_server import RedisServer
from tests.support.stack import Plan, Stack
from tests.support.waiting import HOST, free_port, listens, wait_until

PARTS = ("accepted", "refused", "page", "orders")
WARM_UP = 2.0  # seconds
BUYERS = 150_000  # tokens for the accepted part; a second round would only repeat purchases
NAIVE_UNITS = 1500  # of the baseline, which is slow

Figures = dict[str, float]


def run(parts: Sequence[str], *, seconds: float, units: int) -> Figures:
    settings.configure(SECRET_KEY=environment.SECRETS["SECRET_KEY"], SECRET_KEY_FALLBACKS=[])
    django.setup()
    figures: Figures = {}
    with Postgres() as postgres, RabbitMQ() as rabbitmq:
        bench = Bench(postgres, rabbitmq, seconds)
        if {"accepted", "refused"} & set(parts):
            figures["bare_per_s"] = bench.bare()
        for part in parts:
            _say(f"{part} …")
            figures |= bench.orders(units) if part == "orders" else getattr(bench, part)()
    for part in {"accepted", "refused"} & set(parts):
        figures[f"{part}_ratio"] = figures[f"{part}_per_s"] / figures["bare_per_s"]
    return figures


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


class Bench:
    def __init__(self, postgres: Postgres, rabbitmq: RabbitMQ, seconds: float) -> None:
        self.postgres, self.rabbitmq, self.seconds = postgres, rabbitmq, seconds
        self.folder: Path = this_run().folder("bench")

    # --- parts --------------------------------------------------------------------------------
    def bare(self) -> float:
        """The very requests that the other parts send, answered at once."""
        file = self._tokens(1, BUYERS)
        with self._served("asgi", "tests.bench.bare:application", environment.neutral()) as url:
            return self._load(url, file).rate

    def accepted(self) -> Figures:
        with self._shop(Plan(workers=0, timers=False, beat=False)) as shop:
            file = self._tokens(shop.create_sale(100_000_000), BUYERS)
            result = self._load(shop.stack.base_url, file)
            return {
                "accepted_per_s": result.rate,
                "accepted_p50_ms": result.p50,
                "accepted_p99_ms": result.p99,
                "accepted_errors": result.errors,
            }

    def refused(self) -> Figures:
        with self._shop(Plan(workers=0, timers=False, beat=False)) as shop:
            sale_id = shop.create_sale(1)
            file = self._tokens(sale_id, 10_000)
            result = self._load(shop.stack.base_url, file)
            if result.errors < result.requests * 0.99:
                raise AssertionError("these were to be refused")
            return {"refused_per_s": result.rate, "refused_p99_ms": result.p99}

    def page(self) -> Figures:
        site = {"DJANGO_SETTINGS_MODULE": "tests.bench.site_settings"}
        with self._shop(Plan(workers=0, timers=False, beat=False), **site) as shop:
            ours = self._load(f"{shop.stack.base_url}/empty/")
            variables = shop.stack.environment
            with self._served("wsgi", "tests.bench.wsgi:application", variables) as url:
                theirs = self._load(f"{url}/empty/")
        return {
            "page_per_s": ours.rate,
            "page_wsgi_per_s": theirs.rate,
            "page_ratio": ours.rate / theirs.rate,
        }

    def orders(self, units: int) -> Figures:
        """Whole path: HTTP, gate, broker, worker, one transaction per batch."""
        ours = self._orders(units)
        _say("orders, one message and one transaction each …")
        naive = self._orders(NAIVE_UNITS, ORDER_BATCH="1")
        return {
            "orders_per_s": ours,
            "orders_singly_per_s": naive,
            "orders_ratio": ours / naive,
        }

    def _orders(self, units: int, **variables: str) -> float:
        with self._shop(Plan(workers=1, concurrency=2), **variables) as shop:
            sale_id = shop.create_sale(units)
            tickets = shop.tickets(sale_id, units)
            file = self.folder / "buyers.txt"
            file.write_text("".join(f"{sale_id} {t.token}\n" for t in tickets))
            # Long enough to use every token, also on a slow machine.
            seconds = max(3, units / 1500)
            with ThreadPoolExecutor(1) as pool:
                begun = time.monotonic()
                url = shop.stack.base_url
                load = pool.submit(wrk.run, url, self.folder, tokens=file, seconds=seconds)
                while sum(shop.statuses(sale_id).values()) < units:
                    if load.done():
                        load.result()  # Raises what went wrong.
                    if time.monotonic() > begun + 300:
                        raise AssertionError(f"not all of {units} orders were made in 300 s")
                    time.sleep(0.05)
                took = time.monotonic() - begun
                load.result()
            return units / took

    # --- processes ----------------------------------------------------------------------------
    @contextmanager
    def _shop(self, plan: Plan, **variables: str) -> Iterator[Shop]:
        name = f"bench{uuid.uuid4().hex[:8]}"
        with RedisServer(append_only=True) as redis:
            back_ends = {
                "DATABASE_URL": self.postgres.create_database(name),
                "REDIS_URL": redis.url,
                "CELERY_BROKER_URL": self.rabbitmq.create_vhost(name),
                "SOLD_OUT_TTL": "2",
                "ADMIT_RETRY_AFTER": "60",
                "SWEEP_INTERVAL": "5",
            }
            with Stack(SETTINGS | back_ends | variables, plan=plan) as stack:
                yield Shop(stack, redis, self.rabbitmq, name)
        self.postgres.drop_database(name)

    @contextmanager
    def _served(self, interface: str, target: str, variables: dict[str, str]) -> Iterator[str]:
        """granian as the stack starts it, for another application."""
        port = free_port()
        options = ["--interface", interface, "--host", HOST, "--port", str(port)]
        options += ["--workers", "1", "--no-access-log", "--log-level", "warning"]
        arguments = [sys.executable, "-m", "granian", *options, target]
        command = Command(arguments, variables, folder=environment.ROOT)
        process = this_run().spawn(command, log=self.folder / f"{interface}.log")
        try:
            wait_until(lambda: listens(port), 30, 0.1)
            yield f"http://{HOST}:{port}"
        finally:
            kill_family(process.pid)
            process.wait()
            this_run().forget(process)

    def _load(self, url: str, file: Path | None = None) -> wrk.Result:
        wrk.run(url, self.folder, tokens=file, seconds=WARM_UP)
        return wrk.run(url, self.folder, tokens=file, seconds=self.seconds)

    def _tokens(self, sale_id: int, count: int) -> Path:
        """Tokens for buyers who needn't exist: nobody makes orders of them."""
        file = self.folder / "tokens.txt"
        until = time.time() + 3600
        with file.open("w") as lines:
            for user_id in range(1, count + 1):
                token = tokens.issue(
                    sale_id=sale_id, user_id=user_id, purchase_id=uuid.uuid4(), expires_at=until
                )
                lines.write(f"{sale_id} {token}\n")
        return file
