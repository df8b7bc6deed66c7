"""What the product is made of and configured with, and what must not be in its repository."""

import itertools
import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import jsonschema_rs
import pytest
import uuid_utils.compat
from celery import current_app
from django.conf import settings as django_settings
from packaging.version import Version

from config.celery import app
from scripts import check, sbom
from seckill import tokens
from tests.support import environment

LOCKS = ["requirements.txt", "requirements/dev.txt", "requirements/pay.txt"]
# The first versions without a known hole that would matter here.
FLOORS = {"daphne": "4.2.2", "django": "5.2.15", "celery": "5.2.2", "redis": "4.5.5"}
# The part of CycloneDX 1.6 that we write; nothing else may be there.
TEXT = {"type": "string", "minLength": 1}
COMPONENT = {
    "type": "object",
    "required": ["type", "name", "version", "bom-ref"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["application", "library"]},
        "bom-ref": TEXT,
        "name": TEXT,
        "version": TEXT,
        "purl": {"type": "string", "pattern": r"^pkg:pypi/[a-z0-9-]+@[^ ]+$"},
        "licenses": {"type": "array", "maxItems": 1, "minItems": 1},
        "externalReferences": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["type", "url", "hashes"],
                "additionalProperties": False,
                "properties": {
                    "type": {"const": "distribution"},
                    "url": {"type": "string", "format": "uri"},
                    "hashes": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "alg": {"const": "SHA-256"},
                                "content": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                            },
                            "required": ["alg", "content"],
                        },
                    },
                },
            },
        },
    },
}
SCHEMA = {
    "type": "object",
    "required": ["bomFormat", "specVersion", "serialNumber", "version", "metadata", "components"],
    "additionalProperties": False,
    "properties": {
        "$schema": TEXT,
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "serialNumber": {"type": "string", "pattern": r"^urn:uuid:[0-9a-f-]{36}$"},
        "version": {"type": "integer", "minimum": 1},
        "metadata": {
            "type": "object",
            "required": ["timestamp", "component"],
            "properties": {"timestamp": {"type": "string"}, "component": COMPONENT},
        },
        "components": {"type": "array", "items": COMPONENT, "minItems": 50, "uniqueItems": True},
        "dependencies": {"type": "array"},
    },
}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_with_hashes(lock: str) -> None:
    text = (environment.ROOT / lock).read_text()
    named = set(re.findall(r"^([A-Za-z0-9][\w.\-\[\]]*)", text, re.MULTILINE))

    pins = list(sbom.pins(text))

    assert len(pins) == len(named)
    assert [pin.name for pin in pins if not pin.hashes] == []


def test_bill_of_materials_is_well_formed_and_complete() -> None:
    lock = (environment.ROOT / "requirements.txt").read_text()
    at = datetime(2026, 1, 2, tzinfo=UTC)

    made = sbom.document(lock, at=at)

    jsonschema_rs.validate(SCHEMA, made)
    assert made["metadata"]["timestamp"] == "2026-01-02T00:00:00Z"
    names = [component["name"] for component in made["components"]]
    assert names == [pin.name for pin in sbom.pins(lock)]
    assert json.dumps(sbom.document(lock, at=at)) == json.dumps(made)
    described = [component for component in made["components"] if "licenses" in component]
    assert len(described) > len(names) * 0.8


@pytest.mark.parametrize(("name", "floor"), FLOORS.items())
def test_no_version_with_a_known_hole(name: str, floor: str) -> None:
    lock = (environment.ROOT / "requirements.txt").read_text()
    pinned = {pin.name.lower(): Version(pin.version) for pin in sbom.pins(lock)}

    assert pinned[name] >= Version(floor)
    assert Version(metadata.version(name)) >= Version(floor)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("No known vulnerabilities found", ""),
        ("Found 1 known vulnerability in 1 package", ""),
        ("Found 2 known vulnerabilities in 1 package\nx could not be audited: x", ""),
        ("requests.exceptions.ConnectionError: refused", "its service can't be reached"),
        (
            "No known vulnerabilities found\na could not be audited: a\nb could not be audited: b",
            "its service knows nothing of 2 packages",
        ),
    ],
)
def test_audit_is_skipped_only_with_a_reason(told: str, reason: str) -> None:
    assert check.why_not_audited(told) == reason


# --- secrets --------------------------------------------------------------------------------------

SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{20}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\b(?:sk|rk)_live_[0-9A-Za-z]{16}|\bwhsec_[0-9A-Za-z]{24}"
    r"|\bgh[pousr]_[0-9A-Za-z]{36}|\bxox[abpr]-[0-9A-Za-z-]{10}|\bAIza[0-9A-Za-z_-]{35}"
    r"|argon2id\$v=\d+\$m=|django-[i]nsecure-"
    r"|(?i:secret_key|password|token)\s*=\s*[\"'][A-Za-z0-9+/_-]{32,}[\"']"
)


def test_pattern_finds_secrets() -> None:
    """The control."""
    for text in ("AKIA" + "A" * 16, "ghp_" + "a" * 36, 'SECRET_KEY = "' + "a" * 40 + '"'):
        assert SECRETS.search(text)


def test_repository_holds_no_secret() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=environment.ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    found, looked_at = [], 0
    for name in filter(None, listed.stdout.split("\0")):
        path = environment.ROOT / name
        if (
            path.is_file()
            and path.suffix not in (".webp", ".mo", ".png")
            and path.stat().st_size < 10**6
        ):
            looked_at += 1
            if SECRETS.search(path.read_text(errors="replace")):
                found.append(name)

    assert looked_at > 200
    assert found == []


def test_generated_secrets_are_their_owners_alone(tmp_path: Path) -> None:
    code = "import config.settings as s; print(len(s.SECRET_KEY), s.DEBUG)"
    env = environment.neutral() | {"VAR_DIR": str(tmp_path / "var")}

    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=environment.ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stdout == "64 False\n"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "var").iterdir()}
    assert modes == {"secret_key": 0o600, "webhook_secret": 0o600}


# --- what a deployment is told --------------------------------------------------------------------


def deployed(code: str, tmp_path: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-c", f"import config.settings as s; {code}"],
        cwd=environment.ROOT,
        env=environment.neutral() | check.DEPLOYED | {"VAR_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


def test_cookies_and_transport_of_a_deployment(tmp_path: Path) -> None:
    names = (
        *("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SESSION_COOKIE_HTTPONLY"),
        *("SECURE_SSL_REDIRECT", "SECURE_HSTS_INCLUDE_SUBDOMAINS", "LANGUAGE_COOKIE_SECURE"),
    )
    code = f"print([getattr(s, name) for name in {names}], s.SECURE_HSTS_SECONDS >= 31536000)"

    assert deployed(code, tmp_path) == f"{[True] * len(names)} True"


def test_proxies_are_believed_only_if_there_are_any(tmp_path: Path) -> None:
    code = "print(s.SECURE_PROXY_SSL_HEADER, getattr(s, 'USE_X_FORWARDED_HOST', False))"

    assert deployed(code, tmp_path) == "('HTTP_X_FORWARDED_PROTO', 'https') False"
    here = [
        getattr(django_settings, n) for n in ("SECURE_PROXY_SSL_HEADER", "USE_X_FORWARDED_HOST")
    ]
    assert here == [None, False]


def test_nothing_is_unpickled() -> None:
    assert app.conf.accept_content == app.conf.result_accept_content == ["json"]
    assert app.conf.task_serializer == app.conf.result_serializer == "json"
    assert current_app.conf.event_serializer == "json"
    assert django_settings.SESSION_SERIALIZER.endswith("serializers.JSONSerializer")
    assert django_settings.CACHES["default"]["OPTIONS"]["serializer"].endswith("JSONSerializer")
    uses = [
        path.name
        for folder in ("config", "inventory", "orders", "seckill")
        for path in (environment.ROOT / folder).rglob("*.py")
        if re.search(r"\bpickle\b|\bmarshal\b|yaml\.load\(", path.read_text())
    ]
    assert uses == []


# --- ids and tokens -------------------------------------------------------------------------------


def test_ten_thousand_ids_differ_and_none_tells_the_next() -> None:
    """Ids tell their time; that, and being unguessable, decides nothing: see test_ownership.py."""
    ids = [uuid_utils.compat.uuid7() for _ in range(10_000)]
    last_bits = {made.int & 0xFFFFFFFF for made in ids}

    assert len(set(ids)) == len(ids)
    assert len(last_bits) > 9_900
    steps = {b.int - a.int for a, b in itertools.pairwise(ids)}
    assert len(steps) > 9_900


def test_tokens_carry_a_signature_of_128_bits() -> None:
    def made() -> str:
        purchase = uuid_utils.compat.uuid7()
        return tokens.issue(sale_id=1, user_id=1, purchase_id=purchase, expires_at=time.time() + 60)

    assert tokens.SIGNATURE_SIZE * 8 == 128
    assert len({made()[-21:] for _ in range(1000)}) == 1000
