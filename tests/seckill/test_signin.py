"""The limit on tries to sign in: shared, atomic, and never a way to lock somebody else out."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.test import Client
from redis.exceptions import ConnectionError as RedisConnectionError

from inventory import keys, redis_clients
from seckill import signin
from seckill.signin import NAME_RATE, NETWORK_RATE
from tests.factories import UserFactory

HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"


def tries(number: int, *, network: str = HERE, name: str = "alice") -> list[int]:
    return [signin.hit(network, name) for _ in range(number)]


def test_hit_allows_some_and_then_tells_how_long_to_wait() -> None:
    waits = tries(NAME_RATE.limit + 2)

    assert waits[: NAME_RATE.limit] == [0] * NAME_RATE.limit
    step = math.ceil(NAME_RATE.window / NAME_RATE.limit)
    assert all(0 < wait <= step for wait in waits[NAME_RATE.limit :])


@pytest.mark.parametrize(("network", "name"), [(ELSEWHERE, "alice"), (HERE, "bob")])
def test_hit_locks_nobody_else_out(network: str, name: str) -> None:
    tries(NAME_RATE.limit + 5)

    assert signin.hit(network, name) == 0


def test_hit_takes_other_spellings_of_a_name_for_the_same() -> None:
    waits = [signin.hit(HERE, name) for name in ("alice", "ALICE", " alice ") * 3]

    assert sum(wait == 0 for wait in waits) == NAME_RATE.limit


def test_hit_bounds_a_network_that_tries_many_names() -> None:
    waits = [signin.hit(HERE, f"name{number}") for number in range(NETWORK_RATE.limit + 5)]

    assert sum(wait == 0 for wait in waits) == NETWORK_RATE.limit
    assert signin.hit(ELSEWHERE, "name0") == 0


def test_hit_is_atomic() -> None:
    with ThreadPoolExecutor(16) as pool:
        waits = list(pool.map(lambda _: signin.hit(HERE, "alice"), range(64)))

    assert sum(wait == 0 for wait in waits) == NAME_RATE.limit


def test_forgive_gives_a_try_back() -> None:
    for number in range(NETWORK_RATE.limit + 20):
        assert signin.hit(HERE, f"name{number}") == 0
        signin.forgive(HERE, f"name{number}")

    assert redis_clients.sync_client().exists(keys.signin(HERE, "all")) == 0


def test_hit_counts_alone_while_redis_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: object) -> int:
        raise RedisConnectionError("away")

    monkeypatch.setattr(signin, "_run", away)
    signin._local.cache_clear()

    assert sum(wait == 0 for wait in tries(NAME_RATE.limit + 3)) == NAME_RATE.limit
    signin._local.cache_clear()


# --- the form -------------------------------------------------------------------------------------


@pytest.fixture
def alice(db: None) -> User:
    user: User = UserFactory(username="alice", with_password=True)
    return user


def attempt(client: Client, password: str, **more: str) -> int:
    answers = {"username": "alice", "password": password}
    return client.post("/login/", answers, **more).status_code  # type: ignore[arg-type]


def test_form_says_how_long_to_wait_even_to_who_knows_the_password(
    client: Client, alice: User
) -> None:
    wrong = [attempt(client, "wrong") for _ in range(NAME_RATE.limit)]

    response = client.post("/login/", {"username": "alice", "password": "alice"})

    assert wrong == [200] * NAME_RATE.limit
    assert response.status_code == 429
    assert f"Try again in {response['Retry-After']} second" in response.text
    assert "alice" not in response.text


def test_form_lets_the_owner_in_from_elsewhere(client: Client, alice: User) -> None:
    for _ in range(NAME_RATE.limit + 1):
        attempt(client, "wrong")

    assert attempt(Client(), "alice", REMOTE_ADDR=ELSEWHERE) == 302


def test_form_counts_only_what_failed(client: Client, alice: User) -> None:
    statuses = [attempt(Client(), "alice") for _ in range(NAME_RATE.limit + 3)]

    assert statuses == [302] * (NAME_RATE.limit + 3)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded"])
def test_form_is_not_fooled_by_headers(client: Client, alice: User, header: str) -> None:
    statuses = [
        client.post(
            "/login/",
            {"username": "alice", "password": "wrong"},
            headers={header: f"198.51.100.{n}"},
        ).status_code
        for n in range(NAME_RATE.limit + 1)
    ]

    assert statuses[-1] == 429
