"""What the cache answers: 304, HEAD, and each visitor's own token in a page for everybody."""

import asyncio
import re

import pytest
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.test import RequestFactory, override_settings

from seckill.csrf_hole import visitor
from tests.seckill.caches import FORM, SECRET, Answer, Rig, run

# --- conditional requests and HEAD ----------------------------------------------------------------


def test_cache_answers_304_to_who_has_the_page():
    async def scenario(rig: Rig):
        first = await rig.get()
        tag = first.headers["etag"]
        assert re.fullmatch(r'"[0-9a-f]{32}"', tag)

        for wanted in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            answer = await rig.get(if_none_match=wanted)
            assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", tag)
            assert "content-length" not in answer.headers
            assert answer.headers["cache-control"] == "public, max-age=1"
        for wanted in ('"x"', tag.strip('"'), ""):
            assert (await rig.get(if_none_match=wanted)).status == 200

    run(scenario)


def test_cache_answers_304_also_when_it_has_to_fetch_the_page():
    async def scenario(rig: Rig):
        rig.app.body = b"same"
        tag = (await rig.get()).headers["etag"]
        rig.clock.now += 20

        answer = await rig.get(if_none_match=tag)

        assert answer.status == 304
        # The app was not asked conditionally, or nobody else could have used its answer.
        assert [k for k, _ in rig.app.scopes[-1]["headers"]] == [b"host"]

    run(scenario)


def test_cache_keeps_the_etag_of_the_app():
    async def scenario(rig: Rig):
        rig.app.headers["ETag"] = 'W/"v7"'

        assert [v for k, v in (await rig.get()).pairs if k == "etag"] == ['W/"v7"']
        assert (await rig.get(if_none_match='"v7"')).status == 304

    run(scenario)


def test_cache_answers_head_from_a_kept_page():
    async def scenario(rig: Rig):
        full = await rig.get()

        head = await rig.get(method="HEAD")

        assert (head.status, head.body, head.pairs) == (200, b"", full.pairs)
        assert rig.app.calls == 1
        await rig.get("/other", method="HEAD")
        assert rig.app.scopes[-1]["method"] == "HEAD"

    run(scenario)


def test_cache_gives_each_answer_its_own_request_id():
    async def scenario(rig: Rig):
        rig.app.headers |= {"X-Request-Id": "of-the-first-request", "Server-Timing": "db;dur=9"}

        first, second = await rig.get(), await rig.get()
        echoed = await rig.get(x_request_id="mine-12345")
        evil = await rig.get(x_request_id="no spaces")

        ids = [answer.headers["x-request-id"] for answer in (first, second, evil)]
        assert [re.fullmatch("[0-9a-f]{32}", name) is not None for name in ids] == [True] * 3
        assert len(set(ids)) == 3
        assert echoed.headers["x-request-id"] == "mine-12345"
        assert "server-timing" not in second.headers

    run(scenario)


# --- the visitor's token --------------------------------------------------------------------------


def post_passes(token: str, secret: str) -> bool:
    """Whether Django accepts a form with this token from a browser with this cookie."""
    request = RequestFactory(enforce_csrf_checks=True).post("/", {"csrfmiddlewaretoken": token})
    request.COOKIES["csrftoken"] = secret
    middleware = CsrfViewMiddleware(lambda request: HttpResponse())
    middleware.process_request(request)
    return middleware.process_view(request, lambda request: HttpResponse(), (), {}) is None


def token_in(answer: Answer) -> str:
    return re.fullmatch(rb'<input name="csrfmiddlewaretoken" value="(.*)">', answer.body)[
        1
    ].decode()


def test_hole_gets_a_token_that_django_accepts():
    async def scenario(rig: Rig):
        rig.app.body = FORM

        miss, hit = [await rig.get(cookie=f"a=b; csrftoken={SECRET}") for _ in range(2)]

        assert rig.app.calls == 1
        for answer in (miss, hit):
            assert post_passes(token_in(answer), SECRET)
            assert not post_passes(token_in(answer), SECRET[::-1])
            assert "set-cookie" not in answer.headers
            assert answer.headers["content-length"] == str(len(answer.body))
        assert token_in(miss) != token_in(hit)

    run(scenario)


