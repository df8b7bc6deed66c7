"""The cache in front of Django, driven as an ASGI callable over an app that counts its calls."""

import asyncio
import re
from functools import partial
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.test import RequestFactory, override_settings

from seckill import microcache
from seckill.csrf_hole import visitor
from seckill.microcache import CSRF_MARKER, MicroCache, django_language

PUBLIC = {"Cache-Control": "public, max-age=1", "Content-Type": "text/html; charset=utf-8"}
FORM = f'<input name="csrfmiddlewaretoken" value="{CSRF_MARKER}">'.encode()
SECRET = "abcdefghijklmnopqrstuvwxyz012345"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class App:
    """Answers with its call number, or with `body`; waits while `gate` is clear."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []
        self.status, self.headers = 200, dict(PUBLIC)
        self.body: bytes | None = None
        self.chunks: list[bytes] | None = None
        self.error: Exception | None = None
        self.fails_at: set[int] | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.sent: list[str] = []

    @property
    def calls(self) -> int:
        return len(self.scopes)

    async def __call__(self, scope, receive, send) -> None:
        self.scopes.append(scope)
        number = self.calls
        body = b"page %d" % number if self.body is None else self.body
        await receive()
        await self.gate.wait()
        if self.error and (self.fails_at is None or number in self.fails_at):
            raise self.error
        headers = [(k.lower().encode(), v.encode()) for k, v in self.headers.items()]
        chunks = self.chunks
        if chunks is None:
            chunks = [body]
            headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for number, chunk in enumerate(chunks, 1):
            more = number < len(chunks)
            await send({"type": "http.response.body", "body": chunk, "more_body": more})
            self.sent.append("chunk")


class Answer:
    def __init__(self, messages: list[dict[str, Any]]) -> None:
        start, *bodies = messages
        self.messages = messages
        self.status = start["status"]
        self.pairs = [(k.decode(), v.decode()) for k, v in start["headers"]]
        self.headers = dict(self.pairs)
        self.body = b"".join(message["body"] for message in bodies)
        assert [message.get("more_body", False) for message in bodies][-1] is False


class Rig:
    """A cache over an App, with a clock to turn."""

    def __init__(self, **limits) -> None:
        self.app, self.clock = App(), Clock()
        self.cache = MicroCache(self.app, clock=self.clock, **limits)

    async def get(self, path="/", method="GET", query=b"", **headers) -> Answer:
        messages: list[dict[str, Any]] = []
        pairs = {"host": "shop.example"} | {k.replace("_", "-"): v for k, v in headers.items()}

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            messages.append(message)

        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": path,
            "query_string": query,
            "headers": [(k.encode(), v.encode()) for k, v in pairs.items()],
        }
        await self.cache(scope, receive, send)
        return Answer(messages)

    def start(self, *args, **kwargs) -> asyncio.Task[Answer]:
        return asyncio.create_task(self.get(*args, **kwargs))

    async def arrived(self, calls: int) -> None:
        """The app has been called so often, and everybody else had time to get in line."""
        while self.app.calls < calls:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)


def run(scenario, **limits) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await scenario(Rig(**limits))

    asyncio.run(bounded())


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


# --- many at once ---------------------------------------------------------------------------------


def test_cache_fetches_a_page_once_for_all_who_ask():
    async def scenario(rig: Rig):
        rig.app.gate.clear()
        tasks = [rig.start() for _ in range(50)]
        await rig.arrived(1)
        rig.app.gate.set()

        answers = await asyncio.gather(*tasks)

        assert [answer.body for answer in answers] == [b"page 1"] * 50
        assert rig.app.calls == 1

    run(scenario)


def test_cache_fetches_once_for_each_language():
    async def scenario(rig: Rig):
        rig.app.headers["Vary"] = "Accept-Language"
        rig.app.gate.clear()
        tasks = [rig.start(accept_language=wish) for wish in ("en", "zh") * 10]
        await rig.arrived(1)
        rig.app.gate.set()

        answers = await asyncio.gather(*tasks)

        assert [answer.body for answer in answers] == [b"page 1", b"page 2"] * 10
        assert rig.app.calls == 2

    run(scenario)


@pytest.mark.parametrize(
    ("status", "control"), [(500, "public, max-age=1"), (200, "no-store"), (302, "")]
)
def test_cache_sends_all_on_their_own_if_the_first_answer_is_not_for_them(status, control):
    async def scenario(rig: Rig):
        rig.app.status, rig.app.headers["Cache-Control"] = status, control
        rig.app.gate.clear()
        tasks = [rig.start() for _ in range(5)]
        await rig.arrived(1)
        assert rig.app.calls == 1
        rig.app.gate.set()

        answers = await asyncio.gather(*tasks)

        assert sorted(answer.body for answer in answers) == [b"page %d" % n for n in range(1, 6)]
        assert [answer.status for answer in answers] == [status] * 5
        assert rig.cache._fills == {}

    run(scenario)


def test_cache_gives_the_error_of_the_first_call_to_the_first_only():
    async def scenario(rig: Rig):
        rig.app.error = LookupError("first")
        rig.app.fails_at = {1}
        rig.app.gate.clear()
        tasks = [rig.start() for _ in range(4)]
        await rig.arrived(1)
        rig.app.gate.set()

        first, *others = await asyncio.gather(*tasks, return_exceptions=True)

        assert type(first) is LookupError
        assert sorted(answer.body for answer in others) == [b"page 2", b"page 3", b"page 4"]
        assert rig.cache._fills == {}

    run(scenario)


def test_cache_finishes_a_page_whose_first_visitor_left():
    async def scenario(rig: Rig):
        rig.app.gate.clear()
        leaver, stayer = rig.start(), rig.start()
        await rig.arrived(1)
        leaver.cancel()
        await asyncio.wait([leaver])
        assert leaver.cancelled()
        rig.app.gate.set()

        assert (await stayer).body == b"page 1"
        assert rig.app.calls == 1

    run(scenario)


def test_cache_ends_a_private_answer_whose_visitor_left():
    async def scenario(rig: Rig):
        rig.app.headers["Cache-Control"] = "no-store"
        rig.app.gate.clear()
        leaver = rig.start()
        await rig.arrived(1)
        leaver.cancel()
        await asyncio.wait([leaver])
        rig.app.gate.set()
        while rig.cache._fills:
            await asyncio.sleep(0)

        # The app met a closed connection instead of talking to nobody for ever.
        assert rig.app.sent == []

    run(scenario)


def test_cache_tells_the_app_of_a_disconnect_only_if_nobody_else_counts_on_it():
    heard: list[str] = []

    async def app(scope, receive, send):
        heard.append((await receive())["type"])
        start = {"type": "http.response.start", "status": 200, "headers": []}
        await send(start)
        heard.append((await receive())["type"])
        await send({"type": "http.response.body", "body": b""})

    async def scenario(rig: Rig):
        rig.cache._app = app
        sent: list[Any] = []

        async def receive():
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        await rig.cache(scope, receive, send)

        assert heard == ["http.request", "http.disconnect"]
        assert len(sent) == 2

    run(scenario)


def test_cache_passes_on_what_the_app_says_after_it_stopped_listening():
    """As the pool does at its deadline: it stops looking whether the client left, then refuses."""

    async def app(scope, receive, send) -> None:
        await receive()
        listening = asyncio.create_task(receive())
        await asyncio.sleep(0)
        listening.cancel()
        await asyncio.wait([listening])
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b"later"})

    async def scenario(rig: Rig) -> None:
        rig.cache = MicroCache(app, clock=rig.clock)

        answer = await rig.get()

        assert (answer.status, answer.body) == (503, b"later")

    run(scenario)


@pytest.mark.parametrize("headers", [[], [(b"range", b"bytes=0-1")]])
def test_cache_hands_on_what_the_send_of_the_server_carries(headers):
    carried: list[Any] = []

    async def app(scope, receive, send):
        carried.append(send.args)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(protocol: str, message: dict[str, Any]) -> None:
        carried.append(protocol)

    async def scenario(rig: Rig):
        rig.cache._app = app
        scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
        await rig.cache(scope, receive, partial(send, "protocol"))

        assert carried == [("protocol",), "protocol", "protocol"]

    run(scenario)


def test_cache_does_not_queue_up_requests_for_a_page_known_as_private():
    async def scenario(rig: Rig):
        rig.app.headers["Cache-Control"] = "private"
        await rig.get()
        rig.app.gate.clear()

        tasks = [rig.start() for _ in range(3)]
        await rig.arrived(4)

        assert rig.app.calls == 4
        rig.app.gate.set()
        await asyncio.gather(*tasks)
        rig.app.headers["Cache-Control"] = "public, max-age=1"
        assert (await rig.get()).body == b"page 5"
        assert (await rig.get()).body == b"page 5"

    run(scenario)


def test_cache_works_on_in_the_next_loop():
    rig = Rig()

    async def stuck() -> asyncio.Task[Answer]:
        rig.app.gate.clear()
        task = rig.start()
        await rig.arrived(1)
        return task

    async def later() -> Answer:
        rig.app.gate = asyncio.Event()
        rig.app.gate.set()
        async with asyncio.timeout(5):
            return await rig.get()

    with asyncio.Runner() as stopped:
        task = stopped.run(stuck())
        another = asyncio.new_event_loop()
        try:
            assert another.run_until_complete(later()).body == b"page 2"
        finally:
            another.close()
        assert not task.done()


# --- old copies -----------------------------------------------------------------------------------


def test_cache_serves_the_old_page_while_one_request_fetches_the_new():
    async def scenario(rig: Rig):
        await rig.get()
        rig.clock.now += 1.5
        rig.app.gate.clear()
        first = rig.start()
        await rig.arrived(2)

        others = [(await rig.get()).body for _ in range(3)]
        rig.app.gate.set()

        assert others == [b"page 1"] * 3
        assert (await first).body == b"page 2"
        assert (await rig.get()).body == b"page 2"
        assert rig.app.calls == 2

    run(scenario)


def test_cache_waits_for_the_new_page_when_the_old_is_too_old():
    async def scenario(rig: Rig):
        await rig.get()
        rig.clock.now += 2.5
        rig.app.gate.clear()
        tasks = [rig.start() for _ in range(3)]
        await rig.arrived(2)
        rig.app.gate.set()

        assert [task.body for task in await asyncio.gather(*tasks)] == [b"page 2"] * 3
        assert rig.app.calls == 2

    run(scenario)


@pytest.mark.parametrize("failure", ["status", "exception"])
def test_cache_serves_the_old_page_while_the_app_fails(failure):
    async def scenario(rig: Rig):
        await rig.get()
        rig.app.status = 503 if failure == "status" else 200
        rig.app.error = OSError() if failure == "exception" else None

        rig.clock.now += 5
        answers = [await rig.get() for _ in range(10)]
        assert [(a.status, a.body, a.headers["age"]) for a in answers] == [
            (200, b"page 1", "5")
        ] * 10
        # Not each of them tried; the next try comes a second later.
        assert rig.app.calls == 2
        rig.clock.now += 1
        await rig.get()
        assert rig.app.calls == 3

        rig.app.status, rig.app.error = 200, None
        rig.clock.now += 1
        assert (await rig.get()).body == b"page 4"

    run(scenario)


def test_cache_shows_the_failure_when_the_old_page_is_too_old():
    async def scenario(rig: Rig):
        await rig.get()
        rig.app.status = 503
        rig.clock.now += 11

        assert (await rig.get()).status == 503

    run(scenario)


def test_cache_serves_the_old_page_while_the_app_hangs(monkeypatch):
    monkeypatch.setattr(microcache, "PATIENCE", 0.02)

    async def scenario(rig: Rig):
        await rig.get()
        rig.clock.now += 5
        rig.app.gate.clear()

        bodies = [answer.body for answer in await asyncio.gather(*(rig.get() for _ in range(5)))]

        assert bodies == [b"page 1"] * 5
        assert rig.app.calls == 2
        rig.app.gate.set()
        while rig.cache._fills:
            await asyncio.sleep(0)
        assert (await rig.get()).body == b"page 2"

    run(scenario)


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
