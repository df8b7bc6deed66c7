"""Collects static files only if they have changed, because that costs seconds at every start."""

import hashlib
from pathlib import Path

from django.contrib.staticfiles.finders import get_finders


def digest() -> str:
    """Changes whenever a static file of any app is added, changed or removed."""
    sums = hashlib.sha256()
    for finder in get_finders():
        for name, storage in sorted(finder.list([]), key=lambda found: found[0]):
            stat = Path(storage.path(name)).stat()
            sums.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return sums.hexdigest()


def is_collected(root: Path) -> bool:
    try:
        return (root / "staticfiles.json").exists() and _note(root).read_text() == digest()
    except OSError:
        return False


def note_collected(root: Path) -> None:
    _note(root).write_text(digest())


def _note(root: Path) -> Path:
    return root.with_name(f"{root.name}.digest")
