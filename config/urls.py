"""Every address that Django answers; the hot endpoints are in seckill.lane."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from seckill import accounts

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/login/", accounts.admin_login),  # Before the admin's own, which counts no tries.
    path("admin/", admin.site.urls),
    path("", include("seckill.urls")),
]
handler400 = "seckill.errors.bad_request"
handler403 = "seckill.errors.forbidden"
handler404 = "seckill.errors.not_found"
handler500 = "seckill.errors.server_error"
