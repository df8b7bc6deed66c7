"""The parts of the OpenAPI document that code can't tell: answers, examples, and the lane's routes.

The lane answers its two routes outside of Django's chain; a test holds these entries against it.
"""

from typing import Any

from seckill import problems

JSON = "application/json"
Doc = dict[str, Any]

_TIME = {"type": "string", "format": "date-time"}
_ID = {"type": "string", "format": "uuid"}
_MONEY = {"type": "string", "pattern": r"^\d+\.\d{2}$", "examples": ["9.90"]}
_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 1}


def _ref(name: str) -> Doc:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(**properties: Any) -> Doc:
    """An object with all of these members; a name that ends in `_opt` may be null."""
    named = {
        name.removesuffix("_opt"): {"anyOf": [schema, {"type": "null"}]}
        if name.endswith("_opt")
        else schema
        for name, schema in properties.items()
    }
    return {"type": "object", "properties": named, "required": list(named)}


def _answer(description: str, schema: Doc, **headers: str) -> Doc:
    entry: Doc = {"description": description, "content": {JSON: {"schema": schema}}}
    if headers:
        entry["headers"] = {
            name.replace("_", "-"): {"description": text, "schema": _TEXT}
            for name, text in headers.items()
        }
    return entry


def _refusals(*codes: str) -> Doc:
    """One entry per status, naming the codes that it may carry."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(problems.CODES[code].status, []).append(code)
    return {
        str(status): {
            "description": ", ".join(f"`{name}`" for name in names),
            "content": {problems.MEDIA_TYPE: {"schema": _ref("Problem")}},
        }
        for status, names in sorted(by_status.items())
    }


def _operation(ok: Doc, *codes: str, status: int = 200) -> Doc:
    return {"responses": {str(status): ok, **_refusals(*codes, "unavailable")}}


_SCHEMAS: Doc = {
    "Problem": {
        "type": "object",
        "description": "RFC 9457. `code` is stable; texts are in the reader's language.",
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": _TEXT,
            "status": {"type": "integer"},
            "detail": _TEXT,
            "instance": {"type": "string", "description": "the request id"},
            "code": {"type": "string", "enum": sorted(problems.CODES)},
            "retry_after": {"type": "number", "description": "seconds"},
            "starts_at": _TIME,
            "errors": {"type": "array", "items": _object(pointer=_TEXT, detail=_TEXT)},
        },
        "required": ["type", "title", "status", "detail", "code"],
    },
    "Sale": _object(
        id={"type": "integer"},
        product=_TEXT,
        description=_TEXT,
        state={"enum": ["scheduled", "open", "paused", "sold_out", "closed"]},
        stock_band={"type": "string", "description": "`plenty` from 100 on, else the number"},
        starts_at=_TIME,
        ends_at=_TIME,
        price=_MONEY,
        list_price_opt=_MONEY,
        currency=_TEXT,
        per_buyer=_COUNT,
    ),
    "Order": _object(
        id=_ID,
        sale_id={"type": "integer"},
        product=_TEXT,
        quantity=_COUNT,
        unit_price=_MONEY,
        amount=_MONEY,
        currency=_TEXT,
        status={"enum": ["unpaid", "paid", "canceled", "expired", "refunded"]},
        created_at=_TIME,
        pay_before=_TIME,
        paid_at_opt=_TIME,
        refund_opt={"enum": ["started", "done"]},
    ),
    "Accepted": _object(
        purchase_id=_ID,
        status={"enum": ["queued", "succeeded"]},
        poll_after_ms={"type": "integer", "minimum": 0},
    ),
    "Purchase": _object(
        purchase_id=_ID,
        status={"enum": ["queued", "succeeded", "failed"]},
        code_opt=_TEXT,
        message_opt=_TEXT,
        order_opt=_ref("Order"),
        poll_after_ms_opt={"type": "integer", "minimum": 0},
    ),
    "WebhookBody": {
        "type": "object",
        "properties": {
            "event_id": _TEXT,
            "type": {"enum": ["payment.succeeded", "payment.failed", "payment.refunded"]},
            "payment_id": _ID,
            "order_id": _ID,
            "amount": _MONEY,
            "currency": _TEXT,
        },
        "required": ["event_id", "type"],
    },
}
_SECURITY: Doc = {"PurchaseToken": {"type": "http", "scheme": "bearer"}}

TIME = {"responses": {"200": _answer("The time now", _object(now=_TIME))}}
SALES = _operation(_answer("The sales", _object(sales={"type": "array", "items": _ref("Sale")})))
SALE = _operation(_answer("The sale", _ref("Sale")), "not_found")
CAPTCHA = {"responses": {"200": _answer("An ALTCHA challenge", {"type": "object"})}}
TOKEN = _operation(
    _answer("The token", _object(token=_TEXT, purchase_id=_ID, valid_from=_TIME, expires_at=_TIME)),
    *("bad_request", "login_required", "csrf_failed", "not_found", "closed", "too_large"),
    *("unsupported_media_type", "captcha_invalid", "invalid"),
    status=201,
)
ORDERS = _operation(
    _answer(
        "A page of orders",
        _object(orders={"type": "array", "items": _ref("Order")}, next_opt=_TEXT),
    ),
    *("login_required", "invalid"),
)
ORDER = _operation(_answer("The order", _ref("Order")), "login_required", "not_found")
PAY = _operation(
    _answer("Where to pay", _object(payment_url=_TEXT)),
    *("bad_request", "login_required", "csrf_failed", "not_found", "order_not_payable"),
    "too_large",
    *("payment_unavailable", "unsupported_media_type", "invalid"),
)
CANCEL = _operation(
    _answer("The canceled order", _ref("Order")),
    *("login_required", "csrf_failed", "not_found", "order_not_cancelable"),
)
WEBHOOK = {
    **_operation(
        _answer("Received, also if it came before or too late", _object(status=_TEXT)),
        *("signature_invalid", "not_found", "invalid", "too_large"),
    ),
    "parameters": [
        {
            "name": "X-Signature",
            "in": "header",
            "required": True,
            "schema": _TEXT,
            "description": '`t=<unix>,v1=<hex hmac-sha256 of "t.body">`',
        }
    ],
    "requestBody": {"required": True, "content": {JSON: {"schema": _ref("WebhookBody")}}},
}

_SALE_PARAMETER = {"name": "sale", "in": "path", "required": True, "schema": _TEXT}
_PURCHASE_PARAMETER = {"name": "purchase", "in": "path", "required": True, "schema": _ID}
_WAIT_PARAMETER = {
    "name": "wait",
    "in": "query",
    "description": "Hold the answer until it is terminal, at most so many seconds",
    "schema": {"type": "number", "minimum": 0},
}
LANE: Doc = {
    "/api/v1/sales/{sale}/purchases": {
        "post": {
            "operationId": "lane_purchase",
            "summary": "Buy",
            "description": "Asking again is harmless: the live purchase comes back.",
            "tags": ["buying"],
            "security": [{"PurchaseToken": []}],
            "parameters": [_SALE_PARAMETER],
            "requestBody": {
                "required": False,
                "content": {
                    JSON: {"schema": {"type": "object", "properties": {"quantity": _COUNT}}}
                },
            },
            "responses": {
                "200": _answer(
                    "The live purchase has ended in an order",
                    _ref("Accepted"),
                    Location="where to follow it",
                    Idempotent_Replayed="`true`",
                ),
                "202": _answer(
                    "Admitted, the order is being made",
                    _ref("Accepted"),
                    Location="where to follow it",
                    Idempotent_Replayed="`true` if it was admitted before",
                ),
                **_refusals(
                    *("token_required", "token_invalid", "not_open", "not_found", "sold_out"),
                    *("rebuy_not_allowed", "closed", "quantity_invalid", "rate_limited"),
                    *("duplicate", "failed", "bad_request", "too_large"),
                    *("unsupported_media_type", "paused", "unavailable"),
                ),
            },
        }
    },
    "/api/v1/sales/{sale}/purchases/{purchase}": {
        "get": {
            "operationId": "lane_outcome",
            "summary": "Follow a purchase",
            "tags": ["buying"],
            "security": [{"PurchaseToken": []}, {"SignedIn": []}],
            "parameters": [_SALE_PARAMETER, _PURCHASE_PARAMETER, _WAIT_PARAMETER],
            "responses": {
                "200": _answer("Its state", _ref("Purchase")),
                **_refusals("login_required", "token_invalid", "not_found", "unavailable"),
            },
        }
    },
}


def complete(schema: Doc) -> Doc:
    """The document that ninja made, with our schemas and the lane's routes."""
    for item in schema["paths"].values():
        for operation in item.values():
            operation["responses"] = _told(operation["responses"])
    schema["paths"] = dict(sorted({**schema["paths"], **LANE}.items()))
    components = schema["components"]
    components["schemas"] = {**components.get("schemas", {}), **_SCHEMAS}
    components["securitySchemes"] = {**components.get("securitySchemes", {}), **_SECURITY}
    return schema


def _told(answers: dict[Any, Doc]) -> Doc:
    """Without the bare 200 that ninja lists unasked."""
    return {str(status): entry for status, entry in answers.items() if "content" in entry}
