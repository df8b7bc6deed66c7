"""Every Redis key of the project, in one place. {braces} keep one sale on one cluster slot."""

from django.conf import settings

# The order in which every script of inventory/lua gets a sale's keys.
NAMES = (
    "info",  # hash: starts, ends (ms), per_buyer, paused, rebuy, revision
    "stock",  # units that may still be admitted
    "buyers",  # hash: user → "purchase|state"; q queued, o ordered, p paid late, x not again
    "pending",  # zset, the journal: purchase → ms of its last queueing
    "claims",  # hash: purchase → "user|quantity|call|ms", what a journal entry is about
    "results",  # hash: purchase → "o" or "x|code"
    "epoch",  # grows whenever stock reaches 0 or leaves 0
    "version",  # grows whenever anything changes
    "rate",  # hash: user → "theoretical arrival time|call" of the rate limiter
    "applied",  # hash: stock adjustment → units, those that the gate knows
    "retries",  # hash: purchase → how often it was queued again
)


def sale(sale_id: int) -> list[str]:
    """All keys of one sale, in the order of NAMES."""
    prefix = f"{settings.REDIS_PREFIX}sale:{{{sale_id}}}:"
    return [prefix + name for name in NAMES]


def of_sale(sale_id: int, name: str) -> str:
    return f"{settings.REDIS_PREFIX}sale:{{{sale_id}}}:{name}"


def staging(sale_id: int, nonce: str) -> str:
    """Where a prime collects the buyers before it loads the gate in one step."""
    return of_sale(sale_id, f"staging:{nonce}")


def probe() -> str:
    """What a readiness check writes."""
    return f"{settings.REDIS_PREFIX}probe"


def swept() -> str:
    """There since the last sweep; how long tells its time to live."""
    return f"{settings.REDIS_PREFIX}swept"


def captcha(name: str) -> str:
    """A solved challenge that was used."""
    return f"{settings.REDIS_PREFIX}captcha:{name}"


def sockets(user_id: int) -> str:
    """The open websockets of a buyer, by the time of their opening."""
    return f"{settings.REDIS_PREFIX}sockets:{user_id}"


def report(process: str) -> str:
    """What a process last told of its sold-out marks."""
    return f"{settings.REDIS_PREFIX}soldout:report:{process}"


def reports() -> str:
    """The processes that told something, by time."""
    return f"{settings.REDIS_PREFIX}soldout:reports"


def seen(user_id: int) -> str:
    """The results that a buyer has looked at, by the time of that."""
    return f"{settings.REDIS_PREFIX}seen:{user_id}"


def signin(network: str, name: str) -> str:
    """How often somebody tried to sign in. One network's are on one cluster slot."""
    return f"{settings.REDIS_PREFIX}signin:{{{network}}}:{name}"


def lock(name: str) -> str:
    return f"{settings.REDIS_PREFIX}lock:{name}"
