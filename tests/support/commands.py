"""Management commands without the second that each would take to start.

A process with everything loaded forks for each command (command_server.py).
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.support.environment import ROOT


class Done(NamedTuple):
    """What a command left; `code` is negative if a signal ended it."""

    code: int
    output: str
    errors: str


class Commands:
    """Runs management commands in one environment, until `close`."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        settings = {"DJANGO_SETTINGS_MODULE": "config.settings"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.command_server"],
            env=settings | dict(variables),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, arguments: Sequence[str]) -> Done | None:
        """None if the process couldn't even start: its settings make no sense."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(list(arguments)) + "\n")
            stdin.flush()
            answer = stdout.readline()
        except BrokenPipeError:
            return None
        return Done(*json.loads(answer)) if answer else None

    def close(self) -> None:
        """Its input ends, and so does it."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=60)
