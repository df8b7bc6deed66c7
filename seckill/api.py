"""The JSON interface, `/api/v1`: everything but the two hot routes, which are in the lane."""

import re
import uuid
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import NinjaAPI, Schema
from ninja.errors import HttpError, ValidationError
from ninja.responses import Response
from ninja.security import APIKeyCookie
from ninja.utils import check_csrf
from pydantic import Field

from inventory.models import FlashSale
from orders import services as orders
from orders.models import Order
from orders.payments import providers
from orders.payments import services as payments
from orders.presentation import order_json, rfc3339
from seckill import captcha, catalog, mine, openapi, problems, services
from seckill.errors import problem_response

PUBLIC = "public, max-age=1"
PRIVATE = "no-store"
_SALE_ID = re.compile(r"[1-9][0-9]{0,17}")


class Refused(Exception):
    """Raised to answer with a problem; `members` are what problems.problem() takes."""

    def __init__(self, code: str, **members: Any) -> None:
        super().__init__(code)
        self.code = code
        self.members = members


class SignedIn(APIKeyCookie):
    """A session, and for writing a CSRF token and JSON as well. Never a redirect."""

    param_name = settings.SESSION_COOKIE_NAME

    def __call__(self, request: HttpRequest) -> Any:
        if not request.user.is_authenticated:
            raise Refused("login_required")
        if check_csrf(request):
            raise Refused("csrf_failed")
        if request.body and request.content_type != "application/json":
            raise Refused("unsupported_media_type")
        return request.user

    def authenticate(self, request: HttpRequest, key: str | None) -> Any:
        return request.user


class API(NinjaAPI):
    def get_openapi_schema(self, **kwargs: Any) -> Any:
        return openapi.complete(super().get_openapi_schema(**kwargs))


class TokenIn(Schema):
    captcha: str = Field("", max_length=captcha.LONGEST, description="The solved challenge")


class PayIn(Schema):
    provider: str = Field(max_length=20, description="e.g. `sandbox`")


api = API(
    title="Seckill",
    version="1",
    description="Flash sales: get a token, buy, follow the purchase, pay.",
    urls_namespace="api",
)
signed_in = SignedIn()


@api.exception_handler(Refused)
def _refused(request: HttpRequest, error: Refused) -> HttpResponse:
    return problem_response(request, error.code, **error.members)


@api.exception_handler(ValidationError)
def _invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    errors = [{"pointer": _pointer(e["loc"]), "detail": e["msg"]} for e in error.errors]
    return problem_response(request, "invalid", errors=errors)


@api.exception_handler(HttpError)
def _http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    code = problems.code_for(error.status_code)
    return problem_response(request, code, status=error.status_code)


def _pointer(location: Any) -> str:
    """Ninja's ("body", "payload", "captcha") → `/captcha`."""
    return "/" + "/".join(str(part) for part in location[2 if location[0] == "body" else 1 :])


def answer(data: Any, *, cache: str = PRIVATE, status: int = 200) -> Response:
    return Response(data, status=status, headers={"Cache-Control": cache})


def _sale_id(text: str) -> int:
    if not _SALE_ID.fullmatch(text):
        raise Refused("not_found")
    return int(text)


def _order_id(text: str) -> uuid.UUID:
    """Only the form that we give out; another one names nothing."""
    try:
        order_id = uuid.UUID(text)
    except ValueError:
        raise Refused("not_found") from None
    if str(order_id) != text:
        raise Refused("not_found")
    return order_id


@api.get("/time", tags=["sales"], summary="The server's clock", openapi_extra=openapi.TIME)
def time(request: HttpRequest) -> Response:
    return answer({"now": rfc3339(timezone.now())})


@api.get("/sales", tags=["sales"], summary="All sales", openapi_extra=openapi.SALES)
def sales(request: HttpRequest) -> Response:
    return answer({"sales": [catalog.sale_json(o) for o in catalog.offers()]}, cache=PUBLIC)


@api.get("/sales/{sale}", tags=["sales"], summary="One sale", openapi_extra=openapi.SALE)
def sale(request: HttpRequest, sale: str) -> Response:
    shown = catalog.offer(_sale_id(sale))
    if shown is None:
        raise Refused("not_found")
    return answer(catalog.sale_json(shown), cache=PUBLIC)


@api.get("/captcha", tags=["buying"], summary="A new challenge", openapi_extra=openapi.CAPTCHA)
def new_captcha(request: HttpRequest) -> Response:
    return answer(captcha.challenge())


