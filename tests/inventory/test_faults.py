"""Places where a test kills a process: only in a test run, only once, only where it is told."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.environment import ROOT

REACH = """
from inventory.faults import faultpoint
for name in "{names}".split():
    faultpoint(name)
    print(name, flush=True)
"""


def reach(names: str, **environment: str) -> tuple[int, list[str]]:
    """Reach these points in a new process; its exit code, and those that it got past."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("SECKILL_TESTING", "FAULTPOINTS")}
    result = subprocess.run(
        [sys.executable, "-c", REACH.format(names=names)],
        env=inherited | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    return result.returncode, result.stdout.split()


def test_faultpoint_kills_where_it_is_told(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    armed = {"SECKILL_TESTING": "1", "FAULTPOINTS": f"other=/x,in_create@2={marker}"}

    first = reach("after_reserve in_create in_create in_create", **armed)
    second = reach("in_create in_create in_create", **armed)

    assert first == (-signal.SIGKILL, ["after_reserve", "in_create"])
    assert marker.exists()
    assert second == (0, ["in_create"] * 3)


def test_faultpoint_is_never_armed_in_the_product(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    for told in ({}, {"SECKILL_TESTING": ""}, {"SECKILL_TESTING": "0"}, {"SECKILL_TESTING": "yes"}):
        assert reach("in_create", FAULTPOINTS=f"in_create={marker}", **told) == (0, ["in_create"])
    assert not marker.exists()


def test_faultpoint_needs_a_place_that_makes_sense(tmp_path: Path) -> None:
    for points in ("", "in_create", "in_create@=x", "IN_CREATE=x", ",,=,"):
        armed = {"SECKILL_TESTING": "1", "FAULTPOINTS": points}
        assert reach("in_create", **armed) == (0, ["in_create"])
