"""Where a request comes from, as far as it can be trusted."""

import ipaddress

from django.conf import settings
from django.http import HttpRequest


def client_network(request: HttpRequest) -> str:
    """The caller's IPv4 address or IPv6 /64, which is what one customer of a provider has.

    Of X-Forwarded-For only what our own proxies wrote counts: the hop that is TRUSTED_PROXIES from
    the right. Whatever a caller writes there himself stands further left.
    """
    hops = [part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",")]
    trusted = settings.TRUSTED_PROXIES
    text = request.META.get("REMOTE_ADDR", "")
    if trusted and len(hops) >= trusted and hops[-trusted]:
        text = hops[-trusted]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "unknown"
    if address.version == 4:
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped or ipaddress.ip_network((address, 64), strict=False))
