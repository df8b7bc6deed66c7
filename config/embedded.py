"""State of the embedded profile, kept under `var/`: its secrets, and what a running `up` serves.

`manage.py up` writes `var/up.json`; every other process of the same checkout reads it, so that
commands find the embedded Redis of a running `up` without being told.
"""

import fcntl
import hashlib
import json
import os
import secrets
import subprocess
from pathlib import Path
from typing import IO, NotRequired, TypedDict

BASE_DIR = Path(__file__).resolve().parent.parent


class UpState(TypedDict):
    pid: int
    redis_url: str
    base_url: str
    birth: NotRequired[str]  # of the process `pid`, so that a reused number isn't taken for it
    database: NotRequired[str]  # fingerprint of the DATABASE_URL that belongs to this Redis


def var_dir() -> Path:
    return Path(os.environ.get("VAR_DIR") or BASE_DIR / "var").resolve()


def state_file() -> Path:
    return var_dir() / "up.json"


def running() -> UpState | None:
    """What a live `up` of this checkout serves; None if none runs (a stale file counts as none).

    An `up` with another DATABASE_URL counts as none too: its gates belong to other sales, and a
    `reconcile` that took one for the other would do harm.
    """
    state = read_state()
    if state is None or not state["redis_url"]:
        return None
    return state if state.get("database", database_mark()) == database_mark() else None


def read_state() -> UpState | None:
    """What the `up` of this checkout has written, if it is still alive."""
    try:
        state: UpState = json.loads(state_file().read_text())
        alive = birth(state["pid"])
        same = bool(alive) and state.get("birth", alive) == alive
        return state if same and state["redis_url"] is not None else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_state(state: UpState) -> None:
    write_private(state_file(), json.dumps(state))


def database_mark() -> str:
    return hashlib.sha256(os.environ.get("DATABASE_URL", "").strip().encode()).hexdigest()[:16]


def birth(pid: int) -> str:
    """When a process started, in the words of the system; empty if there is no such process."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (OSError, OverflowError):
        return ""
    try:
        # The name in brackets may hold anything, so the fields are counted from behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _birth_by_ps(pid)
    return "" if fields[0] == "Z" else fields[19]


def _birth_by_ps(pid: int) -> str:
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def take_lock() -> IO[str] | None:
    """The right to be this checkout's `up`; None if another has it. Ends with the process."""
    var_dir().mkdir(parents=True, exist_ok=True)
    file = (var_dir() / "up.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def write_private(path: Path, content: str) -> None:
    """Write a file that only its owner may read; a reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
    temporary.replace(path)


def secret(name: str) -> str:
    """A secret that is made once and kept in `var/`; two processes that race agree on one."""
    path = var_dir() / name
    try:
        return path.read_text()
    except FileNotFoundError:
        pass
    candidate = var_dir() / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
    write_private(candidate, secrets.token_urlsafe(48))
    try:
        os.link(candidate, path)  # Fails if another process was first.
    except FileExistsError:
        pass
    finally:
        candidate.unlink()
    return path.read_text()
