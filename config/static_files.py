"""Static files, straight from memory of where they are: no thread, no Django.

After `collectstatic` (which `manage.py up` runs) names carry a hash and may be kept for ever; in a
fresh checkout the files are served from the apps' folders.
"""

from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from servestatic import ServeStaticASGI

YEAR = 365 * 86400


def static_application() -> ServeStaticASGI:
    collected = (settings.STATIC_ROOT / "staticfiles.json").exists()
    app: Any = ServeStaticASGI(
        None,
        root=str(settings.STATIC_ROOT) if collected else None,
        prefix=settings.STATIC_URL.strip("/"),
        max_age=60,
        immutable_file_test=r"\.[0-9a-f]{12}\.",
        allow_all_origins=False,
    )
    if not collected:
        for finder in get_finders():
            for path, storage in finder.list([]):
                prefix = getattr(storage, "prefix", None)
                url = settings.STATIC_URL + (f"{prefix}/{path}" if prefix else path)
                app.add_file_to_dictionary(url, storage.path(path))
    return app
