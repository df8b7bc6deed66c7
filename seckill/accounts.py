"""Sign in, register, sign out.

A cookie that scripts can read says that somebody is signed in, so that pages which are the same
for everybody ask for the personal bits only then. It decides nothing.
"""

from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView, RedirectURLMixin
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import FormView

from seckill import signin
from seckill.addresses import client_network
from seckill.errors import error_page
from seckill.forms import LoginForm, RegisterForm

HINT_COOKIE = "signed_in"
DEMO = "demo"


def give_hint(response: HttpResponseBase) -> None:
    response.set_cookie(
        HINT_COOKIE,
        "1",
        max_age=settings.SESSION_COOKIE_AGE,
        secure=settings.SESSION_COOKIE_SECURE,
        samesite="Lax",
    )


class Login(LoginView):
    authentication_form = LoginForm
    template_name = "seckill/login.html"
    redirect_authenticated_user = True

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        if request.user.is_authenticated:
            give_hint(response)
        return response

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        wait = signin.hit(client_network(request), request.POST.get("username", ""))
        return _too_many(self, wait) if wait else super().post(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        signin.forgive(client_network(self.request), form.data.get("username", ""))
        return super().form_valid(form)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(demo=_demo_account(), **kwargs)


class Logout(LogoutView):
    next_page = "/"

    def get_success_url(self) -> str:
        return "/"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().post(request, *args, **kwargs)
        response.delete_cookie(HINT_COOKIE, samesite="Lax")
        return response


@method_decorator([never_cache, sensitive_post_parameters()], name="dispatch")
class Register(RedirectURLMixin, FormView):  # type: ignore[type-arg]
    """A new account is signed in at once, and goes on where it wanted to."""

    form_class = RegisterForm
    template_name = "seckill/register.html"
    next_page = "/"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        wait = signin.hit_register(client_network(request))
        return _too_many(self, wait) if wait else super().post(request, *args, **kwargs)

    def form_valid(self, form: RegisterForm) -> HttpResponse:
        user = form.save()
        login(self.request, user, backend="django.contrib.auth.backends.ModelBackend")
        response = super().form_valid(form)
        give_hint(response)
        return response

    def get_context_data(self, **kwargs: object) -> dict[str, object]:
        return super().get_context_data(next=self.get_redirect_url(), **kwargs)


def admin_login(request: HttpRequest) -> HttpResponse:
    """The admin's own form, behind the same limit: a try at one of the two counts at both."""
    if request.method != "POST":
        return admin.site.login(request)
    network, username = client_network(request), request.POST.get("username", "")
    if wait := signin.hit(network, username):
        return error_page(request, "rate_limited", retry_after=wait)
    response = admin.site.login(request)
    # Only who is let in is sent on. Who was signed in before isn't, with a wrong password.
    if response.status_code == HTTPStatus.FOUND:
        signin.forgive(network, username)
    return response


def _too_many(view: "Login | Register", wait: int) -> HttpResponse:
    """The empty form again, with the time to wait; what was typed isn't looked at."""
    form = view.get_form_class()()
    response = view.render_to_response(view.get_context_data(form=form, wait=wait))
    response.status_code = HTTPStatus.TOO_MANY_REQUESTS
    response["Retry-After"] = str(wait)
    return response


def _demo_account() -> str:
    """The account that everybody may use, where nobody from outside gets to."""
    embedded = settings.DEBUG or settings.EMBEDDED_DATABASE
    there = embedded and User.objects.filter(username=DEMO, is_active=True).exists()
    return DEMO if there else ""
