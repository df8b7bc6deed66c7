"""The lane: the two endpoints that everybody hits in the same second, as plain ASGI.

    POST /api/v1/sales/{sale}/purchases              try to buy
    GET  /api/v1/sales/{sale}/purchases/{purchase}   ask for the outcome, `?wait=10` to be told

Everything else goes to the application behind it. Checks, in this order: token, input, sold-out
mark, rate, gate. A refusal by the mark touches nothing outside this process.
"""

import asyncio
import logging
import re
import time
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache, partial
from urllib.parse import parse_qs
from uuid import UUID

import msgspec
from django.db import Error as DatabaseError
from django.utils import translation

from inventory.gate import Admission, Entry, GateError
from inventory.models import FlashSale
from inventory.redis_clients import RedisNotConfigured
from inventory.soldout import marks
from orders.models import Rejection
from orders.presentation import order_json, rfc3339
from seckill import tokens
from seckill.admission import Admissions, Run
from seckill.asgi_types import App, Headers, Receive, Scope, Send
from seckill.batching import BatchError
from seckill.bodies import read_quantity
from seckill.outcomes import Outcomes, Unavailable
from seckill.pacing import Pace
from seckill.replies import (
    JSON_HEADERS,
    Answer,
    Refused,
    Request,
    plain_problem,
    problem,
    send_answer,
)
from seckill.services import Outcome, throttle
from seckill.sessions import session_user

log = logging.getLogger(__name__)

PREFIX = "/api/v1/sales/"
LONGEST_WAIT = 30.0  # seconds of a long poll
DEADLINE = 2.7  # seconds for everything else
BUSY = (GateError, RedisNotConfigured, BatchError, DatabaseError, TimeoutError, Unavailable)

FIRST: Headers = JSON_HEADERS
REPLAYED: Headers = [*JSON_HEADERS, (b"idempotent-replayed", b"true")]


class Route(Enum):
    BUY = 1
    SHOW = 2


METHODS = {Route.BUY: ("POST",), Route.SHOW: ("GET", "HEAD")}

_SALE = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
_PURCHASE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)

_SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?", re.ASCII)

_PLAIN_REFUSALS = {
    Admission.SOLD_OUT: "sold_out",
    Admission.CLOSED: "closed",
    Admission.PAUSED: "paused",
    Admission.QUANTITY: "quantity_invalid",
    Admission.REBUY: "rebuy_not_allowed",
    Admission.NOT_PRIMED: "unavailable",
}


