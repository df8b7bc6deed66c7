"""Three web processes that tell each other about sold-out marks, and what tests do to them."""

import http.client
import itertools
import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import kombu
import psutil
import psycopg2
import redis
import uuid_utils.compat
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from seckill import tokens
from tests.marks.clerk import Clerk
from tests.support.processes import family
from tests.support.proxy import FaultProxy
from tests.support.redis_server import RedisServer
from tests.support.service import Service
from tests.support.stack import Stack
from tests.support.waiting import HOST, wait_until

TTL = 3.0  # SOLD_OUT_TTL of these processes
UNITS = 3  # of each sale: as many as there are web processes
PATIENCE = 10.0
LONGEST = 3.0  # seconds that an answer may take, whatever is down
STRANGER = itertools.count(2_000_000_000)  # ids of users that don't exist


class Answer(NamedTuple):
    status: int
    code: str
    purchase_id: str
    seconds: float


class Switches:
    """Files that web2 looks at: those of tampered.py, and the marker of its fault point."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reset()

    def environment(self) -> dict[str, str]:
        hold = f"after_reserve!hold={self.folder / 'hold'}"
        return {"TAMPER": str(self.folder), "FAULTPOINTS": hold}

    def set(self, name: str) -> None:
        (self.folder / name).touch()

    def unset(self, name: str) -> None:
        (self.folder / name).unlink()

    def is_set(self, name: str) -> bool:
        return (self.folder / name).exists()

    def reset(self) -> None:
        """While the marker is there nothing happens at the fault point."""
        for path in self.folder.iterdir():
            path.unlink()
        self.set("hold")


@dataclass
class Site:
    """`proxy` stands between web2 and the transport; `server` is the transport."""

    stack: Stack
    gate: RedisServer
    server: Service
    proxy: FaultProxy
    kind: str
    switches: Switches
    clerk: Clerk
    _users: list[int] = field(default_factory=list)
    _sales: list[int] = field(default_factory=list)

    # --- rows -----------------------------------------------------------------------------------
    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        opened = psycopg2.connect(self.stack.environment["DATABASE_URL"])
        with closing(opened) as connection, connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def sale(self) -> int:
        """An open sale of three units, whose gate is loaded."""
        if not self._sales:
            text = self.clerk.do(
                "now = timezone.now()",
                "for number in range(30):",
                f"    s = stock.create_sale(name='Kettle', price_cents=990, quantity={UNITS},"
                " starts_at=now - timedelta(hours=1), ends_at=now + timedelta(hours=1))",
                "    assert prime(s.pk)",
                "    print('sale', s.pk)",
            )
            self._sales = [int(number) for number in re.findall(r"sale (\d+)", text)]
        return self._sales.pop()

    def prepare(self) -> None:
        """Have sales and users at hand that need no command, which the transport might hold up."""
        spare = [self.sale() for _ in range(3)]
        self._sales += spare
        self._users.append(self.user())

    def user(self) -> int:
        if not self._users:
            statement = (
                "INSERT INTO auth_user (username, password, first_name, last_name, email,"
                " is_superuser, is_staff, is_active, date_joined)"
                " SELECT 'user' || n, '', '', '', '', false, false, true, now()"
                " FROM generate_series(1, 1000) n RETURNING id"
            )
            self._users = [pk for (pk,) in self.rows(statement)]
        return self._users.pop()

    # --- buying ---------------------------------------------------------------------------------
    def request(self, sale_id: int, user_id: int | None = None) -> bytes:
        token = tokens.issue(
            sale_id=sale_id,
            user_id=self.user() if user_id is None else user_id,
            purchase_id=uuid_utils.compat.uuid7(),
            expires_at=time.time() + 3600,
        )
        return (
            f"POST /api/v1/sales/{sale_id}/purchases HTTP/1.1\r\nHost: {HOST}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"
        ).encode()

    def buy(self, sale_id: int, web: int, user_id: int | None = None) -> Answer:
        """Ask one process, by its number from 0."""
        token = self.request(sale_id, user_id).split(b"Bearer ")[1].split(b"\r\n")[0].decode()
        connection = http.client.HTTPConnection(HOST, self.stack.ports[web], timeout=PATIENCE)
        began = time.monotonic()
        with closing(connection):
            headers = {"Authorization": f"Bearer {token}"}
            connection.request("POST", f"/api/v1/sales/{sale_id}/purchases", headers=headers)
            response = connection.getresponse()
            body = json.loads(response.read())
        seconds = time.monotonic() - began
        code, purchase = body.get("code", ""), body.get("purchase_id", "")
        return Answer(response.status, code, purchase, seconds)

    def sell_out(self, sale_id: int, users: Sequence[int] | None = None) -> list[str]:
        """Sell all units by web1; returns the purchases."""
        answers = [self.buy(sale_id, 0, users[i] if users else None) for i in range(UNITS)]
        assert [answer.status for answer in answers] == [202] * UNITS, answers
        return [answer.purchase_id for answer in answers]

    def wait_orders(self, sale_id: int, number: int = UNITS) -> None:
        wait_until(lambda: self._orders(sale_id) == number, 30, 0.05)

    def _orders(self, sale_id: int) -> int:
        # A supervisor's part: Celery ends if Redis refuses its first try to connect again.
        if not self.stack.members["orders1"].is_running:
            self.stack.launch("orders1")
        statement = "SELECT count(*) FROM orders_order WHERE sale_id = %s AND status = 0"
        return int(self.rows(statement, sale_id)[0][0])

    def refused(self, sale_id: int) -> list[str]:
        """Ask each process once."""
        return [self.buy(sale_id, web).code for web in range(len(self.stack.ports))]

    # --- the gate -------------------------------------------------------------------------------
    @cached_property
    def redis(self) -> "redis.Redis":
        return self.gate.client()

    def stock(self, sale_id: int) -> int:
        return int(str(self.redis.get(f"seckill:sale:{{{sale_id}}}:stock")))

    def gate_calls(self) -> int:
        stats: Any = self.redis.info("commandstats")
        return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))

    # --- units come back --------------------------------------------------------------------------
    def expire(self, sale_id: int) -> None:
        statement = (
            "UPDATE orders_order SET created_at = now() - interval '2 hours',"
            " pay_before = now() - interval '1 hour' WHERE sale_id = %s"
        )
        self.rows(statement, sale_id)
        self.queue("sweep_expired", queue="sweeps")

    def cancel(self, sale_id: int) -> None:
        self.clerk.do(
            f"for order in Order.objects.filter(sale_id={sale_id}):",
            "    assert orders.cancel_order(order.pk, actor='test')",
        )

    def top_up(self, sale_id: int) -> None:
        """By a process that ends right after it."""
        code = (
            "from inventory import services\n"
            f"services.adjust_stock({sale_id}, delta={UNITS}, reason='more')"
        )
        self.stack.manage("shell", "--no-imports", "-c", code)

    def queue(self, task: str, *arguments: Any, queue: str) -> None:
        number = uuid.uuid4().hex
        headers = {"lang": "py", "task": f"orders.{task}", "id": number, "root_id": number}
        url = self.stack.environment["CELERY_BROKER_URL"]
        prefix = {"global_keyprefix": "seckill:celery:"} if url.startswith("redis") else {}
        with (
            kombu.Connection(url, transport_options=prefix) as connection,
            connection.Producer() as producer,
        ):
            options: dict[str, Any] = {
                "correlation_id": number,
                "serializer": "json",
                "headers": headers,
            }
            producer.publish((arguments, {}, {}), routing_key=queue, **options)

    def sells_again(self, sale_id: int, since: float, *, within: Sequence[float]) -> list[float]:
        """Ask each process until it sells; how long after `since` that was."""
        found: dict[int, float] = {}
        users = [self.user() for _ in self.stack.ports]
        while len(found) < len(self.stack.ports) and time.monotonic() - since < max(within) + 2:
            for web in set(range(len(self.stack.ports))) - found.keys():
                answer = self.buy(sale_id, web, users[web])
                assert answer.seconds < LONGEST
                if answer.status == 202:
                    found[web] = time.monotonic() - since
            time.sleep(0.01)
        times = [found.get(web, float("inf")) for web in range(len(self.stack.ports))]
        assert all(t < most for t, most in zip(times, within, strict=True)), (times, within)
        return times

    def answers(self, sale_id: int, code: str, *, within: float) -> list[float]:
        """Ask each process until it says so; how long that took."""
        began, times = time.monotonic(), []
        for web in range(len(self.stack.ports)):
            wait_until(partial(self._says, sale_id, web, code), within)
            times.append(time.monotonic() - began)
        assert max(times) < within
        return times

    def _says(self, sale_id: int, web: int, code: str) -> bool:
        return self.buy(sale_id, web).code == code

    def viewer(self, sale_id: int, web: int) -> ClientConnection:
        base_url = self.stack.base_urls[web]
        url = f"{base_url.replace('http', 'ws', 1)}/ws/v1/sales/{sale_id}"
        return connect(url, origin=Origin(base_url))

    def wait_stock(self, sale_id: int) -> float:
        """The moment when all units were back."""
        wait_until(lambda: self.stock(sale_id) == UNITS, 30, 0.005)
        return time.monotonic()

    # --- what the processes say -------------------------------------------------------------------
    def get(self, web: int, path: str) -> bytes:
        connection = http.client.HTTPConnection(HOST, self.stack.ports[web], timeout=PATIENCE)
        with closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read()

    def ready(self, web: int) -> Mapping[str, Any]:
        result: Mapping[str, Any] = json.loads(self.get(web, "/readyz"))
        return result

    def metric(self, web: int, name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", self.get(web, "/metrics").decode(), re.MULTILINE)
        assert found, name
        return float(found[1])

    def listener(self, web: int) -> str:
        try:
            return str(self.ready(web).get("sold_out", {}).get("listener"))
        except OSError:
            return "no process"

    def wait_listening(self, within: float = 15) -> float:
        """Until all listeners hear; how long that took."""
        began = time.monotonic()
        for web in range(len(self.stack.ports)):
            wait_until(partial(self._hears, web), within, 0.1)
        return time.monotonic() - began

    def _hears(self, web: int) -> bool:
        return self.listener(web) == "ok"

    def belief(self, web: int, sale_id: int) -> tuple[int, bool]:
        """Epoch and "sold out", as this process last reported; epoch 0: it knows nothing."""
        reports = self.redis.scan_iter(f"seckill:soldout:report:*:{self.pid(web)}")
        marks = [m for key in reports for m in json.loads(self.redis.get(key) or "{}")["marks"]]
        found = ((m["epoch"], m["sold_out"]) for m in marks if m["sale"] == sale_id)
        return next(found, (0, False))

    def epoch(self, sale_id: int) -> int:
        return int(str(self.redis.get(f"seckill:sale:{{{sale_id}}}:epoch")))

    def pid(self, web: int) -> int:
        """Of the process that answers: with granian that is a child."""
        first = self.stack.members[f"web{web + 1}"].pid
        return wait_until(lambda: self._reporting(family(first))) or 0

    def _reporting(self, processes: Sequence[psutil.Process]) -> int | None:
        reports = [str(key) for key in self.redis.scan_iter("seckill:soldout:report:*")]
        pids = {int(key.rpartition(":")[2]) for key in reports}
        return next((process.pid for process in processes if process.pid in pids), None)
