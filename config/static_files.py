"""Static files, straight from memory of where they are: no thread, no Django.

After `collectstatic` (which `manage.py up` runs) names carry a hash and may be kept for ever; in a
fresh checkout the files are served from the apps' folders.
"""

from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from servestatic import ServeStaticASGI

from seckill.asgi_types import Receive, Scope, Send
from seckill.replies import NOSNIFF

YEAR = 365 * 86400


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"10"), NOSNIFF]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else b"Not found\n"
    await send({"type": "http.response.body", "body": body})


def _guess_nothing(headers: Any, path: str, url: str) -> None:
    headers["X-Content-Type-Options"] = "nosniff"


def static_application() -> ServeStaticASGI:
    collected = (settings.STATIC_ROOT / "staticfiles.json").exists()
    app: Any = ServeStaticASGI(
        _not_found,
        root=str(settings.STATIC_ROOT) if collected else None,
        prefix=settings.STATIC_URL.strip("/"),
        max_age=60,
        immutable_file_test=r"\.[0-9a-f]{12}\.",
        allow_all_origins=False,
        add_headers_function=_guess_nothing,
    )
    if not collected:
        for finder in get_finders():
            for path, storage in finder.list([]):
                prefix = getattr(storage, "prefix", None)
                url = settings.STATIC_URL + (f"{prefix}/{path}" if prefix else path)
                app.add_file_to_dictionary(url, storage.path(path))
    return app
