"""Tests `make run` as a newcomer would: clone, run, buy one item over HTTP, Ctrl-C, nothing left.

Ends with exit code 1 if a step fails or takes too long; shows then what the shop said.
"""

import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READY_WITHIN = 180.0  # seconds, the installation included
READY_AGAIN_WITHIN = 60.0
STOPPED_WITHIN = 60.0
# The clone must find nothing of the environment that it is tested from, but the way to packages.
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TERM", "PYENV_ROOT", "PYENV_VERSION")
KEPT_ENDINGS = ("_PROXY", "_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


class Failed(Exception):
    """Raised with one line that says which step failed."""


class Shop:
    """A `make run` in a session of its own, as in a terminal window."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self.lines: list[str] = []
        self._news: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            ["make", "run", f"PORT={port}"],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def wait_ready(self, timeout: float) -> float:
        """Seconds until it said that it is ready."""
        started = time.monotonic()
        wanted = f"ready http://127.0.0.1:{self.port}"
        while (left := started + timeout - time.monotonic()) > 0:
            try:
                line = self._news.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                raise Failed("make run ended before it was ready")
            if wanted in line:
                return time.monotonic() - started
        raise Failed(f"make run wasn't ready within {timeout:g} s")

    def interrupt(self) -> float:
        """Ctrl-C: the terminal sends SIGINT to the whole foreground group. Seconds to the end."""
        started = time.monotonic()
        os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(timeout=STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            raise Failed(f"make run didn't end within {STOPPED_WITHIN:g} s after Ctrl-C") from None
        return time.monotonic() - started

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._news.put(line)
        self._news.put(None)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="seckill-clone-") as name:
        folder = Path(name) / "seckill"
        command = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)]
        subprocess.run(command, check=True)
        results = [step(folder, READY_WITHIN), step(folder, READY_AGAIN_WITHIN)]
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if all(results) else 1


def step(folder: Path, ready_within: float) -> bool:
    """One life of the shop; the second one must find everything made already."""
    shop = Shop(folder, free_port())
    try:
        ready = shop.wait_ready(ready_within)
        buy(folder, shop.port)
        stopped = shop.interrupt()
        check_nothing_left(folder)
    except Failed as failure:
        print(f"failed: {failure}\n{''.join(shop.lines)}", flush=True)
        shop.kill()
        end_leftovers(folder)
        return False
    print(f"ready after {ready:.1f} s, bought one item, stopped after {stopped:.1f} s", flush=True)
    return True


def buy(folder: Path, port: int) -> None:
    command = [sys.executable, "scripts/smoke.py", f"http://127.0.0.1:{port}"]
    result = subprocess.run(command, cwd=folder, env=environment(), check=False)
    if result.returncode:
        raise Failed("couldn't buy an item")


def check_nothing_left(folder: Path) -> None:
    deadline = time.monotonic() + 5
    while left := processes_of(folder):
        if time.monotonic() > deadline:
            raise Failed("left behind: " + "; ".join(left.values()))
        time.sleep(0.1)
    if (folder / "var" / "up.json").exists():
        raise Failed("left behind: var/up.json")


def end_leftovers(folder: Path) -> None:
    for pid in processes_of(folder):
        os.kill(pid, signal.SIGKILL)


def processes_of(folder: Path) -> dict[int, str]:
    """Processes that were started from the clone or work in it (id → command line)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = str((entry / "cwd").readlink())
        except OSError:
            continue  # It has ended meanwhile, or is a stranger's.
        if str(folder) in command or place.startswith(str(folder)):
            found[int(entry.name)] = command
    return found


def environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or name.startswith("PIP_") or name.upper().endswith(KEPT_ENDINGS)
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
