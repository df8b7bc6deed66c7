"""The shop with the rights that docs/deployment.md gives it, no others, and what its logs tell."""

import configparser
import http.client
import os
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import kombu
import psycopg2
import pytest
import redis

from scripts.smoke import Client, await_order, log_in
from tests.e2e.shop import SETTINGS, Shop
from tests.support import environment
from tests.support.postgres import Postgres
from tests.support.processes import this_run
from tests.support.redis_server import RedisServer
from tests.support.stack import Plan, Stack
from tests.support.waiting import HOST, wait_until

FOLDER = environment.ROOT / "docs/deployment"
PASSWORD = "pass-word-of-a-back-end"
PLAN = Plan(web=1, workers=1, migrate=False)
pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("least_privilege")]


@pytest.fixture(scope="module")
def database(_own_postgres: Postgres, _migrated: str) -> Iterator[str]:
    """A database with all tables, as the role of the documents sees it."""
    url = _own_postgres.create_database("guarded", template=_migrated)
    with psycopg2.connect(url) as owner, owner.cursor() as cursor:
        cursor.execute((FOLDER / "postgres.sql").read_text().replace("change-me", PASSWORD))
    yield url.replace("//" + url.split("//")[1].split("@")[0], f"//seckill_app:{PASSWORD}")
    with psycopg2.connect(url) as owner, owner.cursor() as cursor:
        cursor.execute("DROP OWNED BY seckill_app; DROP ROLE seckill_app")
    owner.close()
    _own_postgres.drop_database("guarded")


@pytest.fixture(scope="module")
def guarded(database: str) -> Iterator[Shop]:
    with RedisServer(append_only=True) as server, server.client() as boss:
        for line in (FOLDER / "redis.acl").read_text().splitlines():
            _, name, *rules = line.replace("change-me", PASSWORD).split()
            if name != "default":
                boss.execute_command("ACL", "SETUSER", name, *rules)
        url = f"redis://seckill:{PASSWORD}@{HOST}:{server.port}/0"
        back_ends = {"DATABASE_URL": database, "REDIS_URL": url, "LOG_LEVEL": "DEBUG"}
        with Stack(SETTINGS | back_ends, plan=PLAN) as stack:
            boss.execute_command("ACL", "SETUSER", "default", "off")
            yield Shop(stack, server)
            # pytest shows this only if a test failed.
            sys.stdout.write(stack.logs())
            boss.execute_command("ACL", "SETUSER", "default", "on")


class Purchase:
    """From sign-in to paid, and all that was secret on the way."""

    def __init__(self, shop: Shop, number: int) -> None:
        self.client = Client(shop.stack.base_url)
        name = f"buyer{number}"
        shop.stack.manage("create_buyers", "--count", str(number))
        sale_id = shop.create_sale(3)
        log_in(self.client, name, name)
        made = self.client.json("POST", f"/api/v1/sales/{sale_id}/token", {}, expect=(201,))
        bearer = {"Authorization": f"Bearer {made['token']}"}
        path = f"/api/v1/sales/{sale_id}/purchases"
        self.client.json("POST", path, {"quantity": 1}, headers=bearer, expect=(202,))
        purchase = made["purchase_id"], made["token"]
        self.order_id = await_order(self.client, sale_id, purchase, 30)
        self.secrets = [
            made["token"],
            self.client.cookie("sessionid"),
            self.client.cookie("csrftoken"),
            *environment.SECRETS.values(),
            PASSWORD,
        ]
        self.sale_id = sale_id

    def pay(self) -> None:
        path = f"/api/v1/orders/{self.order_id}"
        url = self.client.json("POST", f"{path}/pay", {"provider": "sandbox"})["payment_url"]
        form = f"result=pay&csrfmiddlewaretoken={self.client.cookie('csrftoken')}".encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        self.client.request("POST", url, body=form, headers=kind)
        wait_until(lambda: self.client.json("GET", path)["status"] == "paid", 30)


@pytest.fixture(scope="module")
def purchase(guarded: Shop) -> Purchase:
    made = Purchase(guarded, 1)
    made.pay()
    return made


def logs(shop: Shop) -> str:
    return "".join(m.log.read_text(errors="replace") for m in shop.stack.members.values())


def test_whole_way_of_a_purchase_needs_no_more_rights(guarded: Shop, purchase: Purchase) -> None:
    left = Purchase(guarded, 2)
    left.client.json("POST", f"/api/v1/orders/{left.order_id}/cancel", {})
    guarded.stack.manage("reconcile", expect=(0, 3))
    guarded.stack.manage("soldout", "show")

    wait_until(lambda: guarded.stack.audit(left.sale_id)["sales"][0]["gate"] == 3, 30)
    assert guarded.stack.audit()["ok"]
    for complaint in ("NOPERM", "permission denied", "NOAUTH", "WRONGPASS"):
        assert complaint not in logs(guarded)


