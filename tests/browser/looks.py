"""How pages may be looked at, and what can be wrong with one: the same for every page."""

import gettext
import itertools
import os
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from playwright.sync_api import Page

# Names for programs are the same in every language.
WITHOUT_CODE = """() => {
    document.querySelectorAll(".code").forEach((node) => { node.hidden = true; });
    return document.body.innerText;
}"""
DESKTOP, PHONE = {"width": 1100, "height": 800}, {"width": 360, "height": 740}


class Look(NamedTuple):
    theme: str
    locale: str
    size: dict[str, int]

    def __str__(self) -> str:
        return f"{self.theme}-{self.locale}-{self.size['width']}"

    @property
    def language(self) -> str:
        return {"en-US": "en", "zh-CN": "zh-hans"}[self.locale]

    @property
    def options(self) -> dict[str, Any]:
        """Of a browser's context."""
        return {
            "color_scheme": self.theme,
            "locale": self.locale,
            "viewport": self.size,
            "reduced_motion": "reduce",
        }

    def faults(self, page: Page) -> Iterator[str]:
        """Barriers, what sticks out, and English where there should be Chinese."""
        for violation in Axe().run(page).response["violations"]:
            yield f"{violation['id']} {[node['target'] for node in violation['nodes']]}"
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            yield "wider than the screen"
        if self.locale == "zh-CN":
            shown = page.evaluate(WITHOUT_CODE)
            yield from (repr(text) for text in _english_texts() if text in shown)


ALL_VARIANTS = [
    Look(*each)
    for each in itertools.product(("light", "dark"), ("en-US", "zh-CN"), (DESKTOP, PHONE))
]
# Both themes, both languages, both sizes; FULL=1 takes all eight.
VARIANTS = ALL_VARIANTS if os.environ.get("FULL") else [ALL_VARIANTS[0], ALL_VARIANTS[7]]


@cache
def _english_texts() -> list[str]:
    """Whatever would be on a page if its translation were missing."""
    found = []
    for path in sorted(settings.BASE_DIR.glob("*/locale/zh_Hans/LC_MESSAGES/django.mo")):
        with path.open("rb") as file:
            catalog = vars(gettext.GNUTranslations(file))["_catalog"]
        texts = (key if isinstance(key, str) else key[0] for key in catalog)
        found += [text for text in texts if len(text) > 5 and "%" not in text and "{" not in text]
    return found
