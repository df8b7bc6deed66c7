"""The cache in front of Django, driven as an ASGI callable: what it keeps, and for whom."""

import pytest
from django.test import override_settings

from seckill import microcache
from seckill.microcache import django_language
from tests.seckill.caches import Rig, run

# --- what is kept ---------------------------------------------------------------------------------


def test_cache_serves_a_public_page_again_until_its_time_is_over():
    async def scenario(rig: Rig):
        first = await rig.get()
        rig.clock.now += 0.99
        again = await rig.get()
        rig.clock.now += 0.01
        fresh = await rig.get()

        assert (first.body, again.body, fresh.body) == (b"page 1", b"page 1", b"page 2")
        assert (again.status, again.headers["cache-control"]) == (200, "public, max-age=1")

    run(scenario)


def test_cache_says_how_old_a_page_is():
    async def scenario(rig: Rig):
        rig.app.headers["Cache-Control"] = "public, max-age=60"

        assert (await rig.get()).headers["age"] == "0"
        rig.clock.now += 3.5
        assert (await rig.get()).headers["age"] == "3"
        assert rig.app.calls == 1

    run(scenario, max_age_cap=5.0)


def test_cache_caps_the_time_that_the_app_asks_for():
    async def scenario(rig: Rig):
        rig.app.headers["Cache-Control"] = "public, max-age=3600"
        await rig.get()
        rig.clock.now += 1

        assert (await rig.get()).body == b"page 2"

    run(scenario)


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        (200, {"Cache-Control": "max-age=1"}),
        (200, {"Cache-Control": "public"}),
        (200, {"Cache-Control": "public, max-age=0"}),
        (200, {"Cache-Control": "public, max-age=x"}),
        (200, {"Cache-Control": "public, private, max-age=1"}),
        (200, {"Cache-Control": "public, no-store, max-age=1"}),
        (200, {"Cache-Control": "public, s-maxage=0, max-age=1"}),
        (200, {"Set-Cookie": "a=b"}),
        (200, {"Vary": "Accept-Language, Cookie"}),
        (200, {"Vary": "*"}),
        (302, {}),
        (500, {}),
        (206, {}),
    ],
)
def test_cache_keeps_nothing_that_is_not_for_everybody(status, changes):
    async def scenario(rig: Rig):
        rig.app.status = status
        rig.app.headers |= changes

        bodies = [(await rig.get()).body for _ in range(2)]

        assert bodies == [b"page 1", b"page 2"]
        assert len(rig.cache._pages) == 0

    run(scenario)


@pytest.mark.parametrize("status", [301, 404])
@pytest.mark.parametrize(("control", "calls"), [("public, max-age=1", 1), ("", 2)])
def test_cache_keeps_redirects_and_missing_pages_only_if_marked(status, control, calls):
    async def scenario(rig: Rig):
        rig.app.status, rig.app.headers["Cache-Control"] = status, control

        assert [(await rig.get()).status for _ in range(2)] == [status, status]
        assert rig.app.calls == calls

    run(scenario)


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", {}),
        ("PUT", {}),
        ("OPTIONS", {}),
        ("GET", {"authorization": "Bearer x"}),
        ("HEAD", {"authorization": "Bearer x"}),
    ],
)
def test_cache_lets_other_requests_through(method, headers):
    async def scenario(rig: Rig):
        await rig.get()

        answer = await rig.get(method=method, **headers)
        after = await rig.get()

        assert answer.body == b"page 2"
        assert after.body == b"page 1"

    run(scenario)


@pytest.mark.parametrize(
    "headers", [{"range": "bytes=0-1"}, {"content_length": "3"}, {"transfer_encoding": "chunked"}]
)
def test_cache_keeps_no_answer_to_an_odd_request(headers):
    async def scenario(rig: Rig):
        await rig.get(**headers)

        assert len(rig.cache._pages) == 0

    run(scenario)


@pytest.mark.parametrize(
    "other",
    [{"path": "/b"}, {"query": b"page=2"}, {"host": "other.example"}],
)
def test_cache_keeps_urls_apart(other):
    async def scenario(rig: Rig):
        await rig.get()

        assert (await rig.get(**other)).body == b"page 2"
        assert (await rig.get()).body == b"page 1"

    run(scenario)


