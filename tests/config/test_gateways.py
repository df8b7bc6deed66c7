"""What is said at the start of providers that can't work."""

from pathlib import Path

import pytest

from config import env, gateways

STRIPE = {"SITE_URL": "https://x", "STRIPE_SECRET_KEY": "k", "STRIPE_WEBHOOK_SECRET": "w"}


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for needs in gateways.PROVIDERS.values():
        for variable in needs.variables:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(env, "problems", [])
    return env.problems


def test_check_is_content_with_what_is_complete(
    problems: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    key.touch()
    for name, value in STRIPE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ALIPAY_APP_ID", "1")
    for name in ("ALIPAY_PRIVATE_KEY_FILE", "ALIPAY_PUBLIC_KEY_FILE"):
        monkeypatch.setenv(name, str(key))

    gateways.check(["sandbox", "stripe", "alipay"])

    assert problems == []


def test_check_names_each_variable_that_is_missing(problems: list[str]) -> None:
    gateways.check(["stripe"])

    because = "not set (needed by the payment provider stripe)"
    assert problems == [f"{name}: {because}" for name in STRIPE]


def test_check_names_files_that_can_not_be_read(
    problems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in gateways.PROVIDERS["alipay"].variables:
        monkeypatch.setenv(name, "/nowhere")

    gateways.check(["alipay"])

    assert problems == [
        "ALIPAY_PRIVATE_KEY_FILE: can't be read",
        "ALIPAY_PUBLIC_KEY_FILE: can't be read",
    ]


def test_check_says_how_to_install_what_is_missing(
    problems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in STRIPE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(gateways, "find_spec", lambda package: None)

    gateways.check(["sandbox", "stripe"])

    install = "pip install -r requirements/pay.txt"
    assert problems == [f"PAYMENT_PROVIDERS: 'stripe' is not installed: {install}"]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "PAYMENT_PROVIDERS: names none"),
        (["gold"], "PAYMENT_PROVIDERS: 'gold' is not known; there are sandbox, alipay, stripe"),
    ],
)
def test_check_refuses_names_of_nobody(problems: list[str], names: list[str], problem: str) -> None:
    gateways.check(names)

    assert problems == [problem]


def test_origins_are_those_of_the_cashiers_that_are_on() -> None:
    assert gateways.origins(["sandbox"], alipay_sandbox=False) == []
    assert gateways.origins(["stripe", "alipay"], alipay_sandbox=True) == [
        "https://checkout.stripe.com",
        "https://*.alipaydev.com",
    ]