@pytest.mark.parametrize(
    "cookie", ["", "csrftoken=", "csrftoken=short", f"csrftoken={SECRET[1:]}é"]
)
def test_hole_gives_a_new_visitor_a_secret_of_his_own(cookie):
    async def scenario(rig: Rig):
        rig.app.body = FORM

        answers = [await rig.get(cookie=cookie) for _ in range(3)]

        secrets = [re.match(r"csrftoken=(\w{32});", a.headers["set-cookie"])[1] for a in answers]
        assert len(set(secrets)) == 3
        for answer, secret in zip(answers, secrets, strict=True):
            assert post_passes(token_in(answer), secret)
        assert not post_passes(token_in(answers[0]), secrets[1])

    run(scenario)


@override_settings(
    CSRF_COOKIE_NAME="crumb",
    CSRF_COOKIE_PATH="/shop",
    CSRF_COOKIE_DOMAIN="shop.example",
    CSRF_COOKIE_SECURE=True,
    CSRF_COOKIE_HTTPONLY=True,
    CSRF_COOKIE_SAMESITE="Strict",
    CSRF_COOKIE_AGE=60,
)
def test_hole_sets_the_cookie_as_django_does():
    set_cookie = visitor({}).set_cookie.decode()

    name, *attributes = re.sub("expires=[^;]*", "expires=…", set_cookie).split("; ")

    request, response = HttpRequest(), HttpResponse()
    request.META |= {"CSRF_COOKIE": SECRET, "CSRF_COOKIE_NEEDS_UPDATE": True}
    CsrfViewMiddleware(lambda request: response).process_response(request, response)
    theirs = re.sub("expires=[^;]*", "expires=…", response.cookies["crumb"].OutputString())
    assert attributes == theirs.split("; ")[1:]
    assert re.fullmatch(r"crumb=\w{32}", name)


def test_hole_makes_the_page_private():
    async def scenario(rig: Rig):
        rig.app.body = FORM
        rig.app.headers |= {
            "Vary": "Accept-Language",
            "Expires": "Thu, 01 Jan 2099 00:00:00 GMT",
            "CDN-Cache-Control": "max-age=9",
        }

        for _ in range(2):
            answer = await rig.get(cookie=f"csrftoken={SECRET}")
            assert [v for k, v in answer.pairs if k == "cache-control"] == ["private, no-cache"]
            assert [v for k, v in answer.pairs if k == "vary"] == ["accept-language, cookie"]
            assert {"expires", "cdn-cache-control"} & answer.headers.keys() == set()

    run(scenario)


def test_hole_304_is_bound_to_the_secret():
    async def scenario(rig: Rig):
        rig.app.body = FORM
        mine, other = f"csrftoken={SECRET}", f"csrftoken={SECRET[::-1]}"
        tag = (await rig.get(cookie=mine)).headers["etag"]

        assert tag.startswith('W/"')
        assert SECRET not in tag
        again = await rig.get(cookie=mine, if_none_match=tag)
        assert (again.status, again.headers["cache-control"]) == (304, "private, no-cache")
        assert (await rig.get(cookie=other, if_none_match=tag)).status == 200
        assert (await rig.get(if_none_match=tag)).status == 200

    run(scenario)


@pytest.mark.parametrize("headers", [{"Set-Cookie": "a=b"}, {"Vary": "Cookie"}])
def test_hole_is_filled_in_public_pages_that_can_not_be_kept(headers):
    async def scenario(rig: Rig):
        rig.app.body = FORM
        rig.app.headers |= headers
        rig.app.gate.clear()
        tasks = [rig.start(cookie=f"csrftoken={SECRET}") for _ in range(3)]
        await rig.arrived(1)
        rig.app.gate.set()

        for answer in await asyncio.gather(*tasks):
            assert post_passes(token_in(answer), SECRET)
            assert answer.headers.get("set-cookie") == headers.get("Set-Cookie")
        assert rig.app.calls == 3

    run(scenario)


@pytest.mark.parametrize(
    "headers",
    [
        {"Cache-Control": "no-store"},
        {"Content-Type": "application/json"},
        {"Content-Encoding": "gzip"},
    ],
)
def test_hole_is_filled_in_public_html_only(headers):
    async def scenario(rig: Rig):
        rig.app.body = FORM
        rig.app.headers |= headers

        assert (await rig.get()).body == FORM

    run(scenario)


def test_hole_tokens_use_every_character_of_the_alphabet_evenly():
    seen = "".join(visitor({}).token.decode() for _ in range(1000))

    counts = [seen.count(char) for char in set(seen)]
    assert len(counts) == 62
    # 64,000 characters: 1032 of each, and 8 standard deviations around it.
    assert min(counts) > 775
    assert max(counts) < 1290
