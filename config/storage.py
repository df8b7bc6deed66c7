"""Static files under names that carry a hash of their content."""

from django.contrib.staticfiles.storage import ManifestStaticFilesStorage


class ModuleStorage(ManifestStaticFilesStorage):
    """Imports between modules name hashed files too: a page never mixes two versions of them, and
    never loads one module twice under two names.
    """

    support_js_module_import_aggregation = True
