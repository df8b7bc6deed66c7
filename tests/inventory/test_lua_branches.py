"""A script that nobody has run may not even be Lua."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inventory.lua_branches import branches, marked
from tests.support import environment

HERE = Path(__file__).parent
MODEL = "test_gate_model"


def test_marked_notes_each_branch_and_leaves_comments_alone() -> None:
    source = "if a then return 1 else b() end -- then what\nfor i = 1, 2 do c() end"

    assert [branch for _, _, branch in branches("x", source)] == [
        *("x.lua:1:6", "x.lua:1:20"),
        "x.lua:2:14",
    ]
    assert marked("x", source).splitlines()[1] == (
        "for i = 1, 2 do redis.call('SADD', 'lua-branches', 'x.lua:2:14') c() end"
    )


@pytest.mark.long
@pytest.mark.slow
def test_every_branch_of_every_script_is_run_by_some_test(tmp_path: Path) -> None:
    """By those of the gate alone, and not by the dice of the model; in a process of their own."""
    report = tmp_path / "branches"
    files = sorted(str(path) for path in HERE.glob("test_gate*.py") if path.stem != MODEL)
    plugin = ["-p", "tests.inventory.lua_branches", "-p", "no:cacheprovider"]
    # These look at all that is in Redis, and the notes are there too.
    plugin += ["-k", "not test_every_key_has and not test_forget_removes_all"]

    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", *plugin, *files],
        cwd=environment.ROOT,
        env=os.environ | {"LUA_BRANCHES": str(report)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout[-3000:]
    *left, number = report.read_text().splitlines()
    assert left == []
    assert number != "0 branches"
