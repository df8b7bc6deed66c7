"""Processes whose clock is wrong, on a machine whose clock is right."""

import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support import binaries
from tests.support.processes import this_run

SOURCE = Path(__file__).with_name("wrong_clock.c")


@functools.cache
def _library() -> Path:
    compiler = binaries.require("C compiler", "cc", "gcc", "clang")
    library = this_run().folder("clock") / "wrong_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
    return library


def wrong_by(seconds: int, arguments: Sequence[str]) -> list[str]:
    """The same command with a wrong clock, if need be another one. Raises `binaries.Missing`."""
    settings = [f"LD_PRELOAD={_library()}", f"WRONG_CLOCK={seconds}"]
    had_one = len(arguments) > 2 and arguments[2].startswith("WRONG_CLOCK=")
    return ["/usr/bin/env", *settings, *(arguments[3:] if had_one else arguments)]
