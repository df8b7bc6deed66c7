"""Whether the database is as the code expects it."""

from django.db import connection
from django.db.migrations.executor import MigrationExecutor


def missing_migrations() -> int:
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def is_migrated() -> bool:
    return missing_migrations() == 0
