"""Django's sessions, in cache and database, under keys of the form that Django makes and no other.

A cookie may hold anything, also a NUL, which is an error of the database and none of a session.
"""

import re

from django.contrib.sessions.backends import cached_db

_KEY = re.compile(r"[a-z0-9]{32}", re.ASCII)


def is_key(text: str | None) -> bool:
    return bool(text and _KEY.fullmatch(text))


class SessionStore(cached_db.SessionStore):
    def _validate_session_key(self, key: str | None) -> bool:
        return is_key(key)
