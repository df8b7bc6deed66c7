"""The cache in front of Django when many ask at once, and when the app is slow or fails."""

import asyncio
from functools import partial
from typing import Any

import pytest

from seckill import microcache
from seckill.microcache import MicroCache
from tests.seckill.caches import Answer, Rig, run

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
