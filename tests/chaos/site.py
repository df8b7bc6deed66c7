"""The whole product under test: every connection to a back end goes through a proxy."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.e2e.shop import FAULTPOINTS, SETTINGS, Shop
from tests.marks.clerk import Clerk
from tests.support.postgres import Postgres
from tests.support.processes import this_run
from tests.support.proxy import FaultProxy
from tests.support.rabbitmq import RabbitMQ
from tests.support.redis_server import RedisServer
from tests.support.service import Service
from tests.support.stack import Plan, Stack
from tests.support.waiting import HOST
from tests.support.zookeeper import ZooKeeper

Channel = Literal["broadcast", "zookeeper"]

DATABASE = "chaos"
PRICE, PRICE_CENTS = "9.90", 990
PAYMENT_WINDOW = 6.0  # seconds, as all of these
SWEEP_INTERVAL = 1.0
SOLD_OUT_TTL = 1.0
TIMES = {
    "PAYMENT_WINDOW": str(PAYMENT_WINDOW),
    "SWEEP_INTERVAL": str(SWEEP_INTERVAL),
    "SOLD_OUT_TTL": str(SOLD_OUT_TTL),
    "ADMIT_RETRY_AFTER": "1",
    "PAYMENT_QUERY_AFTER": "2",
}
# Who shares the proxies: a network fault meets one web process, or all workers, or beat.
GROUPS = {
    "web1": ("web1",),
    "web2": ("web2",),
    "workers": ("orders1", "orders2", "timers"),
    "beat": ("beat",),
}
ROLLING = 20.0  # seconds between the starts of two sales
LASTING = 30.0  # seconds that each of those is open
UNITS = 30  # of each sale


@dataclass
class Sale:
    """`starts_at`, `ends_at`: Unix time. `forever`: it is open when the faults have ended, too.

    `per_buyer`: units that a buyer may ask for.
    """

    sale_id: int
    starts_at: float
    ends_at: float
    forever: bool = False
    per_buyer: int = 1


@dataclass
class Site:
    shop: Shop
    services: Mapping[str, Service]
    proxies: Mapping[tuple[str, str], FaultProxy]  # (group, back end)
    clerk: Clerk
    sales: list[Sale] = field(default_factory=list)

    @property
    def stack(self) -> Stack:
        return self.shop.stack

    @property
    def rabbitmq(self) -> RabbitMQ:
        assert self.shop.rabbitmq is not None
        return self.shop.rabbitmq

    def heal(self) -> None:
        """All of it runs, and answers."""
        for proxy in self.proxies.values():
            if proxy.mode != "pass":
                proxy.heal()
        for service in self.services.values():
            if service.is_running:
                service.resume()
            service.start()
        for name, member in self.stack.members.items():
            if member.is_running:
                self.stack.resume(name)
            else:
                self.stack.launch(name)

    def open_sales(self, seconds: float) -> None:
        """One that is open all the time, and others that begin and end one after the other.

        Of those one allows two units, the next allows no second try, and so on.
        """
        now = time.time()
        self._open(now - 1, now + 86_400, forever=True)
        start = now + 8
        while start < now + seconds:
            generous = len(self.sales) % 2 == 1
            per_buyer = 2 if generous else 1
            self._open(start, start + LASTING, per_buyer=per_buyer, rebuy=generous)
            start += ROLLING

    def _open(
        self,
        starts_at: float,
        ends_at: float,
        *,
        forever: bool = False,
        per_buyer: int = 1,
        rebuy: bool = True,
    ) -> None:
        made = self.clerk.do(
            "from datetime import UTC, datetime",
            f"starts_at = datetime.fromtimestamp({starts_at!r}, tz=UTC)",
            f"ends_at = datetime.fromtimestamp({ends_at!r}, tz=UTC)",
            f"sale = stock.create_sale(name='Kettle', price_cents={PRICE_CENTS},",
            f"    quantity={UNITS}, starts_at=starts_at, ends_at=ends_at,",
            f"    per_buyer={per_buyer}, rebuy={rebuy})",
            "prime(sale.pk)",
            "print(sale.pk)",
        )
        self.sales.append(Sale(int(made), starts_at, ends_at, forever, per_buyer))

    def sign_in(self, count: int) -> dict[int, str]:
        """So many buyers: user id → session key."""
        self.shop._make_buyers(count)
        told = self.clerk.do(
            "from django.contrib import auth",
            "from django.contrib.auth.models import User",
            "from django.contrib.sessions.backends.db import SessionStore",
            "for user in User.objects.filter(username__startswith='buyer').order_by('pk'):",
            "    session = SessionStore()",
            "    session[auth.SESSION_KEY] = str(user.pk)",
            "    session[auth.BACKEND_SESSION_KEY] = 'django.contrib.auth.backends.ModelBackend'",
            "    session[auth.HASH_SESSION_KEY] = user.get_session_auth_hash()",
            "    session.save()",
            "    print(user.pk, session.session_key)",
        )
        rows = (line.split() for line in told.splitlines())
        return {int(user): key for user, key in rows}


def links(channel: Channel) -> Iterator[tuple[str, str]]:
    for group in GROUPS:
        yield group, "rabbitmq"
        if group == "beat":
            continue
        yield from ((group, "postgres"), (group, "redis"))
        if channel == "zookeeper":
            yield group, "zookeeper"


def _settings(
    group: str, site_url: Mapping[str, str], proxies: Mapping[tuple[str, str], FaultProxy]
) -> dict[str, str]:
    """The addresses of the back ends, each with the group's proxy in the way."""
    names = {"postgres": "DATABASE_URL", "redis": "REDIS_URL", "rabbitmq": "CELERY_BROKER_URL"}
    found = {}
    for (owner, back_end), proxy in proxies.items():
        if owner != group:
            continue
        if back_end == "zookeeper":
            found["ZOOKEEPER_HOSTS"] = f"{HOST}:{proxy.port}"
        else:
            found[names[back_end]] = proxy.url(site_url[names[back_end]])
    return found


