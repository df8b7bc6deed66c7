"""What every answer carries, whoever makes it: Django, the lane, the static files."""

import re
from collections.abc import Iterator

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from config.asgi import Application
from inventory import redis_clients
from tests.factories import UserFactory
from tests.security.addresses import admin_addresses, shop_addresses
from tests.security.conftest import World
from tests.security.test_ownership import admin_values, client_of, values
from tests.support.asgi import Exchange, Host

pytestmark = pytest.mark.usefixtures("checks")
INLINE = re.compile(r"<script(?![^>]* src=)(?![^>]*type=\"application/json\")|\son\w+=\"")


def policy(header: str) -> dict[str, str]:
    return dict(part.strip().partition(" ")[::2] for part in header.split(";"))


def assert_strict(header: str, *, where: str) -> None:
    told = policy(header)
    assert told["default-src"] == "'none'", where
    assert (told["frame-ancestors"], told["base-uri"]) == ("'none'", "'none'"), where
    assert "unsafe" not in header, where
    assert "*" not in header, where
    assert "http:" not in header, where
    assert set(told["script-src"].split()) <= {"'self'"} | set(
        re.findall(r"'nonce-[^']+'", told["script-src"])
    ), where


def test_every_page_has_the_strict_policy(world: World) -> None:
    """The admin as well: it works without inline code, so it is given no more."""
    client = client_of(UserFactory(staff=True))
    places = [(a, values(world)) for a in shop_addresses()]
    places += [(a, admin_values(world)) for a in admin_addresses()]

    for address, given in places:
        response = client.get(address.path(given))
        headers = response.headers
        assert_strict(headers["Content-Security-Policy"], where=address.route)
        assert headers["X-Content-Type-Options"] == "nosniff", address.route
        assert headers["Referrer-Policy"] == "same-origin", address.route
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin", address.route
        assert headers["X-Frame-Options"] == "DENY", address.route
        if headers["Content-Type"].startswith("text/html"):
            assert not INLINE.search(response.text), address.route


def test_what_a_session_sees_is_kept_by_no_cache(world: World) -> None:
    client = client_of(world.owner)

    for path in ("/orders/", f"/orders/{world.order.pk}/", "/me/", "/api/v1/orders", "/login/"):
        control = client.get(path, headers={"accept-language": "en"}).headers["Cache-Control"]
        assert "no-store" in control, path
        assert "public" not in control, path


@pytest.fixture
def process() -> Iterator[tuple[Host, Application]]:
    host, application = Host(), Application()
    yield host, application
    application.pool.close()

    async def let_go() -> None:
        client = redis_clients._async.pop(host.loop, None)
        if client is not None:
            await client.aclose()

    host.call(let_go())
    host.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/livez", 200),
        ("GET", "/static/seckill/style.css", 200),
        ("GET", "/static/nothing", 404),
        ("GET", "/static/../config/settings.py", 404),
        ("GET", "/static/..%2f..%2fconfig/settings.py", 404),
        ("GET", "/static//etc/passwd", 404),
        ("GET", "/nothing", 404),
        ("POST", "/api/v1/sales/1/purchases", 401),
        ("GET", "/api/v1/sales/1/purchases/x", 404),
        ("PUT", "/api/v1/sales/1/purchases", 405),
        ("GET", "/api/v1/time", 200),
    ],
)
def test_no_answer_is_guessed_at(
    process: tuple[Host, Application], method: str, path: str, status: int
) -> None:
    host, application = process

    answer = host.call(Exchange(method, path).run(application))

    assert answer.status == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert b"SECRET_KEY" not in answer.body
    assert b"root:" not in answer.body


# --- who is in front ------------------------------------------------------------------------------


def test_a_direct_caller_can_not_say_that_it_came_by_https(
    client: Client, db: None, settings: Settings
) -> None:
    headers = {
        "x-forwarded-proto": "https",
        "x-forwarded-ssl": "on",
        "x-forwarded-host": "evil.example",
    }

    response = client.get("/login/", headers=headers)

    assert response.wsgi_request.scheme == "http"
    assert response.wsgi_request.get_host() == "testserver"
    assert (settings.SECURE_PROXY_SSL_HEADER, settings.USE_X_FORWARDED_HOST) == (None, False)
    assert "evil.example" not in response.text


@pytest.mark.parametrize(
    "host",
    ["evil.example", "testserver.evil.example", "testserver@evil.example", "a b", "[::1", ""],
)
@pytest.mark.parametrize("path", ["/", "/login/", "/api/v1/time", "/admin/login/"])
def test_a_host_that_is_not_ours_is_refused(client: Client, db: None, host: str, path: str) -> None:
    response = client.get(path, headers={"host": host, "x-forwarded-host": "testserver"})

    assert response.status_code == 400
    assert "evil.example" not in response.text


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "https:evil.example",
        "https://evil.example/",
        "\\\\evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "http:///evil.example",
        "\t//evil.example",
        "https://testserver@evil.example",
    ],
)
def test_nobody_is_sent_to_another_site(client: Client, target: str, db: None) -> None:
    UserFactory(username="boss", staff=True, with_password=True)
    form = {"username": "boss", "password": "boss", "next": target}
    new = {
        "username": "dora",
        "password1": "long enough 7x",
        "password2": "long enough 7x",
        "next": target,
    }

    for path, data in (
        ("/i18n/setlang/", {"language": "en", "next": target}),
        ("/login/", form),
        ("/admin/login/", form),
        ("/register/", new),
        ("/logout/", {"next": target}),
    ):
        response = Client().post(path, data)
        assert response.status_code == 302, path
        assert re.match(r"/(?![/\\])", response["Location"]), (path, response["Location"])
