#!/usr/bin/env python
"""Buys one item over HTTP, as a browser would: `scripts/smoke.py http://127.0.0.1:8000`.

Needs only the standard library. Prints the order's id; exit code 1 and one line that says what went
wrong otherwise.
"""

import argparse
import base64
import hashlib
import http.cookiejar
import json
import re
import struct
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

TIMEOUT = 10  # seconds for one request
DEFAULT_WAIT = 30.0  # seconds for the order
MOST_TRIES = 10_000_000  # of the proof of work


class Failed(Exception):
    """Raised with a line that says which step failed, and how."""


class Client:
    """One buyer's browser: cookies, CSRF, JSON."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url.rstrip("/")
        self._cookies = http.cookiejar.CookieJar()
        # Without the environment's proxies: the shop is where the address says.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self._cookies)
        )

    def cookie(self, name: str) -> str:
        return next((cookie.value or "" for cookie in self._cookies if cookie.name == name), "")

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        expect: tuple[int, ...] = (200,),
    ) -> tuple[int, str]:
        url = self.base_url + path
        base = {"Accept-Language": "en", "Referer": url, "X-CSRFToken": self.cookie("csrftoken")}
        request = urllib.request.Request(url, body, base | (headers or {}), method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                status, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode(errors="replace")
        except OSError as error:
            raise Failed(f"{method} {path}: no answer: {error}") from error
        if status not in expect:
            raise Failed(f"{method} {path}: {status}: {' '.join(text.split())[:300]}")
        return status, text

    def json(self, method: str, path: str, data: Any = None, **options: Any) -> Any:
        headers = {"Accept": "application/json", **options.pop("headers", {})}
        body = None
        if data is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(data).encode()
        _, text = self.request(method, path, body=body, headers=headers, **options)
        try:
            return json.loads(text)
        except ValueError as error:
            raise Failed(f"{method} {path}: the answer is no JSON: {text[:200]}") from error


def log_in(client: Client, username: str, password: str) -> None:
    _, page = client.request("GET", "/login/")
    field = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    if not field:
        raise Failed("GET /login/: the page has no CSRF token")
    form = {"csrfmiddlewaretoken": field[1], "username": username, "password": password}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    body = urllib.parse.urlencode(form).encode()
    for pause in (1, 2, 4, 0):  # A machine that is busy says so; hashing a password takes a while.
        expect = (200, 503) if pause else (200,)
        status, _ = client.request("POST", "/login/", body=body, headers=headers, expect=expect)
        if status == 200:
            break
        time.sleep(pause)
    if not client.cookie("sessionid"):
        raise Failed(f"POST /login/: {username!r} was not let in")


def open_sale(client: Client) -> int:
    """The sale with most units among those that are open."""
    sales = client.json("GET", "/api/v1/sales")
    found = [sale for sale in sales["sales"] if sale["state"] == "open"]
    if not found:
        raise Failed("GET /api/v1/sales: no sale is open")
    plenty = [sale for sale in found if sale["stock_band"] == "plenty"]
    return int((plenty or found)[0]["id"])


def solve(challenge: dict[str, Any]) -> str:
    """The answer to an ALTCHA proof of work (SHA-256), as the `captcha` field wants it."""
    wanted = challenge["parameters"]
    if wanted["algorithm"] != "SHA-256":
        raise Failed(f"captcha: algorithm {wanted['algorithm']!r} is unknown here")
    salt, nonce = bytes.fromhex(wanted["salt"]), bytes.fromhex(wanted["nonce"])
    for counter in range(MOST_TRIES):
        key = salt + nonce + struct.pack(">I", counter)
        for _ in range(max(1, wanted["cost"])):
            key = hashlib.sha256(key).digest()
        derived = key[: wanted["keyLength"]].hex()
        if derived.startswith(wanted["keyPrefix"]):
            solution = {"counter": counter, "derivedKey": derived}
            answer = {"challenge": challenge, "solution": solution}
            return base64.b64encode(json.dumps(answer).encode()).decode()
    raise Failed(f"captcha: not solved in {MOST_TRIES} tries")


def buy(client: Client, sale_id: int) -> tuple[str, str]:
    """Ask for a token and buy one unit; returns purchase id and token."""
    captcha = solve(client.json("GET", "/api/v1/captcha"))
    path = f"/api/v1/sales/{sale_id}"
    token = client.json("POST", f"{path}/token", {"captcha": captcha}, expect=(201,))["token"]
    headers = {"Authorization": f"Bearer {token}"}
    # 200: this buyer has an order already, from an earlier run.
    data: dict[str, Any] = client.json(
        "POST", f"{path}/purchases", {"quantity": 1}, headers=headers, expect=(200, 202)
    )
    return data["purchase_id"], token


def await_order(client: Client, sale_id: int, purchase: tuple[str, str], wait: float) -> str:
    """Ask until the purchase has ended; returns the order's id."""
    purchase_id, token = purchase
    path = f"/api/v1/sales/{sale_id}/purchases/{purchase_id}?wait=2"
    headers = {"Authorization": f"Bearer {token}"}
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline:
        answer = client.json("GET", path, headers=headers, expect=(200, 404))
        if answer.get("status") == "succeeded":
            return str(answer["order"]["id"])
        if answer.get("status") == "failed":
            raise Failed(f"purchase {purchase_id}: {answer['code']}: {answer['message']}")
        time.sleep(0.2)
    raise Failed(f"purchase {purchase_id}: still without an answer after {wait:g} s")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base_url", help="such as http://127.0.0.1:8000")
    parser.add_argument("--username", default="demo")
    parser.add_argument("--password", default="demo")
    parser.add_argument("--sale", type=int, help="default: one that is open")
    parser.add_argument("--wait", type=float, default=DEFAULT_WAIT, help="seconds for the order")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    client = Client(options.base_url)
    try:
        log_in(client, options.username, options.password)
        sale_id = options.sale or open_sale(client)
        purchase = buy(client, sale_id)
        order_id = await_order(client, sale_id, purchase, options.wait)
    except Failed as error:
        sys.stderr.write(f"smoke test failed: {error}\n")
        return 1
    except (KeyError, TypeError, ValueError) as error:
        sys.stderr.write(f"smoke test failed: an answer has another shape: {error!r}\n")
        return 1
    sys.stdout.write(f"{order_id}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
