"""Ends what a test process started and left behind, however that process ended.

`python -I -S reaper.py RUN_DIRECTORY`: waits until its standard input closes, which happens at the
latest when the test process dies, then stops each process group noted in `RUN_DIRECTORY/pids`
(file name: process id, content: the signal that ends it fast), and removes the directory.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

PATIENCE = 5.0  # seconds between the polite signal and SIGKILL


def main(directory: Path) -> None:
    # Ctrl-C reaches the whole foreground group; this process must outlive it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.read()
    groups = noted(directory)
    for group, number in groups.items():
        send(group, signal.SIGCONT)
        send(group, number)
    deadline = time.monotonic() + PATIENCE
    while any(send(group, 0) for group in groups) and time.monotonic() < deadline:
        time.sleep(0.05)
    for group in groups:
        send(group, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


def noted(directory: Path) -> dict[int, int]:
    return {int(file.name): int(file.read_text()) for file in (directory / "pids").iterdir()}


def send(group: int, number: int) -> bool:
    """Whether there was still somebody to send it to."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
