"""Errors as pages and as problem+json. They need no session and no back end, so that they work
when those don't.
"""

from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.utils.translation import get_language
from django.views.decorators.csrf import requires_csrf_token

from seckill import problems

API = "/api/"


def request_id(request: HttpRequest) -> str | None:
    return getattr(request, "request_id", None)


def problem_response(request: HttpRequest, code: str, **members: object) -> HttpResponse:
    """`members`: what problems.problem() takes."""
    built = problems.problem(code, instance=request_id(request), **members)  # type: ignore[arg-type]
    return HttpResponse(built.body, status=built.status, headers=built.headers)


def error_page(
    request: HttpRequest, code: str, *, status: int | None = None, retry_after: int | None = None
) -> HttpResponse:
    """The page for a problem: what it is, what to do, and the id to ask about. `retry_after`: s."""
    kind = problems.CODES[code]
    status = status or kind.status
    wait = retry_after or (kind.retry_after if status in (429, 503) else None)
    context = {
        "kind": kind,
        "status": status,
        "retry_after": wait,
        "again": request.get_full_path() if request.method == "GET" and status >= 429 else "",
        "request_id": request_id(request),
        "LANGUAGE_CODE": get_language(),
    }
    headers = {"Cache-Control": "no-store"} | ({"Retry-After": str(wait)} if wait else {})
    body = loader.render_to_string("seckill/error.html", context)
    return HttpResponse(body, status=status, headers=headers)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_page(request, "bad_request")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_page(request, "forbidden")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return error_page(request, "not_found")


def server_error(request: HttpRequest) -> HttpResponse:
    return error_page(request, "internal")


@requires_csrf_token
def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    if request.path_info.startswith(API):
        return problem_response(request, "csrf_failed")
    return error_page(request, "csrf_failed")
