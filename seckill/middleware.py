"""What surrounds every request: its id, and errors in the form that the caller understands."""

import re
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from redis.exceptions import RedisError

from inventory.databases import is_away
from inventory.redis_clients import RedisNotConfigured
from seckill import problems
from seckill.errors import API, error_page, problem_response

HEADER = "X-Request-Id"
# What no page of ours uses, and nobody who gets a script in shall use either.
UNUSED = "camera=(), geolocation=(), microphone=(), payment=(), usb=(), browsing-topics=()"
# Headers that tell of the very text that is replaced.
OF_CONTENT = ("content-type", "content-length", "content-disposition", "etag", "last-modified")
# What a view raises when a back end is away; it isn't the caller's fault and passes by itself.
BACKEND_AWAY = (RedisError, RedisNotConfigured, TimeoutError)

_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
Handler = Callable[[HttpRequest], HttpResponseBase]


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


class PermissionsMiddleware:
    """Gives up what browsers would let pages ask for."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response["Permissions-Policy"] = UNUSED
        return response


class ProblemMiddleware:
    """Under /api/ every error leaves as problem+json, whoever made it; elsewhere as a page.

    Elsewhere only what has no text of its own, such as Django's answer to a wrong method.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        status = response.status_code
        if status < 400 or response.get("Content-Type", "").startswith(problems.MEDIA_TYPE):
            return response
        if request.path_info.startswith(API):
            answer = problem_response(request, problems.code_for(status), status=status)
        elif not response.streaming and not response.content:  # type: ignore[attr-defined]
            answer = error_page(request, problems.code_for(status), status=status)
        else:
            return response
        # What those below have added says who may do what with it: a policy, a language, a method.
        for name, value in response.items():
            if name.lower() not in OF_CONTENT and name not in answer:
                answer[name] = value
        return answer

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not (isinstance(error, BACKEND_AWAY) or is_away(error)):
            return None
        if request.path_info.startswith(API):
            return problem_response(request, "unavailable")
        return error_page(request, "unavailable")
