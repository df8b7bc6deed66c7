"""Management commands without the second that each would take to start.

A process with everything loaded forks for each command: it begins as `manage.py` does once the
imports are done, without anything that an earlier command has left behind.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.support.environment import ROOT

PROGRAM = """
import atexit, json, os, sys, tempfile, traceback
import django
django.setup()
from django.core.management import execute_from_command_line, get_commands, load_command_class
for name, app in get_commands().items():
    if app.split(".")[0] in ("config", "inventory", "orders", "seckill"):
        load_command_class(app, name)

def run(arguments, output, errors):
    for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, errors)):
        os.dup2(file if isinstance(file, int) else file.fileno(), number)
    code = 0
    try:
        execute_from_command_line(["manage.py", *arguments])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if not child:
            run(json.loads(line), output, errors)
        status = os.waitpid(child, 0)[1]
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        print(json.dumps([os.waitstatus_to_exitcode(status), *texts]), flush=True)
"""


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
            [sys.executable, "-c", PROGRAM],
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
