"""Makes `.venv` and installs a lock file into it, only if that changed: `bootstrap.py run|dev`.

Needs nothing but Python 3.11. The development lock holds all of the run-time lock, so one `.venv`
serves both, and neither undoes the other.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCKS = {"run": ROOT / "requirements.txt", "dev": ROOT / "requirements" / "dev.txt"}


def main(kind: str) -> None:
    if sys.version_info[:2] != (3, 11):
        sys.exit(f"Python 3.11 is needed, this is {sys.version.split()[0]} ({sys.executable})")
    if is_current(kind):
        return
    with one_at_a_time():
        if not is_current(kind):
            make_venv()
            install(kind)


def is_current(kind: str) -> bool:
    # What the development lock installs includes what the run-time lock needs.
    wanted = digest(kind)
    return any(stamp(name).exists() and wanted in stamp(name).read_text() for name in ("dev", kind))


def digest(kind: str) -> str:
    return hashlib.sha256(LOCKS[kind].read_bytes()).hexdigest()


def stamp(kind: str) -> Path:
    return VENV / f"installed-{kind}"


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """`make run` and `make test` may start at the same moment in one checkout."""
    (ROOT / "var").mkdir(exist_ok=True)
    with (ROOT / "var" / "venv.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_venv() -> None:
    python = VENV / "bin" / "python"
    works = [str(python), "-c", "import sys, pip; sys.exit(sys.version_info[:2] != (3, 11))"]
    if python.exists() and subprocess.run(works, capture_output=True, check=False).returncode == 0:
        return
    base: str = getattr(sys, "_base_executable", sys.executable)
    print("making .venv", file=sys.stderr, flush=True)
    if subprocess.run([base, "-m", "venv", "--clear", str(VENV)], check=False).returncode:
        sys.exit("can't make .venv; on Debian the package python3.11-venv is needed for that")


def install(kind: str) -> None:
    print(f"installing {LOCKS[kind].relative_to(ROOT)}", file=sys.stderr, flush=True)
    stamp(kind).unlink(missing_ok=True)
    command = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--require-hashes"]
    # Wheels only: a machine without a compiler gets a clear refusal instead of a failed build.
    # The one package that has no wheel (for development) is plain Python.
    command += ["--only-binary", ":all:", "--no-binary", "python-alipay-sdk"]
    command += ["-r", str(LOCKS[kind])]
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
    if status := subprocess.run(command, env=environment, check=False).returncode:
        sys.exit(status)
    covered = ("run", "dev") if kind == "dev" else ("run",)
    stamp(kind).write_text("".join(digest(name) + "\n" for name in covered))


if __name__ == "__main__":
    main(sys.argv[1])
