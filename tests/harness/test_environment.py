"""The tests' settings come from the harness alone, and the locks belong together."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import redis
from django.conf import settings

from tests.conftest import RunDuring
from tests.support import environment


def locked(path: str) -> set[str]:
    text = (environment.ROOT / path).read_text()
    return set(re.findall(r"^([a-z0-9-]+==\S+)", text, re.MULTILINE))


def test_development_lock_holds_the_whole_run_time_lock() -> None:
    assert locked("requirements.txt") - locked("requirements/dev.txt") == set()


def test_locks_name_no_index() -> None:
    for path in ("requirements.txt", "requirements/dev.txt"):
        assert "://" not in (environment.ROOT / path).read_text()


def test_settings_point_at_private_back_ends(redis_client: redis.Redis) -> None:
    assert environment.redis_url() == settings.REDIS_URL
    assert redis_client.ping()
    assert Path(settings.VAR_DIR) != environment.ROOT / "var"


def test_neutral_environment_holds_nothing_that_the_product_reads() -> None:
    neutral = environment.neutral()

    assert {"DATABASE_URL", "REDIS_URL", "SECRET_KEY", "PAYMENT_WINDOW"} <= environment.knobs()
    assert neutral.keys() & environment.knobs() == set()
    assert neutral["PATH"] == os.environ["PATH"]


def test_redis_is_empty_for_each_test_once(redis_client: redis.Redis) -> None:
    assert redis_client.set("left over", 1, nx=True)


def test_redis_is_empty_for_each_test_twice(redis_client: redis.Redis) -> None:
    assert redis_client.set("left over", 1, nx=True)


def test_run_during_lets_a_rival_act_before_the_first_call_only(run_during: RunDuring) -> None:
    seen: list[str] = []
    target = SimpleNamespace(act=seen.append)
    run_during(target, "act", lambda: seen.append("rival"))

    target.act("first")
    target.act("second")

    assert seen == ["rival", "first", "second"]
