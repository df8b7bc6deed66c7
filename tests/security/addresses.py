"""Every address that the product answers, read from where the addresses are written down."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from django.urls import URLPattern, URLResolver, get_resolver

from seckill import openapi, routing

_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")


class Address(NamedTuple):
    """`route`: as Django writes it, with `<name>` for each parameter and no converters."""

    route: str
    view: Callable[..., Any]

    @property
    def parameters(self) -> list[str]:
        return _PARAMETER.findall(self.route)

    def path(self, values: Mapping[str, object]) -> str:
        return "/" + _PARAMETER.sub(lambda match: str(values[match[1]]), self.route)


def _walk(resolver: URLResolver, prefix: str = "") -> Iterator[Address]:
    for entry in resolver.url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _walk(entry, route)
        elif isinstance(entry, URLPattern):
            plain = re.sub(r"<\w+:(\w+)>", r"<\1>", route)
            yield Address(re.sub(r"\(\?P<(\w+)>\.\*\)\$$", r"<\1>", plain), entry.callback)


def all_addresses() -> list[Address]:
    """Django's, with the admin's and those of the API."""
    return list(_walk(get_resolver()))


def shop_addresses() -> list[Address]:
    return [address for address in all_addresses() if not address.route.startswith("admin/")]


def admin_addresses() -> list[Address]:
    return [address for address in all_addresses() if address.route.startswith("admin/")]


def lane_routes() -> set[str]:
    """Those of the lane, as the OpenAPI document tells them; a test holds it against the lane."""
    return {path.strip("/").replace("{", "<").replace("}", ">") for path in openapi.LANE}


def socket_routes() -> list[str]:
    return [pattern for pattern, _ in routing._routes]