@override_settings(SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"))
def test_cache_keeps_apart_what_a_proxy_says_is_https():
    async def scenario(rig: Rig):
        await rig.get()

        assert (await rig.get(x_forwarded_proto="https")).body == b"page 2"

    run(scenario)


def test_cache_keeps_variants_by_the_headers_in_vary():
    async def scenario(rig: Rig):
        rig.app.headers["Vary"] = "Accept, X-Theme"

        dark = await rig.get(x_theme="dark")
        light = await rig.get(x_theme="light")

        assert (dark.body, light.body) == (b"page 1", b"page 2")
        assert (await rig.get(x_theme="dark")).body == b"page 1"
        assert (await rig.get(x_theme="light", accept="text/html")).body == b"page 3"

    run(scenario)


def test_cache_keeps_one_variant_for_each_language():
    async def scenario(rig: Rig):
        rig.app.headers["Vary"] = "Accept-Language"
        asked = ["zh-CN,zh;q=0.9", "zh", "de, zh-Hans;q=0.5", "en-GB", "fr", ""]

        bodies = [(await rig.get(accept_language=wish)).body for wish in asked]

        assert bodies == [b"page 1"] * 3 + [b"page 2"] * 3
        chosen = await rig.get(accept_language="zh", cookie="django_language=en")
        assert chosen.body == b"page 2"

    run(scenario)


def test_cache_does_not_fall_for_a_header_sent_twice():
    headers = [(b"accept-language", b"en"), (b"accept-language", b"zh")]

    assert django_language(microcache._read(headers)) == "en"
    assert microcache._read([(b"cookie", b"a=b"), (b"cookie", b"c=d")]) == {b"cookie": b"a=b; c=d"}


def test_cache_drops_the_page_used_longest_ago():
    async def scenario(rig: Rig):
        for path in ("/a", "/b", "/a", "/c"):
            await rig.get(path)

        assert (await rig.get("/a")).body == b"page 1"
        assert (await rig.get("/b")).body == b"page 4"

    run(scenario, max_entries=2)


def test_cache_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(microcache, "TOTAL_BYTES", 10_000)

    async def scenario(rig: Rig):
        rig.app.body = b"x" * 3000
        for number in range(50):
            await rig.get(f"/{number}")
            await rig.get(f"/{number}")

        assert len(rig.cache._pages) == 3
        assert rig.cache._bytes == sum(page.size for page in rig.cache._pages.values())
        assert len(rig.cache._vary) <= 4 * 10
        assert rig.cache._fills == {}

    run(scenario, max_entries=10)


def test_cache_passes_big_bodies_through():
    async def scenario(rig: Rig):
        rig.app.body = b"x" * 101

        answers = [await rig.get() for _ in range(2)]

        assert [answer.body for answer in answers] == [b"x" * 101] * 2
        assert "etag" not in answers[0].headers
        assert rig.app.calls == 2

    run(scenario, max_body=100)


def test_cache_passes_a_body_through_that_turns_out_too_big():
    async def scenario(rig: Rig):
        rig.app.headers["Content-Length"] = "90"
        rig.app.chunks = [b"x" * 60] * 3

        answer = await rig.get()

        assert answer.body == b"x" * 180
        assert len(rig.cache._pages) == 0

    run(scenario, max_body=100)


def test_cache_passes_streams_through_as_they_come():
    async def scenario(rig: Rig):
        rig.app.chunks = [b"one", b"two", b"three"]

        answer = await rig.get()

        assert [message.get("body") for message in answer.messages] == [
            None,
            b"one",
            b"two",
            b"three",
        ]
        assert len(rig.cache._pages) == 0

    run(scenario)


def test_cache_joins_a_body_of_known_length_that_comes_in_pieces():
    async def scenario(rig: Rig):
        rig.app.headers["Content-Length"] = "6"
        rig.app.chunks = [b"one", b"two"]

        assert [(await rig.get()).body for _ in range(2)] == [b"onetwo"] * 2
        assert rig.app.calls == 1

    run(scenario)
