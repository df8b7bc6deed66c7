"""The shop's addresses. The two hot routes of the API are in seckill.lane."""

from django.urls import include, path, register_converter

from seckill import accounts, cashier, companions, health, views
from seckill.api import api


class SaleId:
    """A positive number that fits into the database's key."""

    regex = "[1-9][0-9]{0,17}"

    def to_python(self, value: str) -> int:
        return int(value)

    def to_url(self, value: int) -> str:
        return str(value)


class PictureSeed:
    """See seckill.pictures."""

    regex = "[0-9a-f]{10}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(SaleId, "sale")
register_converter(PictureSeed, "picture")

urlpatterns = [
    path("", views.sale_list, name="sales"),
    path("sales/<sale:sale_id>/", views.sale_detail, name="sale"),
    path("sales/<sale:sale_id>/buy/", views.buy, name="buy"),
    path("purchases/<sale:sale_id>/<uuid:purchase_id>/", views.purchase, name="purchase"),
    path("orders/", views.order_list, name="orders"),
    path("orders/<uuid:order_id>/", views.order, name="order"),
    path("orders/<uuid:order_id>/pay/", views.pay, name="pay"),
    path("orders/<uuid:order_id>/cancel/", views.cancel, name="cancel"),
    path("cashier/<uuid:payment_id>/", cashier.cashier, name="cashier"),
    path("me/", companions.me, name="me"),
    path("purchases/<sale:sale_id>/<uuid:purchase_id>/place/", companions.place, name="place"),
    path("sales/<sale:sale_id>/reminder.ics", companions.reminder, name="reminder"),
    path("pictures/<picture:seed>.svg", companions.picture, name="picture"),
    path("_states/", companions.states, name="states"),
    path("login/", accounts.Login.as_view(), name="login"),
    path("register/", accounts.Register.as_view(), name="register"),
    path("logout/", accounts.Logout.as_view(), name="logout"),
    path("problems/<slug:code>/", views.problem_page, name="problem"),
    path("i18n/", include("django.conf.urls.i18n")),
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("api/v1/", api.urls),
]
