"""Bare requests get the language that Django's own middleware would choose."""

from typing import Any

import pytest
from django.http import HttpResponse
from django.middleware.locale import LocaleMiddleware
from django.test import RequestFactory
from django.utils import translation
from pytest_django.fixtures import Settings

from seckill import languages


@pytest.mark.parametrize(
    ("accept", "cookie", "language"),
    [
        ("", "", "en"),
        ("zh", "", "zh-hans"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "", "zh-hans"),
        ("zh-TW", "", "zh-hans"),
        ("fr,zh;q=0.2", "", "zh-hans"),
        ("fr", "", "en"),
        ("en;q=0.1,zh;q=0.9", "", "zh-hans"),
        ("en", "django_language=zh-hans", "zh-hans"),
        ("zh", "a=b; django_language=en; c=d", "en"),
        ("zh", "django_language=klingon", "zh-hans"),
        ("zh", "not_django_language=en", "zh-hans"),
        ("\xff\x00,;q=,*", "django_language=\xff;;=", "en"),
        ("x" * 100_000, "", "en"),
    ],
)
def test_choose_agrees_with_the_middleware(
    rf: RequestFactory, accept: str, cookie: str, language: str
) -> None:
    chosen: list[str] = []

    def view(request: Any) -> HttpResponse:
        chosen.append(request.LANGUAGE_CODE)
        return HttpResponse()

    LocaleMiddleware(view)(rf.get("/", HTTP_ACCEPT_LANGUAGE=accept, HTTP_COOKIE=cookie))
    translation.activate("en")

    ours = languages.choose(accept.encode("latin-1"), cookie.encode("latin-1"))
    assert ours == chosen[0] == language


def test_choose_follows_a_change_of_settings(settings: Settings) -> None:
    assert languages.choose(b"zh", b"") == "zh-hans"

    settings.LANGUAGES = [("en", "English")]

    assert languages.choose(b"zh", b"") == "en"
