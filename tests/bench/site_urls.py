from django.http import HttpRequest, HttpResponse
from django.urls import include, path


def empty(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("")


urlpatterns = [path("empty/", empty), path("", include("config.urls"))]
