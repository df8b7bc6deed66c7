"""The plan of a seed: the same every time, and everything in turn."""

from itertools import chain, islice

import pytest

from tests.chaos.history import Entry, History, read
from tests.chaos.nemesis import PROCESSES, hits, menu, plan
from tests.chaos.site import Channel


@pytest.mark.parametrize("channel", ["broadcast", "zookeeper"])
def test_plan_is_the_same_for_the_same_seed(channel: Channel) -> None:
    first = list(plan(7, 600, channel))

    assert first == list(plan(7, 600, channel))
    assert first != list(plan(8, 600, channel))


@pytest.mark.parametrize("channel", ["broadcast", "zookeeper"])
def test_plan_that_is_long_enough_holds_every_fault(channel: Channel) -> None:
    decks = chain.from_iterable(menu(channel).values())
    wanted = set(chain.from_iterable(decks))

    planned = {(step.component, step.fault) for step in plan(7, 2_000, channel)}

    assert planned == wanted


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("channel", ["broadcast", "zookeeper"])
def test_ten_minutes_hit_everything_twenty_times(channel: Channel, seed: int) -> None:
    # A plan of as many steps as a run carries out in the time.
    steps = islice(plan(seed, 1_000, channel), 200)
    faults = [
        Entry("fault", "ok", 0, 1, told={"component": step.component, "fault": step.fault})
        for step in steps
    ]

    found = hits(faults)

    servers = {"postgres", "redis", "rabbitmq"} | ({"zookeeper"} & {channel})
    assert {name: found[name] for name in (*PROCESSES, *servers) if found[name] < 20} == {}


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
