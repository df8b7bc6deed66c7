"""Runs every check of `make check`, tells all that fail, and ends with exit code 1 if any did."""

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
MANAGE = [sys.executable, "manage.py"]
# A deployment as the documentation recommends it; nothing is connected to.
DEPLOYED = {
    "SECRET_KEY": secrets.token_urlsafe(64),
    "PAYMENT_WEBHOOK_SECRET": secrets.token_urlsafe(32),
    "ALLOWED_HOSTS": "shop.example",
    "CSRF_TRUSTED_ORIGINS": "https://shop.example",
    "HTTPS": "1",
    "TRUSTED_PROXIES": "1",
    "DATABASE_URL": "postgres://seckill:secret@127.0.0.1:5432/seckill",
    "REDIS_URL": "redis://127.0.0.1:6379/0",
    "CELERY_BROKER_URL": "amqp://seckill:secret@127.0.0.1:5672/seckill",
}
CHECKS: list[tuple[str, list[str], dict[str, str]]] = [
    ("format", [str(BIN / "ruff"), "format", "--check", "."], {}),
    ("lint", [str(BIN / "ruff"), "check", "."], {}),
    ("import contracts", [str(BIN / "lint-imports")], {}),
    ("types", [sys.executable, "-m", "mypy", "--strict"], {}),
    ("migrations", [*MANAGE, "makemigrations", "--check", "--dry-run"], {}),
    ("system checks", [*MANAGE, "check", "--fail-level", "WARNING"], {}),
    ("deploy checks", [*MANAGE, "check", "--deploy", "--fail-level", "WARNING"], DEPLOYED),
]


def main() -> int:
    failed = [name for name, command, extra in CHECKS if not passes(name, command, extra)]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def passes(name: str, command: list[str], extra: dict[str, str]) -> bool:
    started = time.monotonic()
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **extra},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    verdict = "failed" if result.returncode else "ok"
    print(f"{name:<18}{verdict:<8}{time.monotonic() - started:5.1f} s", flush=True)
    if result.returncode:
        print(result.stdout, flush=True)
    return result.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
