"""An in-process rate limit per key, by the generic cell rate algorithm (GCRA).

For each key it keeps one number: the time at which the key has its full quota again. A hit moves
that time by window / limit; a hit that would move it further ahead than one window is refused and
changes nothing. So a key may hit `limit` times at once and `limit` times per window in the long
run, and a refused caller who waits as told is let in.

Memory. Keys live in two generations of at most max_keys / 2 each; each hit writes its key into the
young one. When the young one is a window old, the old one is dropped: whatever is only there has
its full quota again, so nothing is lost. When the young one is full before that, the old one is
dropped too, and a key that did not hit once while max_keys / 2 other keys did starts afresh. This
is all that a flood of keys can do: it gives quota back early to keys that were idle meanwhile, at
the price of max_keys / 2 hits from as many identities; it never takes quota from anyone, and a key
that keeps hitting, refused or not, is never forgotten.
"""

import math
import time
from collections.abc import Callable, Hashable

# Far above what a float of seconds loses, far below what a person can notice. Without it a caller
# who waits exactly as long as he was told might be told to wait a nanosecond more.
TOLERANCE = 1e-6


class Throttle:
    """At most `limit` hits of a key per `window` seconds.

    For one event loop. If threads share it a race may let a hit too many through, no worse.
    """

    def __init__(
        self,
        limit: int,
        window: float,
        *,
        max_keys: int = 200_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if limit < 1 or window <= 0 or max_keys < 2:
            raise ValueError("a Throttle needs limit >= 1, window > 0, max_keys >= 2")
        self._limit = limit
        self._window = window
        self._step = window / limit
        # A key may hit while its time of full quota is no further ahead than this.
        self._slack = window - self._step + TOLERANCE
        self._generation_size = max_keys // 2
        self._clock = clock
        self._young: dict[Hashable, float] = {}
        self._old: dict[Hashable, float] = {}
        self._turn_at = clock() + window

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def hit(self, key: Hashable) -> float:
        """Count one try of `key`: 0.0 if it is allowed, else the seconds to wait (not counted)."""
        now = self._clock()
        if now >= self._turn_at or len(self._young) >= self._generation_size:
            self._turn(now)
        full_at = self._full_at(key)
        ahead = full_at - now
        if ahead > self._slack:
            self._young[key] = full_at
            return ahead - self._slack + TOLERANCE
        self._young[key] = (full_at if ahead > 0 else now) + self._step
        return 0.0

    def _full_at(self, key: Hashable) -> float:
        full_at = self._young.get(key)
        if full_at is None:
            full_at = self._old.get(key, 0.0)
        return full_at

    def _turn(self, now: float) -> None:
        # After two windows of silence the young generation is as stale as the old one.
        stale = now >= self._turn_at + self._window
        self._old, self._young = {} if stale else self._young, {}
        self._turn_at = now + self._window

    def headers(self, name: str, key: Hashable) -> dict[str, str]:
        """The fields of draft-ietf-httpapi-ratelimit-headers for what `key` has left now.

        `name` is that of the policy: visible ASCII without quotes or backslashes.
        """
        ahead = max(0.0, self._full_at(key) - self._clock())
        left = math.floor((self._window - ahead + TOLERANCE) / self._step)
        # The draft takes whole seconds only.
        return {
            "RateLimit-Policy": f'"{name}";q={self._limit};w={math.ceil(self._window)}',
            "RateLimit": f'"{name}";r={min(left, self._limit)};t={math.ceil(ahead - TOLERANCE)}',
        }
