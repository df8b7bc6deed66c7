"""How often somebody may try to sign in, over all processes, without locking anybody else out.

A try counts for a name from one network, and for that network; so a stranger who tries a name from
elsewhere doesn't shut its owner out. A try that succeeds is given back. While Redis is away each
process counts alone.
"""

import hashlib
import logging
import math
from functools import cache
from typing import Any, NamedTuple

from inventory import keys
from inventory.gate import GateError
from inventory.redis_clients import RedisNotConfigured, sync_client
from seckill.throttle import Throttle

log = logging.getLogger(__name__)


class Rate(NamedTuple):
    limit: int
    window: float  # seconds


NAME_RATE = Rate(5, 60)  # tries of one name from one network
NETWORK_RATE = Rate(60, 60)  # tries of any names from one network
REGISTER_RATE = Rate(60, 60)  # new accounts from one network

# GCRA, as in seckill/throttle.py. A reply that is lost makes a try count twice, which is harmless.
# KEYS: limiters, ARGV: limit and window in ms of each. Returns 0, or ms to wait: nothing counted.
_HIT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local full_at, wait = {}, 0
for i, key in ipairs(KEYS) do
  local limit, window = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  full_at[i] = math.max(now, tonumber(redis.call('GET', key) or '0')) + window / limit
  wait = math.max(wait, full_at[i] - now - window)
end
if wait > 0 then return math.ceil(wait) end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, string.format('%.0f', full_at[i]), 'PX', math.ceil(full_at[i] - now))
end
return 0
"""
# KEYS: a name's limiter, its network's limiter. ARGV: ms that one try takes in the latter.
_FORGIVE = """
redis.call('DEL', KEYS[1])
local full_at = tonumber(redis.call('GET', KEYS[2]) or '0') - tonumber(ARGV[1])
local left = redis.call('PTTL', KEYS[2]) - tonumber(ARGV[1])
if left <= 0 then return redis.call('DEL', KEYS[2]) end
redis.call('SET', KEYS[2], string.format('%.0f', full_at), 'PX', math.ceil(left))
return 1
"""


def hit(network: str, username: str) -> int:
    """Count one try to sign in: 0 if it is allowed, else the whole seconds to wait."""
    limits = {_name(network, username): NAME_RATE, keys.signin(network, "all"): NETWORK_RATE}
    return _hit(limits)


def hit_register(network: str) -> int:
    """The same for a new account."""
    return _hit({keys.signin(network, "register"): REGISTER_RATE})


def forgive(network: str, username: str) -> None:
    """The try succeeded."""
    names = [_name(network, username), keys.signin(network, "all")]
    try:
        _run(_FORGIVE, names, [NETWORK_RATE.window * 1000 / NETWORK_RATE.limit])
    except (GateError, RedisNotConfigured) as error:
        log.warning("a sign-in was not given back: %s", error)


def _hit(limits: dict[str, Rate]) -> int:
    args = [number for rate in limits.values() for number in (rate.limit, rate.window * 1000)]
    try:
        return math.ceil(int(_run(_HIT, list(limits), args)) / 1000)
    except (GateError, RedisNotConfigured) as error:
        log.warning("sign-ins are counted by each process alone: %s", error)
        return math.ceil(max(_local(rate).hit(name) for name, rate in limits.items()))


def _run(script: str, names: list[str], args: list[Any]) -> Any:
    return sync_client().register_script(script)(keys=names, args=args)


def _name(network: str, username: str) -> str:
    """Names are of any length, and may be secrets typed into the wrong field."""
    name = hashlib.blake2b(username.strip().casefold().encode(), digest_size=16).hexdigest()
    return keys.signin(network, name)


@cache
def _local(rate: Rate) -> Throttle:
    return Throttle(rate.limit, rate.window)