def _faultpoints(folder: Path) -> dict[str, str]:
    """As tests/e2e has it: a process may be killed at each point once the point's file is gone."""
    for point in FAULTPOINTS:
        (folder / point).touch()
    armed = ",".join(f"{point}={folder / point}" for point in FAULTPOINTS)
    return {"SECKILL_TESTING": "1", "FAULTPOINTS": armed}


@contextmanager
def opened(
    channel: Channel, postgres: Postgres, rabbitmq: RabbitMQ, *, template: str = "template1"
) -> Iterator[Site]:
    """Starts what isn't running yet: RabbitMQ takes its time, so it may run before."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(append_only=True))
        services: dict[str, Service] = {"postgres": postgres, "redis": redis, "rabbitmq": rabbitmq}
        if channel == "zookeeper":
            services["zookeeper"] = stack.enter_context(ZooKeeper())
        database = postgres.start().create_database(DATABASE, template=template)
        proxies = {
            (group, name): stack.enter_context(FaultProxy(services[name].port))
            for group, name in links(channel)
        }
        urls = {
            "DATABASE_URL": database,
            "REDIS_URL": redis.url,
            "CELERY_BROKER_URL": rabbitmq.start().create_vhost(DATABASE),
            "SOLD_OUT_CHANNEL": channel,
        }
        if channel == "zookeeper":
            urls["ZOOKEEPER_HOSTS"] = services["zookeeper"].url
        points = this_run().folder("faults")
        plan = Plan(web=2, workers=2, migrate=template == "template1")
        product = Stack(SETTINGS | TIMES | urls | _faultpoints(points), plan=plan)
        for group, names in GROUPS.items():
            for name in names:
                product.members[name].settings = _settings(group, urls, proxies)
        with product, Clerk(product.environment) as clerk:
            shop = Shop(product, redis, rabbitmq, DATABASE, points)
            yield Site(shop, services, proxies, clerk)
        rabbitmq.ctl("delete_vhost", DATABASE)
        postgres.drop_database(DATABASE)
