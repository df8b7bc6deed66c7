from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class InventoryConfig(AppConfig):
    name = "inventory"
    verbose_name = _("Products and sales")

    def ready(self) -> None:
        import_module("inventory.receivers")
