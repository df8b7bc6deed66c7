"""The plan of a seed: the same every time, and everything in turn."""

from itertools import chain

import pytest

from tests.chaos.history import Entry, History, read
from tests.chaos.nemesis import menu, plan
from tests.chaos.site import Channel


@pytest.mark.parametrize("channel", ["broadcast", "zookeeper"])
def test_plan_is_the_same_for_the_same_seed(channel: Channel) -> None:
    first = list(plan(7, 600, channel))

    assert first == list(plan(7, 600, channel))
    assert first != list(plan(8, 600, channel))


@pytest.mark.parametrize("channel", ["broadcast", "zookeeper"])
def test_plan_that_is_long_enough_holds_every_fault(channel: Channel) -> None:
    wanted = set(chain.from_iterable(menu(channel)))

    planned = {(step.component, step.fault) for step in plan(7, 1_000, channel)}

    assert planned == wanted


def test_plan_keeps_to_its_time() -> None:
    steps = list(plan(7, 60, "broadcast"))

    assert 45 < sum(step.lasting + step.rest for step in steps) <= 60
    assert {step.component == "point" for step in steps} == {True, False}


def test_history_reads_what_it_wrote(tmp_path) -> None:
    file = tmp_path / "history.jsonl"
    history = History(file)
    history.add(Entry("buy", "ok", 1.5, 2.0, user=3, told={"purchase_id": "x"}))
    history.add(Entry("fault", "fail", 2, 3, target="redis", told={"fault": "kill"}))
    history.close()

    assert read(file.read_text().splitlines()).entries == history.entries
