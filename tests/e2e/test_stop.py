"""The ordinary end: everything that was asked to stop has done so soon, without complaint."""

import signal

import pytest

from tests.e2e.shop import Shop
from tests.support.load import unknown
from tests.support.processes import family, is_alive
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]


def test_stop_of_all_processes_is_clean(shop: Shop) -> None:
    sale_id = shop.create_sale(500)
    load = shop.load(again=unknown).run(shop.tickets(sale_id, 500))
    members = shop.stack.members.values()
    everybody = [process for member in members for process in family(member.pid)]

    for member in members:
        shop.stack.send(member.name, signal.SIGTERM)

    wait_until(lambda: not any(member.is_running for member in members), 15)
    codes = {m.name: m.process.returncode for m in members if m.process is not None}
    assert codes == dict.fromkeys(shop.stack.members, 0)
    assert not [process for process in everybody if is_alive(process)]
    for name in shop.stack.members:
        shop.stack.launch(name)
    shop.wait_decided(sale_id, load.accepted())
    assert shop.rest(sale_id)["allocated"] == 500
