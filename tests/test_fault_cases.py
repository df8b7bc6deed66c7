"""Every known way to fail has its line in docs/fault-cases.md, with tests or a reason."""

import re
from itertools import chain

from tests.test_docs import ROOT

TEXT = (ROOT / "docs/fault-cases.md").read_text()
ROWS = re.findall(r"^\| ([A-Z][\d.]+) \| (.+?) \| (.+) \|$", TEXT, re.MULTILINE)

# How many failures the matrix has for each process or back end.
MATRIX = {1: 11, 2: 11, 3: 6, 4: 11, 5: 10, 6: 8, 7: 10, 8: 6}
MISTAKES = (
    *("01", "03", "04", "06", "07", "08", "12", "14", "15", "16", "18", "19", "21", "22", "23"),
    *("24", "26", "28", "29", "30", "31", "32", "33", "35", "36", "37", "39", "40", "41", "42"),
    *("43", "44", "45"),
)
CASES = [
    *(f"C{number:02}" for number in range(1, 78)),
    *chain.from_iterable(
        (f"M{part}.{row}" for row in range(1, rows + 1)) for part, rows in MATRIX.items()
    ),
    *(f"P{number}" for number in MISTAKES),
]


def test_no_fault_case_is_lost() -> None:
    assert [row[0] for row in ROWS] == CASES


def test_every_fault_case_has_a_test_or_a_reason() -> None:
    empty = [case for case, _, shown in ROWS if not shown.strip() or shown == "No test yet."]

    assert not empty
