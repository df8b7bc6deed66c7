"""Runs management commands: each line of its input is one, as a JSON list of arguments.

It has everything loaded, and forks for each command: that begins as `manage.py` does once the
imports are done, without anything that an earlier command has left behind. Answers with a line for
each: [exit code, output, errors] as JSON. `Commands` starts it and talks to it.
"""

import atexit
import json
import os
import sys
import tempfile
import traceback
from typing import IO, Never

import django
from django.core.management import execute_from_command_line, get_commands, load_command_class

OURS = ("config", "inventory", "orders", "seckill")


def load() -> None:
    django.setup()
    for name, app in get_commands().items():
        if app.split(".")[0] in OURS:
            load_command_class(app, name)


def run(arguments: list[str], output: IO[bytes], errors: IO[bytes]) -> Never:
    """In the child: the command itself, to its end."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    code = 0
    try:
        execute_from_command_line(["manage.py", *arguments])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is, the interpreter would tell it so
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve() -> None:
    for line in sys.stdin:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = os.fork()
            if not child:
                run(json.loads(line), output, errors)
            _, status = os.waitpid(child, 0)
            texts = [_text(file) for file in (output, errors)]
        answer = [os.waitstatus_to_exitcode(status), *texts]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


if __name__ == "__main__":
    load()
    serve()
