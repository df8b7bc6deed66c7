"""What surrounds every request: its id, and errors in the form that the caller understands."""

import re
import uuid
from collections.abc import Callable

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from redis.exceptions import RedisError

from inventory.redis_clients import RedisNotConfigured
from seckill import problems

API = "/api/"
HEADER = "X-Request-Id"
# What a view raises when a back end is away; it isn't the caller's fault and passes by itself.
BACKEND_AWAY = (RedisError, RedisNotConfigured, OperationalError, InterfaceError, TimeoutError)

_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
Handler = Callable[[HttpRequest], HttpResponseBase]


def request_id(request: HttpRequest) -> str | None:
    return getattr(request, "request_id", None)


class RequestIdMiddleware:
    """Takes the caller's X-Request-Id if it is harmless, else makes one, and returns it."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        offered = request.headers.get(HEADER, "")
        name = offered if _ID.fullmatch(offered) else uuid.uuid4().hex
        request.request_id = name  # type: ignore[attr-defined]
        response = self.get_response(request)
        response[HEADER] = name
        return response


class ProblemMiddleware:
    """Under /api/ every error leaves as problem+json, whoever made it; elsewhere as a page."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if response.status_code < 400 or not request.path_info.startswith(API):
            return response
        if response.get("Content-Type", "").startswith(problems.MEDIA_TYPE):
            return response
        answer = problem_response(
            request, problems.code_for(response.status_code), status=response.status_code
        )
        for name in ("Allow", "Retry-After", "Content-Language", "Vary"):
            if name in response:
                answer[name] = response[name]
        return answer

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, BACKEND_AWAY):
            return None
        if request.path_info.startswith(API):
            return problem_response(request, "unavailable")
        return unavailable_page(request)


def problem_response(request: HttpRequest, code: str, **members: object) -> HttpResponse:
    """`members`: what problems.problem() takes."""
    built = problems.problem(code, instance=request_id(request), **members)  # type: ignore[arg-type]
    return HttpResponse(built.body, status=built.status, headers=built.headers)


def unavailable_page(request: HttpRequest, *, retry_after: int = 2) -> HttpResponse:
    response = render(request, "503.html", {"request_id": request_id(request)}, status=503)
    response["Retry-After"] = str(retry_after)
    response["Cache-Control"] = "no-store"
    return response
