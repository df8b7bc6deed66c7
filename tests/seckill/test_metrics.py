"""What all processes of a machine counted, told by any of them."""

import subprocess
import sys
from pathlib import Path

from tests.support import environment

COUNT = """
import django; django.setup()
from seckill.publisher import published
published.inc(3)
"""
TELL = """
import django; django.setup()
from django.test import RequestFactory
from seckill import publisher
from seckill.health import metrics
print(metrics(RequestFactory().get("/metrics")).text)
"""


def run(code: str, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=environment.ROOT,
        env=environment.neutral()
        | {"VAR_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "config.settings"}
        | {"REDIS_URL": "redis://127.0.0.1:1"}  # Nobody is there, which must not matter.
        | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_metrics_sum_up_what_all_processes_counted(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    shared = {"PROMETHEUS_MULTIPROC_DIR": str(metrics)}
    run(COUNT, tmp_path, **shared)
    run(COUNT, tmp_path, **shared)

    told = run(TELL, tmp_path, **shared)

    assert "\nseckill_purchases_published_total 6.0\n" in told
    assert told.count("# TYPE seckill_sweep_age_seconds gauge") == 1
    assert "pid=" not in told


def test_metrics_without_the_directory_are_of_one_process(tmp_path: Path) -> None:
    run(COUNT, tmp_path)

    told = run(TELL, tmp_path)

    assert "\nseckill_purchases_published_total 0.0\n" in told
    assert "\nprocess_cpu_seconds_total " in told
