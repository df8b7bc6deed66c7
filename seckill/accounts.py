"""Sign in, register, sign out."""

from django.contrib.auth import login
from django.contrib.auth.views import LoginView, LogoutView, RedirectURLMixin
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import FormView

from seckill.forms import LoginForm, RegisterForm


class Login(LoginView):
    authentication_form = LoginForm
    template_name = "seckill/login.html"
    redirect_authenticated_user = True


class Logout(LogoutView):
    next_page = "/"


@method_decorator([never_cache, sensitive_post_parameters()], name="dispatch")
class Register(RedirectURLMixin, FormView):  # type: ignore[type-arg]
    """A new account is signed in at once, and goes on where it wanted to."""

    form_class = RegisterForm
    template_name = "seckill/register.html"
    next_page = "/"

    def form_valid(self, form: RegisterForm) -> HttpResponse:
        user = form.save()
        login(self.request, user, backend="django.contrib.auth.backends.ModelBackend")
        return super().form_valid(form)

    def get_context_data(self, **kwargs: object) -> dict[str, object]:
        return super().get_context_data(next=self.get_redirect_url(), **kwargs)
