"""People with browsers, who notice whatever a browser complains about."""

import re
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, WebSocket, expect

# A fetch that the server refuses, or that a cut connection ends, is told there and is no mistake.
_EXPECTED = re.compile(r"Failed to load resource|net::ERR_|WebSocket connection to")


@dataclass
class Visitor:
    """One browser of one person. `web`: which of the shop's processes it talks to."""

    page: Page
    base_url: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    sockets: list[str] = field(default_factory=list)

    @classmethod
    def enter(cls, browser: Browser, base_url: str, **options: Any) -> Self:
        defaults = {"locale": "en-US", "viewport": {"width": 1100, "height": 800}}
        context = browser.new_context(base_url=base_url, **(defaults | options))
        context.set_default_timeout(15_000)
        visitor = cls(context.new_page(), base_url)
        visitor.watch(visitor.page)
        return visitor

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._request)
        page.on("websocket", self._socket)

    def another_tab(self) -> Page:
        page = self.page.context.new_page()
        self.watch(page)
        return page

    def leave(self) -> None:
        self.page.context.close()

    def go(self, path: str) -> Page:
        self.page.goto(path)
        return self.page

    def sign_in(self, name: str, *, to: str = "/orders/") -> Page:
        self.go(f"/login/?next={to}")
        self.page.fill("[name=username]", name)
        self.page.fill("[name=password]", name)
        self.page.locator("main form").get_by_role("button").last.click()
        expect(self.page).to_have_url(self.base_url + to, timeout=20_000)
        return self.page

    def check(self) -> None:
        """Nothing was asked of anybody else, no policy was broken, no script failed."""
        own = urlsplit(self.base_url).netloc
        foreign = [url for url in self.requests if urlsplit(url).netloc not in ("", own)]
        assert foreign == []
        assert self.complaints == []

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not _EXPECTED.search(message.text):
            self.complaints.append(message.text)

    def _request(self, request: Request) -> None:
        if not request.url.startswith(("blob:", "data:")):
            self.requests.append(request.url)

    def _socket(self, socket: WebSocket) -> None:
        self.requests.append(socket.url)
        self.sockets.append(urlsplit(socket.url).path)
