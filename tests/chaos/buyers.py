"""Buyers who buy, ask, pay, cancel, forget, and try again; every call of theirs is written down."""

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Origin

from tests.chaos.history import TERMINAL, Entry, History, Kind
from tests.chaos.site import Sale
from tests.e2e.shop import ticket
from tests.support.load import Ticket, Wire
from tests.support.waiting import HOST

PATIENCE = 15.0  # seconds for one answer
LONG_POLL = 5
CSRF = "c" * 32
GIVE_UP = 60.0  # seconds after which nobody waits for an outcome any more
TRIES = 6
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
# What a buyer with an order does, how often of a hundred times.
PLANS = {"pay": 38, "cancel": 18, "pay and cancel": 8, "leave": 36}
BUTTONS = {"pay": 50, "twice": 15, "never": 10, "late": 12, "slow": 6, "fail": 7}


def pick(choices: Mapping[str, int], dice: random.Random) -> str:
    return dice.choices(list(choices), weights=list(choices.values()))[0]


def kind_of(status: int) -> Kind:
    if 200 <= status < 400:
        return "ok"
    return "fail" if 400 <= status < 500 else "unknown"


class Caller:
    """One buyer's way to the web processes. Each call has a connection of its own."""

    def __init__(self, history: History, ports: Sequence[int], user: int, session: str) -> None:
        self.history, self.ports, self.user = history, ports, user
        self.cookie = f"sessionid={session}; csrftoken={CSRF}"

    async def call(
        self,
        op: str,
        method: str,
        path: str,
        web: int,
        *,
        token: str = "",
        form: Mapping[str, str] | None = None,
        data: Mapping[str, Any] | None = None,
        wait: float = 0.0,
        about: tuple[int, str] = (0, ""),
        quantity: int = 1,
    ) -> Entry:
        body = urlencode(form).encode() if form else json.dumps(data).encode() if data else b""
        request = self._head(method, path, web, token, FORM if form else JSON, body) + body
        began = time.time()
        kind, status, told = await self._send(request, self.ports[web], PATIENCE + wait)
        entry = Entry(
            op,
            kind,
            began,
            time.time(),
            user=self.user,
            sale=about[0],
            purchase=about[1],
            target=f"web{web + 1}",
            status=status,
            wait=wait,
            quantity=quantity,
            told=told,
        )
        return self.history.add(entry)

    def _head(
        self, method: str, path: str, web: int, token: str, media_type: str, body: bytes
    ) -> bytes:
        who = f"Authorization: Bearer {token}" if token else f"Cookie: {self.cookie}"
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {HOST}:{self.ports[web]}",
            who,
            f"X-CSRFToken: {CSRF}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *([f"Content-Type: {media_type}"] if body else []),
        ]
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()

    async def _send(
        self, request: bytes, port: int, patience: float
    ) -> tuple[Kind, int, dict[str, Any]]:
        try:
            _, wire = await asyncio.get_running_loop().create_connection(Wire, HOST, port)
        except OSError:
            return "fail", 0, {"error": "no connection"}  # So nothing was asked.
        try:
            async with asyncio.timeout(patience):
                status, body = await wire.ask(request)
        except (OSError, TimeoutError) as error:
            return "unknown", 0, {"error": type(error).__name__}
        finally:
            wire.close()
        return kind_of(status), status, _read(body)

    # --- what can be asked for ------------------------------------------------------------------
    async def buy(self, mine: Ticket, web: int, quantity: int = 1) -> Entry:
        path = f"/api/v1/sales/{mine.sale_id}/purchases"
        about = (mine.sale_id, mine.purchase_id)
        data = {"quantity": quantity} if quantity > 1 else None
        return await self.call(
            *("buy", "POST", path, web),
            token=mine.token,
            data=data,
            about=about,
            quantity=quantity,
        )

    async def ask(self, mine: Ticket, purchase: str, web: int) -> Entry:
        path = f"/api/v1/sales/{mine.sale_id}/purchases/{purchase}?wait={LONG_POLL}"
        about = (mine.sale_id, purchase)
        # The purchase may be an older one of this buyer: then the session says whose it is.
        token = mine.token if purchase == mine.purchase_id else ""
        return await self.call("ask", "GET", path, web, token=token, wait=LONG_POLL, about=about)

    async def order(self, op: str, method: str, order: str, web: int, **options: Any) -> Entry:
        path = f"/api/v1/orders/{order}" + ("" if op == "look" else f"/{op}")
        return await self.call(op, method, path, web, about=(0, order), **options)

    async def press(self, order: str, url: str, button: str, web: int) -> Entry:
        """Press a button of the sandbox's cashier."""
        form = {"result": button}
        return await self.call("press", "POST", url, web, form=form, about=(0, order))


