"""Sign in, register, sign out; languages; error pages."""

import gettext
import re
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from seckill import problems
from tests.factories import FlashSaleFactory, UserFactory

pytestmark = pytest.mark.django_db

GOOD = {"username": "alice", "password1": "correct horse", "password2": "correct horse"}
FOREIGN = [
    "//evil.example",
    "https:evil.example",
    "https://evil.example/",
    "\\\\evil.example",
    "javascript:alert(1)",
]
CATALOGS = sorted(Path(django_settings.BASE_DIR).glob("*/locale/zh_Hans/LC_MESSAGES/django.po"))


@pytest.fixture
def alice() -> User:
    user: User = UserFactory(username="alice", with_password=True)
    return user


def test_login_goes_on_where_it_was_wanted(client: Client, alice: User) -> None:
    answers = {"username": "alice", "password": "alice", "next": "/sales/7/"}

    assert client.post("/login/", answers)["Location"] == "/sales/7/"


@pytest.mark.parametrize("target", FOREIGN)
def test_login_leads_nowhere_else(client: Client, alice: User, target: str) -> None:
    answers = {"username": "alice", "password": "alice", "next": target}

    assert client.post("/login/", answers)["Location"] == "/"


def test_login_tells_nobody_which_part_was_wrong(client: Client, alice: User) -> None:
    def told(username: str) -> str:
        page = client.post("/login/", {"username": username, "password": "wrong"}).text
        return re.sub(r'value="[^"]*"', "", page)

    assert told("alice") == told("nobody")


def test_login_changes_the_session_key(client: Client, alice: User) -> None:
    client.cookies[django_settings.SESSION_COOKIE_NAME] = "a" * 32

    client.post("/login/", {"username": "alice", "password": "alice"})

    assert client.cookies[django_settings.SESSION_COOKIE_NAME].value != "a" * 32


def test_login_helps_password_managers(client: Client) -> None:
    page = client.get("/login/").text

    assert 'autocomplete="username"' in page
    assert 'autocomplete="current-password"' in page


def test_register_makes_an_account_and_signs_it_in(client: Client) -> None:
    response = client.post("/register/", GOOD | {"next": "/sales/7/"})

    assert response["Location"] == "/sales/7/"
    assert client.get("/orders/").status_code == 200
    user = User.objects.get(username="alice")
    assert (user.is_staff, user.is_superuser, user.check_password("correct horse")) == (
        False,
        False,
        True,
    )


@pytest.mark.parametrize("target", FOREIGN)
def test_register_leads_nowhere_else(client: Client, target: str) -> None:
    assert client.post("/register/", GOOD | {"next": target})["Location"] == "/"


def test_register_gives_nobody_more_rights(client: Client) -> None:
    client.post("/register/", GOOD | {"is_staff": "on", "is_superuser": "on"})

    assert User.objects.get(username="alice").is_staff is False


@pytest.mark.parametrize(
    "changes",
    [{"username": ""}, {"password2": "other"}, {"password1": "123", "password2": "123"}],
)
def test_register_refuses_what_does_not_fit(client: Client, changes: dict[str, str]) -> None:
    response = client.post("/register/", GOOD | changes)

    assert (response.status_code, "errorlist" in response.text) == (200, True)
    assert User.objects.count() == 0


def test_register_refuses_a_name_that_is_taken(client: Client, alice: User) -> None:
    assert "already exists" in client.post("/register/", GOOD).text


def test_logout_needs_a_form_and_ends_the_session(client: Client, alice: User) -> None:
    client.force_login(alice)

    assert client.get("/logout/").status_code == 405
    assert client.get("/orders/").status_code == 200
    assert client.post("/logout/")["Location"] == "/"
    assert client.get("/orders/").status_code == 302


# --- languages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "lang", "text"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh-hans", "限时秒杀"),
        ("zh-Hans", "zh-hans", "限时秒杀"),
        ("en-GB,en;q=0.9,zh;q=0.1", "en", "Flash sales"),
        ("fr,de;q=0.5", "en", "Flash sales"),
        ("", "en", "Flash sales"),
    ],
)
def test_page_is_in_the_browsers_language(
    client: Client, accept: str, lang: str, text: str
) -> None:
    response = client.get("/", headers={"accept-language": accept})

    assert f'<html lang="{lang}">' in response.text
    assert text in response.text
    assert "Accept-Language" in response["Vary"]


def test_language_switch_keeps_the_page_and_is_remembered(client: Client) -> None:
    sale = FlashSaleFactory()
    here = f"/sales/{sale.pk}/"

    response = client.post("/i18n/setlang/", {"language": "zh-hans", "next": here})

    assert response["Location"] == here
    assert '<html lang="zh-hans">' in client.get(here).text


@pytest.mark.parametrize("catalog", CATALOGS, ids=lambda path: path.parts[-5])
def test_catalog_is_complete_and_compiled(catalog: Path) -> None:
    text = catalog.read_text().split("\n\n", 1)[1]
    with catalog.with_suffix(".mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)

    for msgid in re.findall(r'^msgid "(.+)"$', text, re.MULTILINE):
        assert compiled.gettext(msgid) != msgid or compiled.ngettext(msgid, "", 1) != msgid, msgid
    assert "fuzzy" not in text
    assert not re.search(r'^msgstr(\[0\])? ""$', text, re.MULTILINE)


def test_catalogs_are_of_all_three_apps() -> None:
    assert [path.parts[-5] for path in CATALOGS] == ["inventory", "orders", "seckill"]


@pytest.mark.parametrize("code", problems.CODES)
def test_problem_texts_are_translated(code: str) -> None:
    kind = problems.CODES[code]
    with translation.override("en"):
        english = (str(kind.title), str(kind.detail))

    with translation.override("zh-hans"):
        assert str(kind.title) != english[0]
        assert str(kind.detail) != english[1]


# --- error pages ----------------------------------------------------------------------------------


def test_not_found_page_is_ours(client: Client) -> None:
    response = client.get("/nothing/here", headers={"x-request-id": "request-1234"})

    assert response.status_code == 404
    assert "Not found" in response.text
    assert "request-1234" in response.text
    assert response["X-Request-Id"] == "request-1234"


def test_bad_host_page_is_ours(client: Client) -> None:
    response = client.get("/", headers={"host": "evil.example"})

    assert (response.status_code, "Bad request" in response.text) == (400, True)


def test_server_error_page_is_ours_and_tells_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("seckill.catalog.offers", broken)
    client.raise_request_exception = False

    response = client.get("/")

    assert (response.status_code, "Something went wrong" in response.text) == (500, True)
    assert "secret detail" not in response.text
