"""What people write into the environment: one clear line for each mistake, and no secret in it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import environment
from tests.support.params import more

SECRET = "s3cret-of-somebody"
OWN = {
    "DATABASE_URL": "postgres://seckill:secret@127.0.0.1:5432/seckill",
    "SECRET_KEY": "x" * 40,
    "PAYMENT_WEBHOOK_SECRET": "y" * 40,
}
SHOW = "import config.settings as s; print([{names}])"
WRONG = [
    *(("DEBUG", value) for value in ("2", "ture", "enabled", "y", "None", "debug")),
    *(("PAYMENT_WINDOW", value) for value in ("0", "-5", "nan", "1e3", "15m", "9" * 30, "inf")),
    *(("SWEEP_INTERVAL", value) for value in ("0", "301", "x")),
    *(("WEB_THREADS", value) for value in ("0", "257", "1.5", "１", "0x10")),
    *(("PURCHASE_RATE", value) for value in ("10", "0/1s", "10/0s", "-1/1s", "10/1d")),
    *(
        ("REDIS_URL", value)
        for value in ("127.0.0.1:6379", "http://x", "redis://", "redis://h:port")
    ),
    *(("CELERY_BROKER_URL", value) for value in ("sqs://x", "amqp://", "amqp://h:99999999")),
    *(("DATABASE_URL", value) for value in ("mysql://u:p@h/d", "postgres://", "postgres://h:p/d")),
    ("REDIS_URL", "unix:///run/redis.sock"),  # Neither our clients nor kombu can.
    ("REDIS_URL", f"redis://:{SECRET}@host:port/0"),
    ("REDIS_URL", f"redis://:{SECRET}"),  # @host forgotten
    ("DATABASE_URL", f"postgres://user:{SECRET}/name"),
    ("DATABASE_URL", f"mysql://user:{SECRET}@host/name"),
    ("CELERY_BROKER_URL", f"ampq://user:{SECRET}@host"),
    ("SOLD_OUT_CHANNEL", "carrier pigeon"),
    ("CAPTCHA", "none"),
    ("LOG_LEVEL", "verbose"),
    ("ALLOWED_HOSTS", "https://shop.example"),
    ("CSRF_TRUSTED_ORIGINS", "shop.example"),
    ("TRUSTED_PROXIES", "all"),
    ("REDIS_PROTOCOL", "4"),
    ("PAYMENT_PROVIDERS", "cash"),
    *(("PROMETHEUS_MULTIPROC_DIR", value) for value in ("/nowhere", "/dev/null")),
]


def run(code: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=environment.ROOT,
        env=environment.neutral() | {"VAR_DIR": str(folder)} | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# Of each name, the first that is wrong.
FIRST = {name: (name, value) for name, value in reversed(WRONG)}.values()


@pytest.mark.parametrize(
    "wrong", [*FIRST, *more(*(pair for pair in WRONG if pair not in FIRST))], ids="=".join
)
def test_wrong_value_is_one_line_and_exit_code_2(tmp_path: Path, wrong: tuple[str, str]) -> None:
    name, value = wrong
    result = run("import config.settings", tmp_path, **{name: value})

    lines = result.stderr.splitlines()
    assert result.returncode == 2, result.stderr
    assert [line for line in lines if not line.startswith("configuration error: ")] == []
    assert any(f" {name}: " in line for line in lines)
    assert SECRET not in result.stderr


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    result = run("import config.settings", tmp_path, DEBUG="maybe", WEB_THREADS="0", CAPTCHA="?")

    told = sorted(line.split(": ")[1] for line in result.stderr.splitlines())
    assert told == ["CAPTCHA", "DEBUG", "WEB_THREADS"]


@pytest.mark.parametrize("missing", ["SECRET_KEY", "PAYMENT_WEBHOOK_SECRET"])
def test_database_of_ones_own_wants_secrets(tmp_path: Path, missing: str) -> None:
    result = run("import config.settings", tmp_path, **(OWN | {missing: " "}))

    assert result.returncode == 2
    assert [line for line in result.stderr.splitlines() if f" {missing}: not set" in line]


@pytest.mark.parametrize("value", ["", " ", "0", "no", "OFF", "False"])
def test_debug_is_off_unless_it_is_clearly_on(tmp_path: Path, value: str) -> None:
    result = run(SHOW.format(names="s.DEBUG"), tmp_path, DEBUG=value)

    assert (result.returncode, result.stdout) == (0, "[False]\n")


def test_passwords_may_hold_anything_that_is_escaped(tmp_path: Path) -> None:
    names = "s.DATABASES['default']['PASSWORD'], s.REDIS_URL, s.CELERY_BROKER_URL"
    odd = {
        "DATABASE_URL": "postgres://u:p%40%25%2F%3A@127.0.0.1/d",
        "REDIS_URL": "redis://:p%40%25@127.0.0.1:6379/0",
        "CELERY_BROKER_URL": "amqp://u:p%40%25@127.0.0.1//",
    }

    result = run(SHOW.format(names=names), tmp_path, **(OWN | odd))

    assert result.stdout == f"{['p@%/:', odd['REDIS_URL'], odd['CELERY_BROKER_URL']]}\n"


@pytest.mark.parametrize(
    "odd",
    [
        {"TZ": "Asia/Shanghai"},
        {"TZ": ""},
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"},
        {"PYTHONHASHSEED": "1", "PYTHONOPTIMIZE": "1"},
        {"HOME": "/nonexistent"},
    ],
    ids=lambda odd: ",".join(odd),
)
def test_surroundings_change_nothing(tmp_path: Path, odd: dict[str, str]) -> None:
    code = "import django; django.setup(); from django.core.management import call_command as c;"

    result = run(code + "c('check')", tmp_path, DJANGO_SETTINGS_MODULE="config.settings", **odd)

    assert result.returncode == 0, result.stderr


def test_folder_that_can_not_be_written_is_said_so(tmp_path: Path) -> None:
    """A file stands where the folder should be, which stops the superuser too."""
    (tmp_path / "var").write_text("")

    result = run("import config.settings", tmp_path / "var")

    assert result.returncode == 2
    assert result.stderr.startswith("configuration error: VAR_DIR: ")
    assert "Traceback" not in result.stderr