def test_nobody_enters_redis_without_a_password(guarded: Shop) -> None:
    anybody = redis.Redis(host=HOST, port=guarded.redis_server.port)

    with anybody, pytest.raises(redis.AuthenticationError):
        anybody.get("seckill:probe")


@pytest.mark.parametrize(
    "command",
    [
        *(
            ["FLUSHALL"],
            ["FLUSHDB"],
            ["CONFIG", "GET", "*"],
            ["DEBUG", "SLEEP", "0"],
            ["KEYS", "*"],
        ),
        *(["SCRIPT", "FLUSH"], ["FUNCTION", "FLUSH"], ["ACL", "LIST"], ["SHUTDOWN"], ["MONITOR"]),
        *(
            ["GET", "another:app"],
            ["SET", "x", "1"],
            ["PUBLISH", "other", "x"],
            ["REPLICAOF", "a", "1"],
        ),
        ["EVAL", "return redis.call('GET', 'another:app')", "0"],
    ],
    ids=" ".join,
)
def test_shop_may_not_harm_the_rest_of_redis(guarded: Shop, command: list[str]) -> None:
    url = guarded.stack.environment["REDIS_URL"]
    with (
        redis.Redis.from_url(url) as ours,
        pytest.raises(redis.ResponseError, match=r"(?i)perm|can't access"),
    ):
        ours.execute_command(*command)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE x (id int)",
        "DROP TABLE orders_order",
        "ALTER TABLE orders_order DROP CONSTRAINT orders_order_pkey",
        "TRUNCATE orders_order",
        "DELETE FROM django_migrations",
        "CREATE ROLE another SUPERUSER",
        "COPY orders_order TO PROGRAM 'id'",
    ],
)
def test_shop_may_not_change_its_tables(database: str, statement: str) -> None:
    connection = psycopg2.connect(database)
    try:
        with (
            connection.cursor() as cursor,
            pytest.raises(psycopg2.Error, match=r"permission|must be"),
        ):
            cursor.execute(statement)
    finally:
        connection.close()


def test_logs_tell_no_secret(guarded: Shop, purchase: Purchase) -> None:
    """At DEBUG, after sign-in, purchase, payment by webhook, and tries that failed."""
    stranger = Client(guarded.stack.base_url)
    body = b'{"username":"typed-into-the-wrong-field"}'
    stranger.request("POST", "/api/v1/payments/sandbox/webhook", body=body, expect=(400,))
    bad = {"Authorization": "Bearer " + purchase.secrets[0][:-4] + "AAAA"}
    path = f"/api/v1/sales/{purchase.sale_id}/purchases"
    stranger.request("POST", path, headers=bad, body=b"", expect=(403,))

    told = logs(guarded)

    assert "/webhook" in told  # What happened is told, but not with what.
    assert [
        secret for secret in (*purchase.secrets, bad["Authorization"][7:]) if secret in told
    ] == []
    assert not re.search(r"sessionid=|csrftoken=|argon2\$|v1=[0-9a-f]{64}|Bearer [\w-]{10}", told)


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("kind", ["application/x-python-serialize", "application/json", "text/odd"])
def test_pickle_in_a_queue_is_neither_run_nor_deadly(guarded: Shop, kind: str) -> None:
    marker = this_run().folder("evil") / "was-run"
    headers = {"lang": "py", "task": "orders.create_orders", "id": "1", "root_id": "1"}
    options = {"global_keyprefix": "seckill:celery:"}
    url = guarded.stack.environment["REDIS_URL"]
    with (
        kombu.Connection(url, transport_options=options) as connection,
        connection.Producer() as producer,
    ):
        producer.publish(
            pickle.dumps(((1, [Evil(marker)]), {}, {})),
            routing_key="orders",
            content_type=kind,
            content_encoding="binary",
            headers=headers,
        )

    after = Purchase(guarded, 3)

    assert after.order_id
    assert not marker.exists()
    assert guarded.stack.members["orders1"].is_running
    assert "Traceback" not in http_text(guarded, "/readyz")


def http_text(shop: Shop, path: str) -> str:
    connection = http.client.HTTPConnection(HOST, shop.stack.ports[0], timeout=5)
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


@pytest.mark.parametrize("unit", sorted(FOLDER.glob("*.service")), ids=lambda unit: unit.stem)
def test_units_are_not_of_root(unit: Path) -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    service = parser["Service"]

    assert service["User"] == service["Group"] == "seckill"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert "0.0.0.0" not in service["ExecStart"]
