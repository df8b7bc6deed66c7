"""The same site under WSGI, for `granian --interface wsgi`."""

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
