"""Whose request it is, with and without proxies in front."""

import pytest
from django.test import RequestFactory
from pytest_django.fixtures import Settings

from seckill.addresses import client_network


@pytest.mark.parametrize(
    ("trusted", "forwarded", "expected"),
    [
        (0, "", "192.0.2.9"),
        (0, "198.51.100.1", "192.0.2.9"),
        (1, "198.51.100.1", "198.51.100.1"),
        (1, "203.0.113.7, 198.51.100.1", "198.51.100.1"),
        (2, "203.0.113.7, 198.51.100.1", "203.0.113.7"),
        (2, "198.51.100.1", "192.0.2.9"),
        (1, "nonsense", "unknown"),
    ],
)
def test_client_network_believes_only_our_own_proxies(
    settings: Settings, trusted: int, forwarded: str, expected: str
) -> None:
    settings.TRUSTED_PROXIES = trusted
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    request = RequestFactory().get("/", headers=headers, REMOTE_ADDR="192.0.2.9")

    assert client_network(request) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("", "unknown"),
    ],
)
def test_client_network_takes_a_whole_ipv6_network(address: str, expected: str) -> None:
    request = RequestFactory().get("/", REMOTE_ADDR=address)

    assert client_network(request) == expected
