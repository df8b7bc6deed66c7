"""Tests of a group run in one process, and those of a package one after the other."""

from itertools import pairwise

import pytest


@pytest.mark.xdist_group("together")
def test_groups_reach_the_scheduler(request: pytest.FixtureRequest) -> None:
    """Without that each process would start each shop, and nobody would say so."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("not under --dist loadgroup")

    assert request.node.nodeid.endswith("@together")


def test_packages_are_not_mixed(request: pytest.FixtureRequest) -> None:
    folders = [item.path.parent for item in request.session.items]

    changes = sum(before != after for before, after in pairwise(folders))

    assert changes == len(set(folders)) - 1
