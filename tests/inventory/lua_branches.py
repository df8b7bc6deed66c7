"""Which branches of the scripts a run of tests takes: `pytest -p tests.inventory.lua_branches`.

A branch is what follows `then`, `else` or `do`. Those that no test took are written, one a line, to
the file that LUA_BRANCHES names.
"""

import os
import re
from pathlib import Path

import pytest

from inventory import gate
from inventory.redis_clients import sync_client

TAKEN = "lua-branches"
_BRANCH = re.compile(r"\b(?:then|else|do)\b")

_taken: set[str] = set()


def branches(name: str, source: str) -> list[tuple[int, int, str]]:
    """Line, column after the word, and the name of each."""
    found = []
    for number, line in enumerate(source.splitlines()):
        code = line.partition("--")[0]
        for place in _BRANCH.finditer(code):
            found.append((number, place.end(), f"{name}.lua:{number + 1}:{place.start() + 1}"))
    return found


def marked(name: str, source: str) -> str:
    """The same script, which notes the branches that it takes."""
    lines = source.splitlines()
    for number, column, branch in reversed(branches(name, source)):
        note = f" redis.call('SADD', '{TAKEN}', '{branch}')"
        lines[number] = lines[number][:column] + note + lines[number][column:]
    return "\n".join(lines)


def _read(name: str) -> str:
    return (gate.LUA / f"{name}.lua").read_text()


def pytest_configure(config: pytest.Config) -> None:
    gate._source = lambda name: marked(name, _read(name))  # type: ignore[assignment]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Before the fixtures end, of which one empties Redis."""
    _taken.update(member.decode() for member in sync_client().smembers(TAKEN))


def pytest_sessionfinish(session: pytest.Session) -> None:
    names = (path.stem for path in sorted(gate.LUA.glob("*.lua")))
    known = [branch for name in names for _, _, branch in branches(name, _read(name))]
    left = [branch for branch in known if branch not in _taken]
    Path(os.environ["LUA_BRANCHES"]).write_text("\n".join([*left, f"{len(known)} branches"]))
