"""State of the embedded profile, kept under `var/`: the secrets it generates and what a running `up` serves.

`manage.py up` writes `var/up.json`; every other process of the same checkout reads it, so that
commands find the embedded Redis of a running `up` without being told.
"""

import json
import os
import secrets
from pathlib import Path
from typing import TypedDict

BASE_DIR = Path(__file__).resolve().parent.parent


class UpState(TypedDict):
    pid: int
    redis_url: str
    base_url: str


def var_dir() -> Path:
    return Path(os.environ.get("VAR_DIR") or BASE_DIR / "var").resolve()


def state_file() -> Path:
    return var_dir() / "up.json"


def running() -> UpState | None:
    """What a live `up` of this checkout serves; None if none runs (a stale file counts as none)."""
    try:
        state: UpState = json.loads(state_file().read_text())
        os.kill(state["pid"], 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return state


def write_state(state: UpState) -> None:
    write_private(state_file(), json.dumps(state))


def write_private(path: Path, content: str) -> None:
    """Write a file that only its owner may read; a reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with os.fdopen(
        os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
    ) as file:
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
