"""Deadlines, clients that leave, signals, connections and forks: what PooledDjango's threads do."""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.db import connections

from config import pool
from config.pool import PooledDjango
from tests.config.pool_site import PATIENCE, Client, gates, get, run, start, use_database, wait_for

pytestmark = pytest.mark.usefixtures("pool_site")

SOON = 0.05  # seconds; a deadline that a test waits for


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


# --- deadlines ----------------------------------------------------------------------------------


def test_pool_answers_unavailable_at_the_deadline() -> None:
    client = run(lambda app: get(app, "/blocked"), deadline=SOON)

    assert (client.status, client.body[:16]) == (503, b"The site is busy")
    assert (b"retry-after", b"1") in client.headers


@pytest.mark.parametrize(("method", "again"), [("GET", True), ("POST", False)])
def test_pool_answers_a_browser_with_a_page_that_can_try_again(method: str, again: bool) -> None:
    browser = [(b"accept", b"text/html,application/xhtml+xml")]
    client = run(lambda app: get(app, "/blocked", method=method, headers=browser), deadline=SOON)

    assert dict(client.headers)[b"content-type"] == b"text/html; charset=utf-8"
    assert (b'<a href="">Try again' in client.body) is again
    assert b"The site is busy" in client.body
    assert "请稍后再试" in client.body.decode()


def test_pool_answers_a_problem_document_under_api() -> None:
    client = run(lambda app: get(app, "/api/blocked"), deadline=SOON)

    assert dict(client.headers)[b"content-type"] == b"application/problem+json"
    assert json.loads(client.body)["code"] == "unavailable"


def test_pool_refuses_at_once_while_every_thread_is_stuck() -> None:
    async def scenario(app: PooledDjango) -> list[Any]:
        await get(app, "/blocked")
        stuck = app.stuck
        refused = await get(app, "/plain")
        with pytest.raises(TimeoutError, match="no thread is free"):
            await app.run(len, "", deadline=1)
        gates.leave.set()
        await until(lambda: app.stuck == 0)
        served = await get(app, "/plain")
        return [stuck, refused.status, served.status, gates.calls]

    # The refused request never reached its view: only `blocked` and the last `plain` did.
    assert run(scenario, threads=1, deadline=SOON) == [1, 503, 200, 2]


def test_pool_refuses_what_its_queue_cannot_hold() -> None:
    async def scenario(app: PooledDjango) -> list[int]:
        first = Client("/blocked")
        tasks = [start(app, first)]
        await wait_for(gates.entered)
        tasks.append(start(app, Client("/plain")))
        await asyncio.sleep(0)
        refused = await get(app, "/plain")
        gates.leave.set()
        await asyncio.gather(*tasks)
        return [refused.status, first.status]

    assert run(scenario, threads=1, queue_size=1, deadline=PATIENCE) == [503, 200]


def test_pool_drops_queued_work_at_its_deadline() -> None:
    async def scenario(app: PooledDjango) -> int:
        tasks = [start(app, Client("/blocked"))]
        await wait_for(gates.entered)
        refused = await get(app, "/plain")
        gates.leave.set()
        await asyncio.gather(*tasks)
        await until(lambda: app.stuck == 0)
        return refused.status

    assert run(scenario, threads=1, deadline=2 * SOON) == 503
    assert gates.calls == 1


def test_pool_lets_a_stream_outlast_the_deadline() -> None:
    async def scenario(app: PooledDjango) -> Client:
        client, loop = Client("/numbers"), asyncio.get_running_loop()
        begin = loop.time()

        async def send(message: Any) -> None:
            client.messages.append(message)
            if len(client.messages) == 3:
                await until(lambda: loop.time() > begin + 3 * SOON)

        await app(client.scope, client.receive, send)
        return client

    client = run(scenario, deadline=SOON)

    assert client.status == 200
    assert client.complete


# --- clients that leave -------------------------------------------------------------------------


def test_pool_never_starts_the_work_of_a_client_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "WATCH_AFTER", 0.0)

    async def scenario(app: PooledDjango) -> list[Any]:
        first, second = Client("/blocked"), Client("/plain")
        running = start(app, first)
        await wait_for(gates.entered)
        queued = start(app, second)
        second.leave()
        await asyncio.wait_for(queued, PATIENCE)
        gates.leave.set()
        await running
        return [first.status, second.messages, (await get(app, "/plain")).status]

    assert run(scenario, threads=1, deadline=PATIENCE) == [200, [], 200]
    assert gates.calls == 2


def test_pool_finishes_the_view_of_a_client_that_left_and_drops_the_answer() -> None:
    finished = threading.Event()

    def note(**_: Any) -> None:
        finished.set()

    async def scenario(app: PooledDjango) -> list[Any]:
        client = Client("/blocked")
        task = start(app, client)
        await wait_for(gates.entered)
        client.leave()
        await asyncio.wait_for(task, PATIENCE)
        before = finished.is_set()
        gates.leave.set()
        await wait_for(finished)
        return [before, client.messages]

    request_finished.connect(note)
    try:
        assert run(scenario, threads=1, deadline=PATIENCE) == [False, []]
    finally:
        request_finished.disconnect(note)


@pytest.mark.parametrize("leave_while", ["sending", "waiting"])
def test_pool_closes_the_stream_of_a_client_that_left(leave_while: str) -> None:
    async def scenario(app: PooledDjango) -> Client:
        client = Client("/numbers")

        async def send(message: Any) -> None:
            client.messages.append(message)
            if len(client.messages) == 3:
                client.leave()
                if leave_while == "sending":
                    # The disconnect arrives before the next chunk is asked for.
                    for _ in range(3):
                        await asyncio.sleep(0)

        await app(client.scope, client.receive, send)
        await wait_for(gates.closed)
        return client

    client = run(scenario)

    assert not client.complete
    assert gates.produced < 1000


