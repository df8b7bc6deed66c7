"""Looks at everything that the shop depends on."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection

from seckill.management import checks
from seckill.management.cli import BaseCommand, Failed

PATIENCE = 3.0  # seconds for all checks, which run side by side


class Check(NamedTuple):
    """`hint`: what to do if it fails in a way that it has no words for itself."""

    name: str
    look: Callable[[], str]
    hint: str
    required: bool = True


class Finding(NamedTuple):
    name: str
    ok: bool
    required: bool
    detail: str
    hint: str = ""

    def line(self) -> str:
        state = "ok" if self.ok else ("FAILED" if self.required else "warning")
        hint = f" — {self.hint}" if self.hint else ""
        return f"{state:<8} {self.name:<14} {self.detail}{hint}"


DATABASE = "is DATABASE_URL right, and the server up?"
REDIS = "is REDIS_URL right, and the server up? Without REDIS_URL: start `make run`"
BROKER = "is CELERY_BROKER_URL right, and the server up?"

CHECKS = (
    Check("python", checks.python, "Python 3.11 or newer is needed"),
    Check("packages", checks.packages, "requirements.txt can't be read", required=False),
    Check("environment", checks.environment, "see .env.example"),
    Check("database", checks.database, DATABASE),
    Check("migrations", checks.migrations, DATABASE),
    Check("redis", checks.redis, REDIS),
    Check("redis-aof", checks.redis_aof, REDIS, required=False),
    Check("redis-script", checks.redis_script, REDIS),
    Check("clocks", checks.clocks, REDIS),
    Check("broker", checks.broker, BROKER),
    Check("channel-layer", checks.channel_layer, REDIS),
    Check("listeners", checks.listeners, REDIS, required=False),
    Check("workers", checks.workers, BROKER, required=False),
    Check("files", checks.files, "ulimit -n", required=False),
)
ZOOKEEPER = Check("zookeeper", checks.zookeeper, "is ZOOKEEPER_HOSTS right, and the server up?")


class Command(BaseCommand):
    help = "Look at everything that the shop depends on, with a hint for what fails."
    examples = ("", "--json")

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = settings.SOLD_OUT_CHANNEL == "zookeeper"
        findings = examine([*CHECKS, ZOOKEEPER] if chosen else CHECKS)
        ok = all(finding.ok or not finding.required for finding in findings)
        data = {"ok": ok, "checks": [finding._asdict() for finding in findings]}
        self.show(data, [finding.line() for finding in findings], as_json=options["json"])
        if not ok:
            raise Failed("The shop can't work like this.")


def examine(wanted: Sequence[Check]) -> list[Finding]:
    """Run all checks at once; one that doesn't come back in time counts as failed."""
    found: dict[str, Finding] = {}
    deadline = time.monotonic() + PATIENCE
    threads = [threading.Thread(target=_look, args=(check, found), daemon=True) for check in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [found.get(check.name) or _too_late(check) for check in wanted]


def _look(check: Check, found: dict[str, Finding]) -> None:
    try:
        found[check.name] = Finding(check.name, True, check.required, check.look())
    except checks.Trouble as error:
        found[check.name] = Finding(check.name, False, check.required, str(error), error.hint)
    except Exception as error:  # noqa: BLE001 - whatever a driver raises is what the doctor reports
        what = " ".join(f"{type(error).__name__}: {error}".split())
        found[check.name] = Finding(check.name, False, check.required, what, check.hint)
    finally:
        connection.close()


def _too_late(check: Check) -> Finding:
    detail = f"no answer within {PATIENCE:g} s"
    return Finding(check.name, False, check.required, detail, check.hint)
