"""Error pages: in the visitor's language, with an id to ask about and a way on."""

import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import OperationalError
from django.test import Client
from django.utils import translation

from seckill import problems

pytestmark = pytest.mark.django_db


class Broken:
    """Makes the list of sales raise."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client, self._patch = client, monkeypatch
        client.raise_request_exception = False

    def by(self, error: Exception) -> None:
        def offers() -> None:
            raise error

        self._patch.setattr("seckill.catalog.offers", offers)


@pytest.fixture
def broken(client: Client, monkeypatch: pytest.MonkeyPatch) -> Broken:
    return Broken(client, monkeypatch)


PAGES: list[tuple[Exception, int, str]] = [
    (SuspiciousOperation("secret"), 400, "bad_request"),
    (PermissionDenied("secret"), 403, "forbidden"),
    (RuntimeError("secret"), 500, "internal"),
    (OperationalError("secret"), 503, "unavailable"),
]


@pytest.mark.parametrize(("error", "status", "code"), PAGES)
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_error_page_says_what_and_what_now(
    broken: Broken, error: Exception, status: int, code: str, language: str
) -> None:
    broken.by(error)
    headers = {"accept-language": language, "x-request-id": "request-1234"}

    response = broken.client.get("/", headers=headers)

    with translation.override(language):
        title = str(problems.CODES[code].title)
    assert (response.status_code, f"<h1>{title}</h1>" in response.text) == (status, True)
    assert f'<html lang="{language}">' in response.text
    assert "request-1234" in response.text
    assert 'href="/"' in response.text
    assert "secret" not in response.text
    assert "no-store" in response["Cache-Control"]


def test_unavailable_page_comes_again_by_itself(broken: Broken) -> None:
    broken.by(OperationalError("away"))

    response = broken.client.get("/")

    wait = response["Retry-After"]
    assert f'<noscript><meta http-equiv="refresh" content="{wait}"></noscript>' in response.text
    assert f'data-wait="{wait}"' in response.text
    assert "again.js" in response.text


@pytest.mark.parametrize(("method", "path"), [("post", "/"), ("get", "/logout/"), ("put", "/me/")])
def test_wrong_method_is_a_page_too(client: Client, method: str, path: str) -> None:
    response = getattr(client, method)(path)

    assert (response.status_code, "Method not allowed" in response.text) == (405, True)
    assert response["Allow"]
