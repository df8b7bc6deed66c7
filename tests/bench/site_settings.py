"""The product's settings with one more address: an empty page, to measure what surrounds a view."""

from config.settings import *  # noqa: F403

ROOT_URLCONF = "tests.bench.site_urls"
