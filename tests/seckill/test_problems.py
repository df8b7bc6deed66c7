"""Problem documents: the codes of the contract, their form, their pages."""

import json

import pytest
from django.test import Client
from django.utils import translation

from seckill import problems

CONTRACT = {
    "token_required": 401,
    "token_invalid": 403,
    "not_open": 403,
    "sold_out": 409,
    "rebuy_not_allowed": 409,
    "closed": 410,
    "quantity_invalid": 422,
    "rate_limited": 429,
    "paused": 503,
    "unavailable": 503,
    "order_not_payable": 409,
    "order_not_cancelable": 409,
    "signature_invalid": 400,
    "login_required": 401,
}


@pytest.mark.parametrize(("code", "status"), CONTRACT.items())
def test_problem_has_the_documented_status(code: str, status: int) -> None:
    built = problems.problem(code)

    body = json.loads(built.body)
    assert (built.status, body["status"], body["code"]) == (status, status, code)
    assert body["type"] == f"/problems/{code}/"
    assert built.headers["Content-Type"] == "application/problem+json"
    assert built.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("code", ["rate_limited", "paused", "unavailable"])
def test_problem_that_passes_says_when_to_come_again(code: str) -> None:
    assert int(problems.problem(code).headers["Retry-After"]) >= 1


@pytest.mark.parametrize(("wait", "header"), [(0, "1"), (0.2, "1"), (1.01, "2"), (30, "30")])
def test_problem_rounds_the_wait_up(wait: float, header: str) -> None:
    built = problems.problem("not_open", retry_after=wait)

    assert built.headers["Retry-After"] == header
    assert json.loads(built.body)["retry_after"] == wait


def test_problem_takes_more_members_and_leaves_out_none() -> None:
    built = problems.problem("not_open", starts_at="2026-01-01T00:00:00Z", instance=None)

    body = json.loads(built.body)
    assert body["starts_at"] == "2026-01-01T00:00:00Z"
    assert "instance" not in body


def test_problem_speaks_the_active_language() -> None:
    with translation.override("zh-hans"):
        body = json.loads(problems.problem("sold_out").body)

    assert (body["title"], body["code"]) == ("已售罄", "sold_out")


@pytest.mark.parametrize(
    ("status", "code"), [(418, "bad_request"), (502, "internal"), (404, "not_found")]
)
def test_code_for_names_any_status(status: int, code: str) -> None:
    assert problems.code_for(status) == code


@pytest.mark.parametrize("code", problems.CODES)
def test_problem_type_leads_to_a_page(client: Client, code: str) -> None:
    response = client.get(f"/problems/{code}/")

    assert response.status_code == 200
    assert code in response.text


def test_problem_page_of_an_unknown_code_is_not_found(client: Client) -> None:
    assert client.get("/problems/nonsense/").status_code == 404
