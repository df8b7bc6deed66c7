"""Errors as `application/problem+json` (RFC 9457), by a stable code; the lane uses it too."""

from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

MEDIA_TYPE = "application/problem+json"


class Kind(NamedTuple):
    status: int
    title: "Promise | str"
    detail: "Promise | str"
    retry_after: int | None = None


class Problem(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


CODES: dict[str, Kind] = {
    # --- buying ---
    "token_required": Kind(
        401, _("Purchase token required"), _("Send the purchase token that you were given.")
    ),
    "token_invalid": Kind(
        403, _("Purchase token not valid"), _("Get a new purchase token and try again.")
    ),
    "not_open": Kind(403, _("Not open yet"), _("The sale has not started.")),
    "sold_out": Kind(
        409, _("Sold out"), _("All units are taken. Some may come back if others don't pay.")
    ),
    "rebuy_not_allowed": Kind(
        409, _("No second try"), _("You had an order in this sale, and it allows no second try.")
    ),
    "duplicate": Kind(409, _("Ordered already"), _("You have an order in this sale already.")),
    "closed": Kind(410, _("Sale over"), _("The sale is over.")),
    "quantity_invalid": Kind(
        422,
        _("Quantity not allowed"),
        _("Ask for a whole number of units within the limit of the sale."),
    ),
    "rate_limited": Kind(429, _("Too many tries"), _("Wait a little and try again."), 1),
    "paused": Kind(503, _("Sale paused"), _("The sale is paused. It goes on soon."), 5),
    "unavailable": Kind(
        503,
        _("Not available just now"),
        _("Try again in a moment. Asking twice buys only once."),
        2,
    ),
    "failed": Kind(
        409, _("Order not created"), _("The order could not be created. You were not charged.")
    ),
    "captcha_invalid": Kind(422, _("Check not passed"), _("Solve a new challenge and try again.")),
    # --- orders and payments ---
    "order_not_payable": Kind(
        409, _("Order can't be paid"), _("The order is paid, over, or past its deadline.")
    ),
    "payment_unavailable": Kind(
        503,
        _("Payment not available just now"),
        _("The payment provider does not answer. Your order waits: try again in a moment."),
        3,
    ),
    "order_not_cancelable": Kind(
        409, _("Order can't be canceled"), _("Only an unpaid order can be canceled.")
    ),
    "signature_invalid": Kind(
        400,
        _("Signature not valid"),
        _("The signature of the message is missing, wrong or too old."),
    ),
    # --- any request ---
    "bad_request": Kind(400, _("Bad request"), _("The request could not be understood.")),
    "login_required": Kind(
        401, _("Sign in first"), _("This needs an account. Sign in and try again.")
    ),
    "csrf_failed": Kind(
        403,
        _("Request not trusted"),
        _("The security token is missing or old. Reload the page and try again."),
    ),
    "forbidden": Kind(403, _("Not allowed"), _("You may not do this.")),
    "not_found": Kind(
        404, _("Not found"), _("There is nothing at this address, or it is not yours.")
    ),
    "method_not_allowed": Kind(
        405, _("Method not allowed"), _("This address does not answer to that method.")
    ),
    "too_large": Kind(413, _("Too large"), _("The request is larger than allowed.")),
    "unsupported_media_type": Kind(
        415, _("Format not supported"), _("Send JSON: Content-Type: application/json.")
    ),
    "invalid": Kind(422, _("Input not valid"), _("Something in the request is missing or wrong.")),
    "internal": Kind(500, _("Something went wrong"), _("The error is ours, and it was noted.")),
}

# Which code stands for a bare status that some other layer answered.
BY_STATUS = {
    400: "bad_request",
    401: "login_required",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    429: "rate_limited",
    500: "internal",
    503: "unavailable",
}


def problem(
    code: str,
    *,
    status: int | None = None,
    detail: str | None = None,
    retry_after: float | None = None,
    **extensions: Any,
) -> Problem:
    """Build the answer for a code, in the language that is active.

    `retry_after` is in seconds. `extensions` are more members: `instance` (the request id),
    `starts_at`, `errors` …; one that is None is left out.
    """
    kind = CODES[code]
    wait = kind.retry_after if retry_after is None else retry_after
    members = {
        "type": f"/problems/{code}/",
        "title": str(kind.title),
        "status": status or kind.status,
        "detail": str(kind.detail) if detail is None else detail,
        "code": code,
        **({"retry_after": wait} if wait is not None else {}),
        **{name: value for name, value in extensions.items() if value is not None},
    }
    return Problem(status or kind.status, _headers(wait), msgspec.json.encode(members))


def _headers(wait: float | None) -> dict[str, str]:
    headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store"}
    if wait is not None:
        # Whole seconds, rounded up: a client that obeys is never too early.
        headers["Retry-After"] = str(max(1, -int(-wait // 1)))
    return headers


def code_for(status: int) -> str:
    """The code of a bare status; unknown ones count as the plainest of their hundred."""
    fallback = "internal" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "bad_request"
    return BY_STATUS.get(status, fallback)
