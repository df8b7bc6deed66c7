"""What each payment provider needs before it may be switched on, and where its cashier is."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from config import env


class Needs(NamedTuple):
    """`package`: of requirements/pay.txt. A variable that ends in `_FILE` names a file."""

    package: str = ""
    variables: tuple[str, ...] = ()


PROVIDERS = {
    "sandbox": Needs(),
    "alipay": Needs(
        "alipay",
        ("SITE_URL", "ALIPAY_APP_ID", "ALIPAY_PRIVATE_KEY_FILE", "ALIPAY_PUBLIC_KEY_FILE"),
    ),
    "stripe": Needs("stripe", ("SITE_URL", "STRIPE_SECRET_KEY", "STRIPE_WEBHOOK_SECRET")),
}


def check(names: Sequence[str]) -> None:
    """Adds to env.problems what is wrong or missing."""
    if not names:
        env.problems.append("PAYMENT_PROVIDERS: names none")
    for name in dict.fromkeys(names):
        if name in PROVIDERS:
            _check(name, PROVIDERS[name])
        else:
            known = ", ".join(PROVIDERS)
            env.problems.append(f"PAYMENT_PROVIDERS: {name!r} is not known; there are {known}")


def _check(name: str, needs: Needs) -> None:
    if needs.package and find_spec(needs.package) is None:
        install = "pip install -r requirements/pay.txt"
        env.problems.append(f"PAYMENT_PROVIDERS: {name!r} is not installed: {install}")
    for variable in needs.variables:
        value = env.required(variable, f"needed by the payment provider {name}")
        if value and variable.endswith("_FILE") and not os.access(value, os.R_OK):
            env.problems.append(f"{variable}: can't be read")


def origins(names: Sequence[str], *, alipay_sandbox: bool) -> list[str]:
    """Where a form of ours may lead, for the content security policy."""
    alipay = "https://*.alipaydev.com" if alipay_sandbox else "https://*.alipay.com"
    cashiers = {"alipay": alipay, "stripe": "https://checkout.stripe.com"}
    return [cashiers[name] for name in names if name in cashiers]
