"""The documents say what is there: links, variables, commands, tests and metrics by their names."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from seckill.problems import CODES

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
DOCUMENTS = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = {path.stem for path in (ROOT / "seckill/management/commands").glob("[a-z]*.py")}
# Those of Django that the documents may send a reader to.
DJANGOS = {"migrate", "makemigrations", "collectstatic", "check", "shell", "createsuperuser"}
TARGETS = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

_LINK = re.compile(r"\[([^\]\n]*)\]\(([^()\s]+)\)")
_ROW = re.compile(r"^\| `([A-Z_]+)` \| (?:`([^`]*)`|–) \|", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

each_document = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=[path.relative_to(ROOT).as_posix() for path in DOCUMENTS]
)


def links(path: Path) -> Iterator[tuple[str, str, str]]:
    """The text, file and anchor of each link that leads to a file here."""
    for text, target in _LINK.findall(_FENCE.sub("", path.read_text())):
        if not re.match(r"[a-z]+:", target):
            name, _, anchor = target.partition("#")
            yield text, name, anchor


def anchors(path: Path) -> set[str]:
    """As forges make them: lower case, words joined by hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", path.read_text()), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


@each_document
def test_links_lead_somewhere(path: Path) -> None:
    for _, name, anchor in links(path):
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


@each_document
def test_links_to_tests_name_tests_that_exist(path: Path) -> None:
    for text, name, _ in links(path):
        if text.startswith("test_") and not text.endswith(".py"):
            source = (path.parent / name).read_text()
            assert re.search(rf"^(async )?def {text}\(", source, re.MULTILINE), f"{name}: {text}"


@each_document
def test_commands_and_targets_exist(path: Path) -> None:
    text = path.read_text()
    named = set(re.findall(r"manage\.py ([a-z_]+)", text))
    assert named <= COMMANDS | DJANGOS, named - COMMANDS - DJANGOS
    targets = set(re.findall(r"(?:`|^)make ([a-z0-9]+)", text, re.MULTILINE))
    assert targets <= TARGETS, targets - TARGETS


def test_readme_names_every_command() -> None:
    rows = set(re.findall(r"^\| `([a-z_]+)` \| ", README.read_text(), re.MULTILINE))

    assert rows >= COMMANDS, COMMANDS - rows


def test_readme_has_every_variable_with_its_default() -> None:
    example = (ROOT / ".env.example").read_text()
    defaults = dict(re.findall(r"^#([A-Z_]+)=(.*)$", example, re.MULTILINE))

    told = dict(_ROW.findall(README.read_text()))

    assert told == defaults


def test_metrics_named_are_counted_somewhere() -> None:
    sources = chain.from_iterable(
        (ROOT / app).rglob("*.py") for app in ("inventory", "orders", "seckill")
    )
    counted = "".join(source.read_text() for source in sources)
    text = (ROOT / "docs/operations.md").read_text()

    named = set(re.findall(r"\bseckill_[a-z_]+", text))

    assert named
    missing = {name for name in named if f'"{name.removesuffix("_total")}"' not in counted}
    assert not missing


def test_every_problem_is_explained() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (\d+) \|", (ROOT / "docs/api.md").read_text(), re.M)

    assert dict(rows) == {code: str(kind.status) for code, kind in CODES.items()}


def test_decisions_are_numbered_without_a_gap() -> None:
    names = sorted(path.name for path in (ROOT / "docs/adr").glob("*.md"))

    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
