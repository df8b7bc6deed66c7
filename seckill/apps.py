from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SeckillConfig(AppConfig):
    name = "seckill"
    verbose_name = _("Storefront")

    def ready(self) -> None:
        import_module("seckill.presence").connect_signals()
