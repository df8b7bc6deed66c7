"""Writes a bill of materials (CycloneDX 1.6, JSON) of what the product is installed from.

    scripts/sbom.py                                    requirements.txt, to stdout
    scripts/sbom.py --lock requirements/pay.txt -o sbom.json

Names, versions and hashes come from the lock file; licences and home pages from what is installed,
where it is. The same lock file gives the same document, but for its time, which SOURCE_DATE_EPOCH
sets.
"""

import argparse
import json
import os
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
NAMESPACE = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


class Pin(NamedTuple):
    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', self.name).lower()}@{self.version}"


def pins(lock: str) -> Iterator[Pin]:
    """Each package of a lock file, with the hashes of all its files."""
    for text in lock.replace("\\\n", " ").splitlines():
        if match := PINNED.match(text):
            yield Pin(match[1], match[2], tuple(sorted(HASH.findall(text))))


def component(pin: Pin) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
    }
    if licence := _licence(pin):
        made["licenses"] = [licence]
    # One reference for each file: a component's own hashes would be those of a single file.
    made["externalReferences"] = [
        {
            "type": "distribution",
            "url": pin.purl,
            "hashes": [{"alg": "SHA-256", "content": content}],
        }
        for content in pin.hashes
    ]
    return made


def _licence(pin: Pin) -> dict[str, Any] | None:
    """What an installed package of that very version says; an expression, or a name."""
    try:
        about = metadata.metadata(pin.name).json
    except metadata.PackageNotFoundError:
        return None
    if about["version"] != pin.version:
        return None
    if expression := about.get("license_expression"):
        return {"expression": expression}
    classes = about.get("classifier", [])
    names = [text.split(" :: ")[-1] for text in classes if text.startswith("License :: ")]
    first = str(about.get("license", "")).strip().split("\n")[0]
    name = names[0] if names else first
    return {"license": {"name": name[:200]}} if name else None


def document(lock: str, *, at: datetime) -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = list(pins(lock))
    root = f"pkg:generic/{project['name']}@{project['version']}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, lock)}",
        "version": 1,
        "metadata": {
            "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": [component(pin) for pin in found],
        "dependencies": [{"ref": root, "dependsOn": sorted(pin.purl for pin in found)}],
    }


def main(arguments: list[str] | None = None) -> int:
    summary, _, more = (__doc__ or "").partition("\n")
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=summary, epilog=more, formatter_class=shape)
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.txt")
    parser.add_argument("-o", "--output", type=Path, help="a file; else stdout")
    asked = parser.parse_args(arguments)
    at = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or _now()), UTC)
    text = json.dumps(document(asked.lock.read_text(), at=at), indent=2) + "\n"
    if asked.output:
        asked.output.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


def _now() -> float:
    return datetime.now(UTC).timestamp()


if __name__ == "__main__":
    sys.exit(main())
