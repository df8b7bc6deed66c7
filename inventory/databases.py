"""Which errors of the database mean "not now", whatever was asked of it."""

from django.db import InterfaceError, OperationalError

# Of a replica, or of a primary that isn't one any more. Its driver doesn't call it operational.
READ_ONLY = "25006"


def is_away(error: BaseException) -> bool:
    """The database can't do it now; the statement itself is not at fault, so it may be repeated."""
    code = getattr(error.__cause__, "pgcode", None)
    return isinstance(error, OperationalError | InterfaceError) or code == READ_ONLY
