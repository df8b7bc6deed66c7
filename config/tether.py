"""Runs a command that is asked to end when the process that started it dies, even by kill -9.

`python -I -S tether.py PARENT_PID PROGRAM ARGUMENT…` becomes that program. A program of its own,
not a preexec_fn: the supervisor has threads, and Python code between fork and exec may deadlock.
Where the system has no such signal (macOS) the next `manage.py up` cleans up instead.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have died before the line above; then nobody would ever tell us.
    if os.getppid() != parent:
        sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
