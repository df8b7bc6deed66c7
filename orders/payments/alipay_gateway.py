"""Alipay: page payments (alipay.trade.page.pay), signed with RSA2.

The window: Alipay's own timer (`timeout_express`) starts when the buyer enters its cashier, and
anew each time; so we name the moment (`time_expire`), and close the trade when the order is over.
"""

import hmac
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID
from zoneinfo import ZoneInfo

from alipay import AliPay, AliPayConfig
from alipay.exceptions import AliPayException, AliPayValidationError
from django.conf import settings
from django.utils import timezone

from orders.payments.providers import (
    FAILED,
    REFUNDED,
    SUCCEEDED,
    Acknowledgement,
    Bill,
    Event,
    GatewayError,
    MalformedEvent,
    Page,
    RefundReport,
    Report,
    SignatureInvalid,
    Standing,
)
from orders.presentation import money, parse_money

TIMEZONE = ZoneInfo("Asia/Shanghai")
SHORTEST = timedelta(minutes=1)  # the nearest moment that it takes for time_expire
TIMEOUT = 10  # seconds, of the client's socket; calls.call stops waiting sooner
CURRENCY = "CNY"  # what this product is settled in
_OK, _NO_SUCH_TRADE, _WRONG_STATE = "10000", "ACQ.TRADE_NOT_EXIST", "ACQ.TRADE_STATUS_ERROR"

_STANDINGS = {
    "WAIT_BUYER_PAY": Standing.PENDING,
    "TRADE_SUCCESS": Standing.SUCCEEDED,
    "TRADE_FINISHED": Standing.SUCCEEDED,
    "TRADE_CLOSED": Standing.FAILED,
}


class Alipay:
    name = "alipay"
    remote = True
    acknowledgement = Acknowledgement("text/plain", "success")

    @cached_property
    def client(self) -> Any:
        return AliPay(
            appid=settings.ALIPAY_APP_ID,
            app_private_key_string=Path(settings.ALIPAY_PRIVATE_KEY_FILE).read_text(),
            alipay_public_key_string=Path(settings.ALIPAY_PUBLIC_KEY_FILE).read_text(),
            debug=settings.ALIPAY_SANDBOX,
            config=AliPayConfig(timeout=TIMEOUT),
        )

    def create(self, bill: Bill) -> Page:
        """Alipay knows nothing of it before the buyer comes to its cashier."""
        number = _number(bill)
        query = self.client.api_alipay_trade_page_pay(
            subject=bill.subject[:256],
            out_trade_no=number,
            total_amount=money(bill.amount_cents),
            return_url=f"{settings.SITE_URL}/orders/{bill.order_id}/",
            notify_url=f"{settings.SITE_URL}/api/v1/payments/alipay/webhook",
            time_expire=_moment(bill.pay_before),
            passback_params=bill.order_id,
        )
        return Page(f"{self.client._gateway}?{query}", number)

    def parse_webhook(self, body: bytes, headers: Mapping[str, str]) -> Event:
        fields = self._checked(body)
        if not hmac.compare_digest(fields.get("app_id", ""), str(settings.ALIPAY_APP_ID)):
            raise MalformedEvent("for another app")
        try:
            payment_id = str(UUID(fields["out_trade_no"]))
            notify_id, status = fields["notify_id"], fields["trade_status"]
        except (KeyError, ValueError) as error:
            raise MalformedEvent(f"a field is missing or wrong: {error}") from None
        # A refund is told by the amount that went back so far, whatever the trade's status.
        returned = parse_money(fields.get("refund_fee", ""))
        return Event(
            event_id=notify_id[:100],
            kind=REFUNDED if returned else _KINDS.get(status, f"alipay.{status}"[:100]),
            payment_id=payment_id,
            order_id=fields.get("passback_params", ""),
            amount_cents=returned or parse_money(fields.get("total_amount", "")),
            currency=fields.get("trans_currency", CURRENCY),
            reference=fields.get("trade_no", ""),
        )

    def _checked(self, body: bytes) -> dict[str, str]:
        try:
            fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
            signature = fields.pop("sign")
            if not self.client.verify(dict(fields), signature):
                raise SignatureInvalid("wrong signature")
        except (KeyError, ValueError, AliPayException) as error:
            raise SignatureInvalid(str(error)) from None
        return fields

    def query(self, bill: Bill) -> Report:
        answer = self._ask(lambda: self.client.api_alipay_trade_query(out_trade_no=_number(bill)))
        if answer.get("sub_code") == _NO_SUCH_TRADE:
            return Report(Standing.PENDING)
        _expect_ok(answer)
        standing = _STANDINGS.get(answer.get("trade_status", ""), Standing.PENDING)
        if standing is Standing.FAILED and answer.get("send_pay_date"):
            standing = Standing.REFUNDED  # Closed after it was paid: all of it went back.
        amount = parse_money(str(answer.get("total_amount", "")))
        return Report(standing, amount, CURRENCY, str(answer.get("trade_no", "")))

    def close(self, bill: Bill) -> bool:
        answer = self._ask(lambda: self.client.api_alipay_trade_close(out_trade_no=_number(bill)))
        if answer.get("sub_code") == _WRONG_STATE:
            return False
        # It knows no trade that the buyer hasn't opened; then time_expire keeps it shut.
        if answer.get("sub_code") != _NO_SUCH_TRADE:
            _expect_ok(answer)
        return True

    def refund(self, bill: Bill, *, refund_id: str) -> RefundReport:
        answer = self._ask(
            lambda: self.client.api_alipay_trade_refund(
                refund_amount=money(bill.amount_cents),
                out_trade_no=_number(bill),
                out_request_no=refund_id,
            )
        )
        _expect_ok(answer)
        # The same request again is answered alike, but with fund_change N: it is done either way.
        return RefundReport(done=True, reference=str(answer.get("trade_no", "")))

    def _ask(self, call: Callable[[], Any]) -> dict[str, Any]:
        try:
            answer = call()
        except (OSError, ValueError, AliPayException, AliPayValidationError) as error:
            raise GatewayError(f"alipay: {error}") from error
        if not isinstance(answer, dict):
            raise GatewayError("alipay: an answer that is none")
        return answer


_KINDS = {
    "TRADE_SUCCESS": SUCCEEDED,
    "TRADE_FINISHED": SUCCEEDED,
    "TRADE_CLOSED": FAILED,
}


def _number(bill: Bill) -> str:
    """Our number of the trade: letters and digits, at most 64."""
    return UUID(bill.payment_id).hex


def _moment(pay_before: datetime) -> str:
    soonest = timezone.now() + SHORTEST
    return max(pay_before, soonest).astimezone(TIMEZONE).strftime("%Y-%m-%d %H:%M:%S")


def _expect_ok(answer: dict[str, Any]) -> None:
    if answer.get("code") != _OK:
        code = answer.get("sub_code") or answer.get("code")
        raise GatewayError(f"alipay: {code} {answer.get('sub_msg', '')}")
