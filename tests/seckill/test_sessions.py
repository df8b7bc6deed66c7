"""Who a bare Cookie header belongs to."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from seckill.sessions import session_user
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    made: User = UserFactory()
    return made


@pytest.fixture
def cookie(client: Client, user: User) -> bytes:
    client.force_login(user)
    return b"a=b; sessionid=%b; c=d" % client.cookies["sessionid"].value.encode()


def _log_out(user: User, client: Client) -> None:
    client.logout()


def _deactivate(user: User, client: Client) -> None:
    User.objects.update(is_active=False)


def _change_password(user: User, client: Client) -> None:
    user.set_password("another")
    user.save()


def _delete(user: User, client: Client) -> None:
    user.delete()


def _expire(user: User, client: Client) -> None:
    Session.objects.update(expire_date=timezone.now())


def test_session_user_is_the_one_signed_in(user: User, cookie: bytes) -> None:
    assert session_user(cookie) == user.pk


@pytest.mark.parametrize("end", [_log_out, _deactivate, _change_password, _delete, _expire])
def test_session_user_is_nobody_after(
    client: Client, user: User, cookie: bytes, end: Callable[[User, Client], None]
) -> None:
    end(user, client)

    assert session_user(cookie) is None


@pytest.mark.parametrize(
    "cookie",
    [
        b"",
        b"sessionid=",
        b"sessionid=nonsense",
        b"sessionid=\xff\x00",
        b"sessionid=" + b"x" * 100_000,
        b";;==;",
        b"SESSIONID=a",
    ],
)
def test_session_user_is_nobody_without_a_session(cookie: bytes) -> None:
    assert session_user(cookie) is None


def test_session_user_asks_no_database_without_a_session_cookie(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    with django_assert_num_queries(0):
        assert session_user(b"csrftoken=abc") is None
