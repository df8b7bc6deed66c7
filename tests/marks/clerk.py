"""A process that does what commands do, again and again, so that none has to be started anew."""

import json
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.support.environment import ROOT

LOOP = """
import contextlib, io, json, sys, traceback
import django
django.setup()
import time
from datetime import timedelta
from django.db import close_old_connections
from django.utils import timezone
from inventory import channel, services as stock
from inventory.news import News
from orders import repair, services as orders
from orders.models import Order
from orders.priming import prime
for line in sys.stdin:
    output, error = io.StringIO(), ""
    try:
        close_old_connections()
        with contextlib.redirect_stdout(output):
            exec(json.loads(line), dict(globals()))
    except Exception:
        error = traceback.format_exc()
    print(json.dumps([output.getvalue(), error]), flush=True)
"""


class Clerk:
    """`do` runs code with the services at hand, and returns what it printed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", LOOP],
            env={**environment, "DJANGO_SETTINGS_MODULE": "config.settings", "LOG_LEVEL": "ERROR"},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, *lines: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps("\n".join(lines)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"ended with {self._process.wait(timeout=5)}: see its stderr"
        output, error = json.loads(line)
        assert not error, error
        return str(output)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=30)  # Closes its input, which ends it.