@api.post(
    "/sales/{sale}/token",
    auth=signed_in,
    tags=["buying"],
    summary="A purchase token",
    openapi_extra=openapi.TOKEN,
)
def token(request: HttpRequest, sale: str, payload: TokenIn | None = None) -> Response:
    sale_id = _sale_id(sale)
    solved = payload.captcha if payload else ""
    if settings.CAPTCHA != "off" and not captcha.verify(solved):
        raise Refused("captcha_invalid")
    try:
        issued = services.issue_token(sale_id=sale_id, user_id=_user_id(request))
    except FlashSale.DoesNotExist:
        raise Refused("not_found") from None
    except services.SaleClosed:
        raise Refused("closed") from None
    return answer(_token_json(issued), status=201)


def _token_json(issued: services.IssuedToken) -> dict[str, str]:
    return {
        "token": issued.token,
        "purchase_id": str(issued.purchase_id),
        "valid_from": rfc3339(issued.valid_from),
        "expires_at": rfc3339(issued.expires_at),
    }


def _user_id(request: HttpRequest) -> int:
    assert request.user.pk is not None
    return int(request.user.pk)


@api.get(
    "/orders",
    auth=signed_in,
    tags=["orders"],
    summary="My orders, newest first",
    openapi_extra=openapi.ORDERS,
)
def order_list(request: HttpRequest, cursor: str = "", limit: int = mine.USUAL) -> Response:
    try:
        page = mine.orders(user_id=_user_id(request), cursor=cursor, limit=limit)
    except ValueError as error:
        errors = [{"pointer": "/cursor", "detail": str(error)}]
        raise Refused("invalid", errors=errors) from None
    return answer({"orders": [order_json(o) for o in page.orders], "next": page.next})


@api.get(
    "/orders/{order}",
    auth=signed_in,
    tags=["orders"],
    summary="One of my orders",
    openapi_extra=openapi.ORDER,
)
def order(request: HttpRequest, order: str) -> Response:
    return answer(order_json(_own_order(request, order)))


def _own_order(request: HttpRequest, text: str) -> Order:
    found = mine.own_order(_order_id(text), user_id=_user_id(request))
    if found is None:
        raise Refused("not_found")
    return found


@api.post(
    "/orders/{order}/pay",
    auth=signed_in,
    tags=["orders"],
    summary="Start to pay",
    openapi_extra=openapi.PAY,
)
def pay(request: HttpRequest, order: str, payload: PayIn) -> Response:
    try:
        _, url = payments.start_payment(
            _order_id(order), user_id=_user_id(request), provider=payload.provider
        )
    except Order.DoesNotExist:
        raise Refused("not_found") from None
    except payments.OrderNotPayable:
        raise Refused("order_not_payable") from None
    except providers.UnknownProvider:
        errors = [{"pointer": "/provider", "detail": "no such provider"}]
        raise Refused("invalid", errors=errors) from None
    except providers.GatewayError:
        raise Refused("payment_unavailable") from None
    return answer({"payment_url": url})


@api.post(
    "/orders/{order}/cancel",
    auth=signed_in,
    tags=["orders"],
    summary="Cancel an unpaid order",
    openapi_extra=openapi.CANCEL,
)
def cancel(request: HttpRequest, order: str) -> Response:
    own = _own_order(request, order)
    buyer = request.user.get_username()
    if not orders.cancel_order(own.pk, actor=buyer, reason="by the buyer"):
        raise Refused("order_not_cancelable")
    return answer(order_json(_own_order(request, order)))


@api.post(
    "/payments/{provider}/webhook",
    tags=["payments"],
    summary="What a payment provider has to say",
    openapi_extra=openapi.WEBHOOK,
)
def webhook(request: HttpRequest, provider: str) -> HttpResponse:
    headers = {name.lower(): value for name, value in request.headers.items()}
    try:
        outcome = payments.process_webhook(provider, request.body, headers)
    except providers.UnknownProvider:
        raise Refused("not_found") from None
    except providers.SignatureInvalid:
        raise Refused("signature_invalid") from None
    except providers.MalformedEvent as error:
        raise Refused("invalid", errors=[{"pointer": "", "detail": str(error)}]) from None
    return _acknowledged(provider, outcome.value)


def _acknowledged(provider: str, outcome: str) -> HttpResponse:
    """In the words that the provider takes for "received"; others make it send again."""
    wanted = providers.get(provider).acknowledgement
    if wanted is None:
        return answer({"status": outcome})
    return HttpResponse(wanted.body, content_type=wanted.content_type)
