"""Error pages. They need no session and no back end, so that they work when those don't."""

from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.utils.translation import get_language
from django.views.decorators.csrf import requires_csrf_token

from seckill.middleware import API, problem_response, request_id


def _page(request: HttpRequest, template: str, status: int) -> HttpResponse:
    context = {"request_id": request_id(request), "LANGUAGE_CODE": get_language()}
    body = loader.render_to_string(template, context)
    return HttpResponse(body, status=status, headers={"Cache-Control": "no-store"})


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(request, "400.html", 400)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(request, "403.html", 403)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(request, "404.html", 404)


def server_error(request: HttpRequest) -> HttpResponse:
    return _page(request, "500.html", 500)


@requires_csrf_token
def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    if request.path_info.startswith(API):
        return problem_response(request, "csrf_failed")
    return _page(request, "403_csrf.html", 403)