def _read(body: bytes) -> dict[str, Any]:
    """What is worth writing down of an answer."""
    try:
        told = json.loads(body or b"{}")
    except ValueError:
        return {}
    kept = ("purchase_id", "status", "code", "payment_url", "id", "amount", "refund")
    return {name: told[name] for name in kept if name in told}


class Buyer:
    """Buys again and again, until `over`."""

    def __init__(
        self, caller: Caller, sales: Sequence[Sale], dice: random.Random, over: asyncio.Event
    ) -> None:
        self.caller, self.sales, self.dice, self.over = caller, sales, dice, over

    async def live(self) -> None:
        await self._pause(0, 3)
        while not self.over.is_set():
            sale = self._sale()
            mine = ticket(sale.sale_id, self.caller.user)
            purchase = await self._purchase(mine, self.dice.randint(1, sale.per_buyer))
            if purchase and await self._outcome(mine, purchase) == "succeeded":
                await self._go_on(purchase)
            await self._pause(0.3, 2.5)

    async def _pause(self, low: float, high: float) -> None:
        """Shorter if everything is over."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), self.dice.uniform(low, high))

    @property
    def _web(self) -> int:
        return self.dice.randrange(len(self.caller.ports))

    def _sale(self) -> Sale:
        """Also one that is just not open yet, or not any more."""
        now, near = time.time(), 1.5
        current = [s for s in self.sales if s.starts_at - near < now < s.ends_at + near]
        return self.dice.choice(current)

    async def _purchase(self, mine: Ticket, quantity: int) -> str:
        """The id of what was admitted, or may have been; empty if nothing was."""
        doubtful = ""
        for attempt in range(TRIES):
            entry = await self.caller.buy(mine, self._web, quantity)
            if entry.kind == "ok":
                return str(entry.told["purchase_id"])
            if entry.kind == "unknown":
                doubtful = mine.purchase_id
            elif entry.status:
                break
            await self._pause(0.1, 0.4 * (attempt + 1))
        return doubtful

    async def _outcome(self, mine: Ticket, purchase: str) -> str:
        until, lost = time.time() + GIVE_UP, 0
        while time.time() < until:
            entry = await self.caller.ask(mine, purchase, self._web)
            if entry.kind == "ok" and entry.told["status"] in TERMINAL:
                return str(entry.told["status"])
            lost += entry.status == 404
            if self.over.is_set() or lost > 5:
                break  # What was promised is asked for once more at the end.
            await asyncio.sleep(self.dice.uniform(0.2, 0.6))
        return ""

    async def _go_on(self, order: str) -> None:
        match pick(PLANS, self.dice):
            case "pay":
                await self._pay(order)
            case "cancel":
                await self.caller.order("cancel", "POST", order, self._web)
            case "pay and cancel":
                cancel = self.caller.order("cancel", "POST", order, self._web)
                await asyncio.gather(self._pay(order), cancel)
            case _:
                return
        for _ in range(3):
            seen = await self.caller.order("look", "GET", order, self._web)
            if seen.told.get("status") not in (None, "unpaid"):
                break
            await self._pause(0.5, 2)

    async def _pay(self, order: str) -> None:
        data = {"provider": "sandbox"}
        for _ in range(3):
            begun = await self.caller.order("pay", "POST", order, self._web, data=data)
            if begun.kind == "ok":
                button = pick(BUTTONS, self.dice)
                await self.caller.press(order, begun.told["payment_url"], button, self._web)
                return
            if begun.status in (404, 409):
                return
            await self._pause(0.2, 1)


async def listen(caller: Caller, web: int, over: asyncio.Event) -> None:
    """A buyer's websocket, opened again whenever it ends; each frame is written down."""
    origin = f"http://{HOST}:{caller.ports[web]}"
    url = origin.replace("http", "ws", 1) + "/ws/v1/me"
    while not over.is_set():
        try:
            async with connect(
                url, origin=Origin(origin), additional_headers={"Cookie": caller.cookie}
            ) as socket:
                async for text in socket:
                    _note_frame(caller, json.loads(text), f"web{web + 1}")
        except (OSError, WebSocketException, TimeoutError):
            pass  # It will be tried again.
        await asyncio.sleep(0.5)


def _note_frame(caller: Caller, frame: Mapping[str, Any], web: str) -> None:
    data = frame.get("data") or {}
    purchase = str(data.get("purchase_id") or data.get("order_id") or "")
    now, told = time.time(), {"type": frame["type"], "code": data.get("code")}
    entry = Entry("frame", "ok", now, now, caller.user, 0, purchase, web, told=told)
    caller.history.add(entry)
