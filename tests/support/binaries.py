"""Where the programs of the services are, and what is said if they aren't on the machine."""

import os
import pwd
import shutil
from collections.abc import Iterable
from glob import glob

USUAL_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/lib/rabbitmq/bin",
    "/usr/lib/rabbitmq/lib/*/sbin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/usr/local/opt/*/bin",
    "/opt/homebrew/opt/*/bin",
    "/opt/homebrew/sbin",
)
# Debian's /usr/sbin/rabbitmqctl changes the user, and then lacks the cookie of a private instance.
PREFERRED = ("/usr/lib/rabbitmq/bin",)


class Missing(Exception):
    """A service isn't on this machine; the text says what to do about it."""


def find(*names: str) -> str | None:
    """The first program found under one of the names; newer versions first."""
    for name in names:
        for folder in _folders():
            if path := shutil.which(name, path=folder):
                return path
    return None


def require(service: str, *names: str) -> str:
    path = find(*names)
    if path is None:
        raise Missing(f"{service} not found: make services")
    return path


def require_user(service: str, name: str) -> str | None:
    """The user that a service which refuses root must run as; None if we aren't root."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise Missing(f"{service} needs the user {name}: make services") from None
    return name


def _folders() -> Iterable[str]:
    yield from PREFERRED
    yield from os.environ.get("PATH", os.defpath).split(os.pathsep)
    for place in USUAL_PLACES:
        yield from sorted(glob(place), reverse=True)