class Lane:
    """ASGI middleware. `run` executes a blocking function in a thread, with a deadline."""

    def __init__(self, app: App, run: Run) -> None:
        self._app = app
        self._run = run
        self._admissions = Admissions(run, deadline=DEADLINE)
        self._outcomes = Outcomes(run)
        self._pace = Pace()

    def let_go(self) -> None:
        """Give those who wait for an outcome the state as it is."""
        self._outcomes.close()

    async def close(self) -> None:
        """Give all who wait their answer; there are no further ones from the gate."""
        self.let_go()
        await self._admissions.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        route = _route(path) if scope["type"] == "http" and path.startswith(PREFIX) else None
        if route is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            if scope["method"] not in METHODS[route]:
                allow = ", ".join(METHODS[route]).encode()
                raise Refused("method_not_allowed", headers=[(b"allow", allow)])
            serve = self._buy if route is Route.BUY else self._show
            answer = await serve(request, scope, receive)
        except Refused as refused:
            answer = problem(request, refused)
        except FlashSale.DoesNotExist:
            answer = plain_problem(request, "not_found")
        except BUSY as error:
            log.warning("%s %s: %r", scope["method"], path, error)
            answer = problem(request, Refused("unavailable"))
        await send_answer(send, request, answer)

    # --- POST purchases ---------------------------------------------------------------------------

    async def _buy(self, request: Request, scope: Scope, receive: Receive) -> Answer:
        sale_id = _sale_id(scope["path"])
        token = _token(request, sale_id)
        quantity = 1 if request.length is None else await read_quantity(request, receive)
        if marks.refuses(sale_id):
            return plain_problem(request, "sold_out")
        if wait := throttle().hit(token.user_id):
            raise Refused("rate_limited", wait=wait)
        entry = Entry(token.user_id, token.purchase_text, quantity)
        admission, detail = await self._admissions.submit(sale_id, entry)
        if admission is Admission.RESERVED:
            return self._accepted(sale_id, entry.purchase_id)
        return self._repeated(sale_id, entry, admission, detail)

    def _repeated(self, sale_id: int, entry: Entry, admission: Admission, detail: str) -> Answer:
        """The answer to what the gate did not admit: the buyer's purchase, or a refusal."""
        if admission is Admission.QUEUED:
            return self._accepted(sale_id, detail, headers=REPLAYED)
        if admission is Admission.ORDERED:
            return self._ended(sale_id, detail)
        if admission is Admission.ENDED and detail == "o":
            return self._ended(sale_id, entry.purchase_id)
        raise (
            Refused(_code_of(detail))
            if admission is Admission.ENDED
            else _refusal(admission, detail)
        )

    def _accepted(self, sale_id: int, purchase_id: str, headers: Headers = FIRST) -> Answer:
        name = purchase_id.encode()
        location = (b"location", b"%b%d/purchases/%b" % (PREFIX.encode(), sale_id, name))
        text = b'{"purchase_id":"%b","status":"queued","poll_after_ms":%d}'
        return Answer(202, [*headers, location], text % (name, self._pace.asked()))

    def _ended(self, sale_id: int, purchase_id: str) -> Answer:
        name = purchase_id.encode()
        location = (b"location", b"%b%d/purchases/%b" % (PREFIX.encode(), sale_id, name))
        text = b'{"purchase_id":"%b","status":"succeeded","poll_after_ms":0}'
        return Answer(200, [*REPLAYED, location], text % name)

    # --- GET purchase -----------------------------------------------------------------------------

    async def _show(self, request: Request, scope: Scope, receive: Receive) -> Answer:
        sale_id = _sale_id(scope["path"])
        purchase_id = _purchase_id(scope["path"])
        until = time.monotonic() + _wait(scope["query_string"])
        async with asyncio.timeout(DEADLINE):
            user_id, own = await self._asker(request, sale_id)
            mine = own == purchase_id
            look = partial(self._look, sale_id, purchase_id, user_id=user_id, owned=mine)
            outcome = await look()
        if outcome.status == "queued" and until > time.monotonic():
            async with self._outcomes.waiter(sale_id, purchase_id, receive) as news:
                while outcome.status == "queued" and await news(until - time.monotonic()):
                    async with asyncio.timeout(DEADLINE):
                        outcome = await look()
        return Answer(200, JSON_HEADERS, self._outcome_body(request, purchase_id, outcome))

    async def _asker(self, request: Request, sale_id: int) -> tuple[int, UUID | None]:
        """The buyer, and the purchase that the token itself names."""
        if request.token is not None:
            token = _token(request, sale_id)
            return token.user_id, token.purchase_id
        user_id = await self._run(session_user, request.cookie) if request.cookie else None
        if user_id is None:
            raise Refused("login_required", headers=[(b"www-authenticate", b"Bearer")])
        return user_id, None

    async def _look(self, sale_id: int, purchase_id: UUID, *, user_id: int, owned: bool) -> Outcome:
        outcome = await self._outcomes.get(sale_id, purchase_id, user_id=user_id, owned=owned)
        if outcome is None:
            raise Refused("not_found")
        return outcome

    def _outcome_body(self, request: Request, purchase_id: UUID, outcome: Outcome) -> bytes:
        queued = outcome.status == "queued"
        return msgspec.json.encode(
            {
                "purchase_id": str(purchase_id),
                "status": outcome.status,
                "code": outcome.code or None,
                "message": message_of(outcome, request.language),
                "order": order_json(outcome.order) if outcome.order else None,
                "poll_after_ms": self._pace.asked() if queued else 0,
            }
        )


def _route(path: str) -> Route | None:
    _, _, rest = path[len(PREFIX) :].partition("/")
    if rest == "purchases":
        return Route.BUY
    return Route.SHOW if rest.startswith("purchases/") and rest.count("/") == 1 else None


@lru_cache(maxsize=1024)
def _sale_id(path: str) -> int:
    text = path[len(PREFIX) :].split("/", 1)[0]
    if not _SALE.fullmatch(text):
        raise Refused("not_found")
    return int(text)


def _purchase_id(path: str) -> UUID:
    text = path.rsplit("/", 1)[1]
    if not _PURCHASE.fullmatch(text):
        raise Refused("not_found")
    return UUID(text)


def _token(request: Request, sale_id: int) -> tokens.Token:
    if request.token is None:
        raise Refused("token_required", headers=[(b"www-authenticate", b"Bearer")])
    token = tokens.verify(request.token)
    if token is None or token.sale_id != sale_id:
        raise Refused("token_invalid")
    return token


def _wait(query: bytes) -> float:
    """Seconds of a long poll; what isn't a number counts as none."""
    if not query:
        return 0.0
    try:
        text = parse_qs(query.decode("latin-1"), max_num_fields=20).get("wait", ["0"])[-1]
    except ValueError:  # Too many fields.
        return 0.0
    return min(float(text), LONGEST_WAIT) if _SECONDS.fullmatch(text) else 0.0


def _refusal(admission: Admission, detail: str) -> Refused:
    if admission is Admission.THROTTLED:
        return Refused("rate_limited", wait=int(detail) / 1000)
    if admission is Admission.NOT_OPEN:
        starts_ms, now_ms = map(int, detail.split())
        starts_at = datetime.fromtimestamp(starts_ms / 1000, tz=UTC)
        wait = max(0, starts_ms - now_ms) / 1000
        return Refused("not_open", wait=wait, starts_at=rfc3339(starts_at))
    return Refused(_PLAIN_REFUSALS[admission])


def _code_of(result: str) -> str:
    """The problem of a purchase that ended in a rejection; `result` is the gate's `x|code`."""
    code = result.partition("|")[2]
    return code if code in Rejection.values else Rejection.FAILED.value


def message_of(outcome: Outcome, language: str) -> str | None:
    if outcome.status != "failed":
        return None
    with translation.override(language):
        return str(Rejection(_code_of(f"x|{outcome.code}")).label)
