"""Nothing is written for another site: forms need a token, and the token our own origin."""

from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client

from seckill.api import api
from tests.factories import UserFactory
from tests.security.addresses import Address, all_addresses
from tests.security.conftest import World
from tests.security.test_ownership import admin_values, values

JSON = "application/json"
# Of the API's writing routes only this one does without; it checks a signature instead.
SIGNED = "api/v1/payments/<provider>/webhook"


def is_exempt(address: Address) -> bool:
    return bool(getattr(address.view, "csrf_exempt", False))


def checking(world: World) -> Client:
    client = Client(enforce_csrf_checks=True)
    client.force_login(UserFactory(staff=True))
    return client


def all_values(world: World) -> dict[str, object]:
    return admin_values(world) | values(world)


@pytest.mark.django_db
def test_only_the_api_is_exempt_which_checks_for_itself() -> None:
    exempt = {address.route for address in all_addresses() if is_exempt(address)}

    reading = {"api/v1/", "api/v1/docs", "api/v1/openapi.json"}  # They check, and write nothing.
    assert exempt == {a.route for a in all_addresses() if a.route.startswith("api/v1/")} - reading


def test_every_form_needs_a_token(world: World) -> None:
    client, before = checking(world), world.state()

    for address in all_addresses():
        if not is_exempt(address):
            path = address.path(all_values(world))
            statuses = [
                client.generic(method, path).status_code for method in ("POST", "PUT", "DELETE")
            ]
            assert statuses == [403] * 3, path
    assert world.state() == before


def _writing() -> list[str]:
    paths: dict[str, Any] = api.get_openapi_schema()["paths"]
    writing = [path for path, item in paths.items() if set(item) & {"post", "put", "delete"}]
    lane = "/purchases"  # It takes a token in a header, which no other site can send.
    return [p for p in writing if not p.endswith((lane, "/webhook"))]


def test_every_writing_route_of_the_api_needs_a_token(world: World) -> None:
    client, before = checking(world), world.state()

    for path in _writing():
        address = path.replace("{sale}", str(world.sale.pk)).replace("{order}", str(world.order.pk))
        response = client.post(address, '{"provider":"sandbox"}', JSON)
        assert (response.status_code, response.json()["code"]) == (403, "csrf_failed"), path
    assert world.state() == before


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://testserver.evil.example"]
)
def test_a_token_is_worth_nothing_from_another_origin(world: World, origin: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(world.owner)
    page = client.get(f"/orders/{world.order.pk}/")
    token = page.cookies["csrftoken"].value
    before = world.state()
    path = f"/orders/{world.order.pk}/cancel/"

    form = client.post(path, {"csrfmiddlewaretoken": token}, headers={"origin": origin})
    headers = {"origin": origin, "x-csrftoken": token}
    api_call = client.post(f"/api/v1{path}".rstrip("/"), "", JSON, headers=headers)

    assert (form.status_code, api_call.status_code) == (403, 403)
    assert world.state() == before
    ours = client.post(
        path, {"csrfmiddlewaretoken": token}, headers={"origin": "http://testserver"}
    )
    assert ours.status_code == 302


def test_cookies_stay_here_and_the_session_from_scripts(client: Client, world: World) -> None:
    world.owner.set_password("a long pass phrase")
    world.owner.save()

    form = {"username": world.owner.username, "password": "a long pass phrase"}
    cookies = client.post("/login/", form).cookies

    assert {"sessionid", "csrftoken", "signed_in"} <= set(cookies)
    for name, cookie in cookies.items():
        assert cookie["samesite"] == "Lax", name
        assert cookie["domain"] == "", name
        assert cookie["path"] == "/", name
    assert cookies["sessionid"]["httponly"] is True
    assert django_settings.SESSION_SERIALIZER.endswith("JSONSerializer")
