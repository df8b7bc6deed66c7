"""`make chaos`: buyers and faults at the same time, and whether any invariant broke.

SECONDS, SEED and CHANNEL (broadcast or zookeeper) come from the environment. The seed decides the
faults and what buyers do; the same one makes the same plan. The history of all calls is kept in
var/chaos-SEED.jsonl. Exit code 1 if an invariant is broken.
"""

import os
import random
import sys
from typing import cast, get_args

import django
from django.conf import settings

from tests.chaos.run import Result, run
from tests.chaos.site import Channel, opened
from tests.support import environment
from tests.support.postgres import Postgres
from tests.support.rabbitmq import RabbitMQ

VAR = environment.ROOT / "var"


def main() -> int:
    if len(sys.argv) > 1:
        sys.stdout.write(__doc__ or "")
        return 2
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10_000))
    seconds = float(os.environ.get("SECONDS") or 120)
    channel = _channel(os.environ.get("CHANNEL") or ("broadcast", "zookeeper")[seed % 2])
    sys.stdout.write(f"SEED={seed} SECONDS={seconds:g} CHANNEL={channel}\n")
    sys.stdout.flush()
    settings.configure(SECRET_KEY=environment.SECRETS["SECRET_KEY"], SECRET_KEY_FALLBACKS=[])
    django.setup()
    result = _run(seed, seconds, channel)
    sys.stdout.write(result.table() + "\n")
    return 1 if result.broken else 0


def _channel(name: str) -> Channel:
    for channel in get_args(Channel):
        if name == channel:
            return cast(Channel, channel)
    raise SystemExit(f"CHANNEL: broadcast or zookeeper, not {name!r}")


def _run(seed: int, seconds: float, channel: Channel) -> Result:
    VAR.mkdir(exist_ok=True)
    file = VAR / f"chaos-{seed}.jsonl"
    with (
        Postgres() as postgres,
        RabbitMQ() as rabbitmq,
        opened(channel, postgres, rabbitmq) as site,
    ):
        result = run(site, seed=seed, seconds=seconds, channel=channel, file=file)
        if result.broken:
            (VAR / f"chaos-{seed}.log").write_text(site.stack.logs(2_000_000))
    return result


if __name__ == "__main__":
    sys.exit(main())