def test_pool_closes_the_stream_when_sending_fails() -> None:
    async def scenario(app: PooledDjango) -> None:
        client = Client("/numbers")

        async def send(message: Any) -> None:
            client.messages.append(message)
            if len(client.messages) == 3:
                raise ConnectionResetError

        await app(client.scope, client.receive, send)
        await wait_for(gates.closed)

    run(scenario)

    assert gates.produced < 1000


def test_pool_closes_the_stream_of_a_client_that_stops_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "STALL", SOON)

    async def scenario(app: PooledDjango) -> None:
        client = Client("/numbers")

        async def send(message: Any) -> None:
            client.messages.append(message)
            if len(client.messages) == 3:
                await asyncio.Event().wait()

        await app(client.scope, client.receive, send)
        await wait_for(gates.closed)

    run(scenario)

    assert gates.produced < 1000


def test_pool_closes_the_stream_when_the_server_cancels() -> None:
    async def scenario(app: PooledDjango) -> None:
        client, reached = Client("/numbers"), asyncio.Event()

        async def send(message: Any) -> None:
            client.messages.append(message)
            if len(client.messages) == 3:
                reached.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(app(client.scope, client.receive, send))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_for(gates.closed)

    run(scenario)


# --- signals and connections --------------------------------------------------------------------


@contextmanager
def signals_noted() -> Iterator[None]:
    def started(**_: Any) -> None:
        gates.seen.append(("started", threading.get_ident()))

    def finished(**_: Any) -> None:
        gates.seen.append(("finished", threading.get_ident()))

    request_started.connect(started)
    request_finished.connect(finished)
    try:
        yield
    finally:
        request_started.disconnect(started)
        request_finished.disconnect(finished)


def test_pool_sends_the_request_signals_in_the_thread_of_the_view() -> None:
    with signals_noted():
        run(lambda app: get(app, "/thread"))

    assert [name for name, _ in gates.seen] == ["started", "view", "finished"]
    assert len({thread for _, thread in gates.seen}) == 1
    assert gates.seen[0][1] != threading.get_ident()


def test_pool_sends_request_finished_after_the_last_chunk() -> None:
    with signals_noted():
        run(lambda app: get(app, "/numbers"))

    assert [name for name, _ in gates.seen] == ["started", "finished"]
    assert gates.produced == 1000


@pytest.mark.django_db(transaction=True)
def test_pool_keeps_the_connection_of_a_thread() -> None:
    async def scenario(app: PooledDjango) -> None:
        await get(app, "/database")
        await get(app, "/database")
        await app.run(connections.close_all)

    run(scenario, threads=1)

    first, second = gates.seen
    assert first is second


@pytest.mark.django_db(transaction=True)
def test_pool_closes_a_connection_that_is_too_old() -> None:
    async def scenario(app: PooledDjango) -> None:
        await get(app, "/database?expire")
        # Before anything else runs in that thread.
        await until(lambda: bool(gates.closings))
        await app.run(connections.close_all)

    run(scenario, threads=1)


# --- other work in the same threads -------------------------------------------------------------


def test_run_returns_the_result_from_a_pool_thread() -> None:
    name = run(lambda app: app.run(lambda: threading.current_thread().name))

    assert name == "django-0"


@pytest.mark.parametrize("error", [LookupError, StopIteration, SystemExit])
def test_run_raises_what_the_function_raised(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("on purpose")

    async def scenario(app: PooledDjango) -> int:
        with pytest.raises(LookupError if error is LookupError else RuntimeError):
            await app.run(fail)
        return await app.run(len, "still there")

    assert run(scenario, threads=1) == 11


def test_run_raises_timeout_error_at_the_deadline() -> None:
    async def scenario(app: PooledDjango) -> list[int]:
        with pytest.raises(TimeoutError):
            await app.run(gates.leave.wait, PATIENCE, deadline=SOON)
        stuck = app.stuck
        gates.leave.set()
        await until(lambda: app.stuck == 0)
        return [stuck, await app.run(len, "four")]

    assert run(scenario, threads=1) == [1, 4]


@pytest.mark.django_db(transaction=True)
def test_run_closes_a_connection_that_is_too_old() -> None:
    async def scenario(app: PooledDjango) -> None:
        await app.run(partial(use_database, too_old=True))
        await until(lambda: bool(gates.closings))
        await app.run(connections.close_all)

    run(scenario, threads=1)


# --- loops and processes ------------------------------------------------------------------------


def test_pool_serves_one_event_loop_after_another() -> None:
    app = PooledDjango(threads=1)
    try:
        statuses = [asyncio.run(get(app, "/plain")).status for _ in range(3)]
    finally:
        app.close(timeout=PATIENCE)

    assert statuses == [200, 200, 200]


def test_pool_refuses_after_close() -> None:
    app = PooledDjango(threads=1)
    app.close()

    assert asyncio.run(get(app, "/plain")).status == 503


def test_pool_starts_threads_of_its_own_after_a_fork() -> None:
    app = PooledDjango(threads=1)
    asyncio.run(get(app, "/plain"))

    child = os.fork()
    if child == 0:
        # Nothing but the exit code may leave the child, least of all a test report.
        code = 1
        try:
            code = int(asyncio.run(get(app, "/plain")).status != 200)
        finally:
            os._exit(code)
    _, ended = os.waitpid(child, 0)
    app.close(timeout=PATIENCE)

    assert os.waitstatus_to_exitcode(ended) == 0
