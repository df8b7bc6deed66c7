"""Signing in, also to the admin: counted, alike for who exists and who doesn't, a new session."""

import pytest
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.contrib.auth.models import User
from django.test import Client

from inventory import keys, redis_clients
from seckill import signin
from seckill.signin import NAME_RATE, REGISTER_RATE
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
ADMIN, SHOP = "/admin/login/", "/login/"
both = pytest.mark.parametrize("path", [SHOP, ADMIN])
# Whatever a caller writes about where it comes from.
SPOOFS = [
    {name: f"198.51.100.{number}"}
    for number, name in enumerate(
        ["X-Forwarded-For", "X-Real-IP", "Forwarded", "X_Forwarded_For", "X-Forwarded_For"] * 4
    )
]


@pytest.fixture
def boss() -> User:
    made: User = UserFactory(username="boss", staff=True, with_password=True)
    return made


def attempt(client: Client, path: str, password: str, name: str = "boss", **more: str) -> int:
    form = {"username": name, "password": password}
    return client.post(path, form, headers=more).status_code


@both
def test_guessing_is_slowed_down(client: Client, boss: User, path: str) -> None:
    wrong = [attempt(client, path, "wrong") for _ in range(NAME_RATE.limit)]

    response = client.post(path, {"username": "boss", "password": "boss"})

    assert wrong == [200] * NAME_RATE.limit
    assert response.status_code == 429
    assert int(response["Retry-After"]) >= 1
    assert "_auth_user_id" not in client.session


def test_a_try_at_one_form_counts_at_the_other(client: Client, boss: User) -> None:
    for number in range(NAME_RATE.limit):
        attempt(client, (ADMIN, SHOP)[number % 2], "wrong")

    assert [attempt(client, path, "boss") for path in (ADMIN, SHOP)] == [429, 429]


def test_admin_counts_only_what_failed(boss: User) -> None:
    statuses = [attempt(Client(), ADMIN, "boss") for _ in range(NAME_RATE.limit + 3)]

    assert statuses == [302] * (NAME_RATE.limit + 3)


def test_admin_counts_for_who_is_signed_in_already(client: Client, boss: User) -> None:
    client.force_login(UserFactory())

    statuses = [attempt(client, ADMIN, "wrong") for _ in range(NAME_RATE.limit + 1)]

    assert statuses == [200] * NAME_RATE.limit + [429]


def test_admin_counts_buyers_who_have_no_business_there(client: Client) -> None:
    """A right password of somebody else's is told as a wrong one, and counts as one."""
    UserFactory(username="boss", with_password=True)

    statuses = [attempt(client, ADMIN, "boss") for _ in range(NAME_RATE.limit + 1)]

    assert statuses == [200] * NAME_RATE.limit + [429]


@both
def test_headers_of_the_caller_change_nothing(client: Client, boss: User, path: str) -> None:
    statuses = [attempt(client, path, "wrong", **spoof) for spoof in SPOOFS]

    assert statuses[NAME_RATE.limit :] == [429] * (len(SPOOFS) - NAME_RATE.limit)
    counters = redis_clients.sync_client().keys(keys.signin("*", "*"))
    assert len(counters) == 2  # this name from here, and all names from here


def test_registering_is_bounded_for_a_network(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must tell that a name is taken; so it tells few of them."""
    # Otherwise one more is allowed each second, and a slow machine takes that long.
    monkeypatch.setattr(signin, "REGISTER_RATE", REGISTER_RATE._replace(window=3600))
    UserFactory(username="boss")
    form = {"username": "boss", "password1": "x", "password2": "x"}

    statuses = [client.post("/register/", form).status_code for _ in range(REGISTER_RATE.limit + 2)]

    assert statuses == [200] * REGISTER_RATE.limit + [429] * 2
    assert User.objects.count() == 1


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the hasher was asked to do: it is nearly all the time that an answer takes."""
    done: list[str] = []
    for name in ("encode", "verify"):
        original = getattr(Argon2PasswordHasher, name)

        def counted(self, *args, name=name, original=original):
            done.append(name)
            return original(self, *args)

        monkeypatch.setattr(Argon2PasswordHasher, name, counted)
    return done


@both
def test_a_name_that_is_none_takes_as_long_and_sounds_the_same(
    client: Client, boss: User, hashes: list[str], path: str
) -> None:
    page = {}
    for name in ("boss", "nobody"):
        hashes.clear()
        text = client.post(path, {"username": name, "password": "wrong"}).context["form"]
        page[name] = str(text.non_field_errors()), len(hashes)

    assert page["boss"] == page["nobody"]
    assert page["boss"][1] == 1


def test_passwords_are_kept_as_argon2(client: Client) -> None:
    form = {"username": "carol", "password1": "long enough 7x", "password2": "long enough 7x"}

    client.post("/register/", form)

    assert User.objects.get().password.startswith("argon2$argon2id$")


@both
def test_a_session_of_before_is_worth_nothing_after(boss: User, path: str) -> None:
    """Who planted a session id in somebody's browser isn't signed in with it."""
    client, planted = Client(), Client()
    client.get("/login/")
    session = client.session
    session["planted"] = True
    session.save()
    planted.cookies["sessionid"] = client.cookies["sessionid"] = str(session.session_key)

    attempt(client, path, "boss")

    assert client.session.session_key != session.session_key
    assert client.session["_auth_user_id"] == str(boss.pk)
    assert planted.get("/orders/").status_code == 302


def test_a_changed_password_ends_other_sessions(boss: User) -> None:
    client = Client()
    client.force_login(boss)

    boss.set_password("another one 5y")
    boss.save()

    assert client.get("/orders/").status_code == 302
    assert client.get("/admin/").status_code == 302


@pytest.mark.parametrize("key", ["x" * 9000, '"\\000\\000\\000\\000\\000\\000\\000\\000"', "é" * 9])
def test_a_session_that_is_none_is_nobody(client: Client, key: str) -> None:
    headers = {"cookie": f"sessionid={key}"}

    assert client.get("/me/", headers=headers).json()["name"] is None
    assert client.get("/orders/", headers=headers).status_code == 302
    assert client.get("/api/v1/orders", headers=headers).status_code == 401
