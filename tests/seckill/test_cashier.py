"""The sandbox's cashier: what its buttons write, and how its messages are delivered."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError
from pytest_django.fixtures import Settings

from orders import tasks
from orders.models import Order, Payment, Status
from orders.payments import asking, sandbox, sandbox_notices
from orders.payments.models import SandboxCharge, SandboxNotice
from tests.factories import PaymentFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def payment(buyer: User) -> Payment:
    made: Payment = PaymentFactory(order__user=buyer, started=True)
    return made


def press(client: Client, payment: Payment, result: str) -> str:
    response = client.post(f"/cashier/{payment.pk}/", {"result": result})
    assert response.status_code == 302
    return response["Location"]


def test_cashier_says_that_it_is_a_test_and_shows_all_buttons(
    signed_in: Client, payment: Payment
) -> None:
    page = signed_in.get(f"/cashier/{payment.pk}/").text

    assert "TEST" in page
    for action in sandbox.Action:
        assert f'name="result" value="{action}"' in page
    assert 'src="data:image/svg+xml' in page


@pytest.mark.parametrize(
    ("result", "kinds", "charge"),
    [
        ("pay", ["payment.succeeded"], "captured_at"),
        ("twice", ["payment.succeeded"] * 2, "captured_at"),
        ("late", ["payment.succeeded"], "captured_at"),
        ("slow", ["payment.succeeded"], "captured_at"),
        ("never", [], "captured_at"),
        ("fail", ["payment.failed"], "failed_at"),
    ],
)
def test_cashier_writes_in_the_gateways_book_only(
    signed_in: Client, payment: Payment, result: str, kinds: list[str], charge: str
) -> None:
    assert press(signed_in, payment, result) == f"/orders/{payment.order_id}/"

    assert getattr(SandboxCharge.objects.get(), charge) is not None
    notices = SandboxNotice.objects.all()
    assert [notice.kind for notice in notices] == kinds
    assert len({notice.event_id for notice in notices}) == len(set(kinds))
    assert {n.url for n in notices} <= {"http://testserver/api/v1/payments/sandbox/webhook"}
    assert Order.objects.get().status == Status.UNPAID


def test_cashier_late_money_is_on_its_way_and_comes_after_the_order_is_over(
    signed_in: Client, payment: Payment, settings: Settings
) -> None:
    settings.SWEEP_INTERVAL = 5

    press(signed_in, payment, "late")

    taken = SandboxCharge.objects.get().captured_at
    assert taken > payment.order.pay_before + timedelta(seconds=10)
    assert SandboxNotice.objects.get().due_at == taken
    assert asking.ask_due() == 0  # Not taken yet, and it can't be stopped.


def test_cashier_takes_one_answer_only(signed_in: Client, payment: Payment) -> None:
    for result in ("pay", "fail", "twice"):
        press(signed_in, payment, result)

    assert SandboxCharge.objects.get().failed_at is None
    assert SandboxNotice.objects.count() == 1


def test_cashier_takes_no_money_for_a_payment_that_was_closed(
    signed_in: Client, payment: Payment
) -> None:
    Order.objects.update(pay_before=timezone.now())
    Payment.objects.update(ask_at=timezone.now())
    assert asking.ask_due() == 1

    press(signed_in, payment, "pay")

    assert SandboxCharge.objects.get().captured_at is None


def test_cashier_of_an_unknown_button_shows_itself_again(
    signed_in: Client, payment: Payment
) -> None:
    assert press(signed_in, payment, "gold") == f"/cashier/{payment.pk}/"
    assert SandboxCharge.objects.count() == 0


def test_cashier_is_not_there_where_the_sandbox_is_off(
    signed_in: Client, payment: Payment, settings: Settings
) -> None:
    settings.PAYMENT_PROVIDERS = ["stripe"]

    assert signed_in.get(f"/cashier/{payment.pk}/").status_code == 404


def test_cashier_does_without_the_broker(
    signed_in: Client, payment: Payment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise BrokerError("away")

    monkeypatch.setattr(tasks.send_sandbox_notices, "delay", away)

    press(signed_in, payment, "pay")

    assert SandboxNotice.objects.filter(due_at__lte=timezone.now()).count() == 1


# --- delivery -------------------------------------------------------------------------------------


class Inbox(HTTPServer):
    """Answers the shop's part with the next of `answers`; keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.answers: list[int] = []
        self.received: list[tuple[str, bytes, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class Receiver(BaseHTTPRequestHandler):
    server: Inbox

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, body, self.headers["X-Signature"]))
        self.send_response(self.server.answers.pop(0))
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with Inbox() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_send_due_delivers_a_signed_message(payment: Payment, inbox: Inbox) -> None:
    inbox.answers = [200]
    sandbox.act(payment, sandbox.Action.PAY, webhook_url=inbox.url)

    tasks.send_sandbox_notices()

    ((path, body, signature),) = inbox.received
    event = sandbox.Sandbox().parse_webhook(body, {"x-signature": signature})
    assert (path, event.kind, event.payment_id) == ("/hook", "payment.succeeded", str(payment.pk))
    assert sandbox_notices.send_due() == 0


def test_send_due_repeats_the_same_message_until_it_is_answered_with_200(
    payment: Payment, inbox: Inbox
) -> None:
    inbox.answers = [503, 404, 200]
    sandbox.act(payment, sandbox.Action.PAY, webhook_url=inbox.url)

    delivered = []
    for _ in range(4):
        delivered.append(sandbox_notices.send_due())
        assert sandbox_notices.send_due() == 0  # The next attempt has its time.
        SandboxNotice.objects.update(due_at=timezone.now())

    assert delivered == [0, 0, 1, 0]
    assert len({body for _, body, _ in inbox.received}) == 1


def test_send_due_waits_longer_and_longer(payment: Payment) -> None:
    sandbox.act(payment, sandbox.Action.PAY, webhook_url="http://127.0.0.1:1/")
    waits = []
    for _ in sandbox_notices.WAITS:
        SandboxNotice.objects.update(due_at=timezone.now())
        assert sandbox_notices.send_due() == 0
        waits.append(round((SandboxNotice.objects.get().due_at - timezone.now()).total_seconds()))

    assert waits == list(sandbox_notices.WAITS)
    SandboxNotice.objects.update(due_at=timezone.now())
    sandbox_notices.send_due()
    assert SandboxNotice.objects.get().due_at > timezone.now() + timedelta(days=365)


def test_send_due_keeps_a_slow_message_back(payment: Payment, inbox: Inbox) -> None:
    sandbox.act(payment, sandbox.Action.SLOW, webhook_url=inbox.url)

    assert sandbox_notices.send_due() == 0
    assert inbox.received == []
