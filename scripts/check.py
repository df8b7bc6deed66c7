"""Runs every check of `make check`, tells all that fail, and ends with exit code 1 if any did."""

import importlib.util
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
SOURCES = ["config", "inventory", "orders", "seckill", "scripts"]
CHECKS: list[tuple[str, list[str], dict[str, str]]] = [
    ("format", [str(BIN / "ruff"), "format", "--check", "."], {}),
    ("lint", [str(BIN / "ruff"), "check", "."], {}),
    ("import contracts", [str(BIN / "lint-imports")], {}),
    ("types", [sys.executable, "-m", "mypy", "--strict"], {}),
    ("migrations", [*MANAGE, "makemigrations", "--check", "--dry-run"], {}),
    ("system checks", [*MANAGE, "check", "--fail-level", "WARNING"], {}),
    ("deploy checks", [*MANAGE, "check", "--deploy", "--fail-level", "WARNING"], DEPLOYED),
    ("unsafe patterns", [str(BIN / "bandit"), "-q", "-c", "pyproject.toml", "-r", *SOURCES], {}),
]
AUDIT = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--timeout", "5"]
# What it says of a package that its service doesn't know, and of a service that isn't reached.
UNKNOWN = "could not be audited"
UNREACHED = ("ServiceError", "ConnectionError", "Max retries exceeded", "timed out")


def main() -> int:
    failed = [name for name, command, extra in CHECKS if not passes(name, command, extra)]
    failed += [] if audited("requirements.txt") else ["known vulnerabilities"]
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


def audited(lock: str) -> bool:
    """Whether the lock file names nothing with a known vulnerability, as far as one can ask."""
    name = "vulnerabilities"
    if importlib.util.find_spec("pip_audit") is None:
        print(f"{name:<18}skipped: pip-audit is not installed")
        return True
    try:
        result = subprocess.run(
            [*AUDIT, "-r", lock], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
        )
    except subprocess.TimeoutExpired:
        print(f"{name:<18}skipped: its service gave no answer within 120 s")
        return True
    reason = why_not_audited(result.stdout + result.stderr)
    failed = result.returncode != 0 and not reason
    print(f"{name:<18}{'failed' if failed else f'skipped: {reason}' if reason else 'ok'}")
    if failed:
        print(result.stdout, result.stderr)
    return not failed


def why_not_audited(told: str) -> str:
    """Empty if something was found, or all packages were looked up."""
    if "known vulnerabilit" in told and "No known" not in told:
        return ""
    if any(word in told for word in UNREACHED):
        return "its service can't be reached"
    unknown = told.count(UNKNOWN)
    return f"its service knows nothing of {unknown} packages" if unknown else ""


if __name__ == "__main__":
    sys.exit(main())
