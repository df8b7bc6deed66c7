"""The list of bad input, row by row: the test that shows it, or why there is none.

B: HTTP, W: websockets, A: the admin, E: commands and environment.
"""

import re

import pytest

from tests.support import environment

ORDERS, SHOP, BAD = "tests/orders", "tests/seckill", "tests/badinput"
ROWS: dict[str, tuple[str, list[str] | str]] = {
    "B1": (
        "body missing, empty, null",
        [f"{SHOP}/test_lane_input.py::test_bodies_that_ask_for_one"],
    ),
    "B2": (
        "no JSON",
        [
            f"{SHOP}/test_lane_input.py::test_bad_bodies",
            f"{SHOP}/test_api_errors.py::test_bad_bodies_are_told_so",
        ],
    ),
    "B3": (
        "another format",
        [
            f"{SHOP}/test_lane_input.py::test_bad_bodies",
            f"{BAD}/test_forms.py::test_body_of_another_form_is_no_order",
        ],
    ),
    "B4": (
        "sale ids",
        [
            f"{SHOP}/test_lane_input.py::test_sale_ids_that_are_none",
            f"{SHOP}/test_api_errors.py::test_sale_id_that_is_none_is_not_found",
        ],
    ),
    "B5": (
        "quantities",
        [
            f"{SHOP}/test_lane_input.py::test_bad_bodies",
            f"{BAD}/test_forms.py::test_quantity_that_is_none_buys_nothing",
        ],
    ),
    "B6": ("unknown sale", [f"{SHOP}/test_lane.py::test_sale_that_is_not_there"]),
    "B7": (
        "before and after the sale",
        [
            f"{SHOP}/test_lane.py::test_before_the_start_it_tells_when",
            f"{SHOP}/test_lane.py::test_after_the_end",
        ],
    ),
    "B8": (
        "extra fields",
        [
            f"{SHOP}/test_api_errors.py::test_extra_members_are_ignored",
            "tests/security/test_injection.py::test_what_is_not_asked_for_is_not_taken",
        ],
    ),
    "B9": (
        "wrong method",
        [
            f"{SHOP}/test_lane_input.py::test_wrong_method",
            f"{SHOP}/test_api_errors.py::test_wrong_method_names_the_right_ones",
        ],
    ),
    "B10": (
        "CSRF token",
        [
            "tests/security/test_csrf.py::test_every_form_needs_a_token",
            "tests/security/test_csrf.py::test_every_writing_route_of_the_api_needs_a_token",
        ],
    ),
    "B11": (
        "session over",
        [
            f"{SHOP}/test_api_errors.py::test_signed_in_only_never_redirects",
            "tests/security/test_signin.py::test_a_session_that_is_none_is_nobody",
        ],
    ),
    "B12": (
        "idempotency key",
        "there is none to send: the purchase id in the signed token is the key",
    ),
    "B13": (
        "tokens",
        [
            f"{SHOP}/test_lane.py::test_wrong_tokens_are_refused",
            f"{SHOP}/test_tokens.py::test_read_refuses_garbage_without_an_error",
        ],
    ),
    "B14": (
        "order ids",
        [
            f"{SHOP}/test_api_errors.py::test_order_id_has_one_form",
            "tests/security/test_ownership.py::test_owned_thing_looks_like_none_to_everybody_else",
        ],
    ),
    "B15": (
        "query strings",
        [
            f"{SHOP}/test_lane_input.py::test_odd_queries_never_wait",
            f"{BAD}/test_forms.py::test_searches_and_filters_bear_anything",
        ],
    ),
    "B16": (
        "headers",
        [
            f"{SHOP}/test_lane_input.py::test_odd_headers_never_break_it",
            f"{BAD}/test_wire.py::test_broken_requests_buy_nothing",
        ],
    ),
    "B17": (
        "huge, endless and slow bodies",
        [
            f"{BAD}/test_wire.py::test_body_of_100_megabytes_is_refused_unread",
            f"{BAD}/test_wire.py::test_body_without_an_end_is_refused",
            f"{BAD}/test_wire.py::test_body_that_trickles_is_not_waited_for",
        ],
    ),
    "B18": (
        "underscore twins",
        [
            "tests/config/test_pool_request.py::test_make_environ_drops_headers_with_an_underscore",
            "tests/security/test_signin.py::test_headers_of_the_caller_change_nothing",
        ],
    ),
    "B19": (
        "hosts",
        [
            f"{BAD}/test_wire.py::test_another_host_gets_no_page",
            "tests/security/test_headers.py::test_a_host_that_is_not_ours_is_refused",
        ],
    ),
    "B20": (
        "HTTP itself",
        [
            f"{BAD}/test_wire.py::test_requests_of_one_connection_are_answered_in_order",
            f"{BAD}/test_wire.py::test_second_request_hidden_in_a_body_is_not_read",
        ],
    ),
    "B21": (
        "orders that take no payment",
        [f"{BAD}/test_forms.py::test_order_that_is_over_takes_no_payment"],
    ),
    "B22": (
        "webhooks",
        [
            f"{BAD}/test_forms.py::test_webhook_that_can_not_be_read",
            f"{BAD}/test_forms.py::test_webhook_signed_by_nobody",
            f"{ORDERS}/test_payments_services.py::test_process_webhook_parks_what_does_not_fit",
            f"{ORDERS}/test_payments_sandbox.py::test_parse_webhook_refuses_a_changed_body",
        ],
    ),
    "B23": (
        "captchas",
        [
            f"{SHOP}/test_captcha.py::test_verify_refuses_what_is_no_answer",
            f"{SHOP}/test_captcha.py::test_verify_accepts_a_solved_challenge_once",
            f"{SHOP}/test_captcha.py::test_verify_refuses_an_expired_challenge",
        ],
    ),
    "B24": (
        "text of any script",
        [
            f"{BAD}/test_forms.py::test_name_that_does_not_fit_makes_no_account",
            f"{BAD}/test_forms.py::test_accept_language_of_any_kind",
        ],
    ),
    "W25": ("no session", [f"{BAD}/test_sockets.py::test_no_session_no_results"]),
    "W26": ("origins", [f"{BAD}/test_sockets.py::test_another_origin_gets_no_socket"]),
    "W27": (
        "results of others",
        [f"{SHOP}/test_consumers.py::test_me_forwards_frames_of_its_buyer_and_of_nobody_else"],
    ),
    "W28": (
        "no JSON",
        [
            f"{BAD}/test_sockets.py::test_bad_message_is_complained_of_until_it_is_enough",
            f"{BAD}/test_sockets.py::test_binary_frame_is_no_message",
        ],
    ),
    "W29": (
        "types",
        [f"{BAD}/test_sockets.py::test_bad_message_is_complained_of_until_it_is_enough"],
    ),
    "W30": (
        "long and chopped messages",
        [
            f"{BAD}/test_sockets.py::test_message_that_is_too_long",
            f"{BAD}/test_sockets.py::test_message_in_a_hundred_thousand_pieces",
        ],
    ),
    "W31": ("names of groups", [f"{BAD}/test_sockets.py::test_sale_that_can_not_be_one"]),
    "W32": ("floods", [f"{BAD}/test_sockets.py::test_flood_from_one_socket_closes_it_alone"]),
    "W33": (
        "many sockets",
        [
            f"{SHOP}/test_consumers_limits.py::test_me_a_sixth_socket_closes_the_oldest",
            f"{BAD}/test_sockets.py::test_two_hundred_sockets_of_one_visitor_leave_room_for_others",
        ],
    ),
    "W34": (
        "a client that doesn't read",
        [f"{SHOP}/test_consumers_limits.py::test_client_that_does_not_read_is_let_go"],
    ),
    "W35": ("half a handshake", [f"{BAD}/test_sockets.py::test_half_a_handshake_holds_nobody_up"]),
    "W36": (
        "a process that ends",
        ["tests/config/test_asgi.py::test_server_ends_at_once_with_websockets_open"],
    ),
    "A37": (
        "quantities",
        [
            "tests/inventory/test_admin.py::test_sale_that_makes_no_sense_is_refused",
            "tests/inventory/test_services.py::test_adjust_stock_takes_at_most_what_is_unsold",
        ],
    ),
    "A38": (
        "times, and changes during a sale",
        [
            "tests/inventory/test_admin.py::test_sale_that_makes_no_sense_is_refused",
            f"{ORDERS}/test_creation.py::test_create_orders_copies_the_price_and_sets_the_deadline",
        ],
    ),
    "A39": (
        "deleting",
        ["tests/inventory/test_admin.py::test_sale_with_orders_can_not_be_deleted"],
    ),
    "A40": ("very many rows", [f"{ORDERS}/test_admin.py::test_actions_take_a_bounded_number"]),
    "A41": (
        "stale forms",
        [
            "tests/inventory/test_admin.py::test_sale_edit_keeps_units_that_were_sold_meanwhile",
            "tests/inventory/test_admin.py::test_sale_edit_five_times_moves_no_instant",
        ],
    ),
    "A42": ("formulas in exports", "nothing is exported as a table"),
    "A43": ("pictures", "nothing can be uploaded; pictures are drawn from the product's name"),
    "A44": (
        "forged posts",
        ["tests/security/test_injection.py::test_forged_posts_of_viewers_write_nothing"],
    ),
    "E45": (
        "addresses and secrets",
        [
            f"{BAD}/test_environment.py::test_wrong_value_is_one_line_and_exit_code_2",
            f"{BAD}/test_environment.py::test_database_of_ones_own_wants_secrets",
            f"{BAD}/test_environment.py::test_passwords_may_hold_anything_that_is_escaped",
        ],
    ),
    "E46": ("switches", [f"{BAD}/test_environment.py::test_debug_is_off_unless_it_is_clearly_on"]),
    "E47": ("times", [f"{BAD}/test_environment.py::test_wrong_value_is_one_line_and_exit_code_2"]),
    "E48": (
        "tables of another version",
        [
            f"{SHOP}/test_health.py::test_readyz_sees_missing_migrations",
            f"{SHOP}/test_commands_doctor.py::test_doctor_sees_missing_migrations",
        ],
    ),
    "E49": (
        "back ends away at the start",
        [
            f"{SHOP}/test_commands_doctor.py::test_doctor_names_what_is_down",
            f"{SHOP}/test_health.py::test_readyz_names_what_is_down_and_tells_no_secret",
        ],
    ),
    "E50": ("options of a worker", "those are Celery's own, and it refuses what it doesn't know"),
    "E51": (
        "commands",
        [
            f"{SHOP}/test_commands_outside.py::test_wrong_use_has_an_exit_code_of_its_own",
            f"{SHOP}/test_commands.py::test_commands_name_the_sales_that_there_are",
            f"{SHOP}/test_commands.py::test_prime_sale_dry_run_loads_nothing",
        ],
    ),
    "E52": (
        "surroundings",
        [
            f"{BAD}/test_environment.py::test_surroundings_change_nothing",
            f"{BAD}/test_environment.py::test_folder_that_can_not_be_written_is_said_so",
        ],
    ),
    "E53": (
        "a Redis that is shared",
        ["tests/security/test_least_privilege.py::test_shop_may_not_harm_the_rest_of_redis"],
    ),
    "E54": (
        "a Redis that throws keys away",
        [f"{SHOP}/test_health.py::test_readyz_minds_what_redis_may_throw_away"],
    ),
    "E55": ("a port in use", ["tests/test_up.py::test_up_refuses_a_second_one_and_a_port_in_use"]),
    "E56": (
        "python -O, hash seeds",
        [f"{BAD}/test_environment.py::test_surroundings_change_nothing"],
    ),
}


def test_no_row_is_missing() -> None:
    assert sorted(int(name[1:]) for name in ROWS) == list(range(1, 57))


@pytest.mark.parametrize("row", ROWS)
def test_row_has_a_test_or_a_reason(row: str) -> None:
    _, shown = ROWS[row]
    if isinstance(shown, str):
        assert len(shown) > 20
        return
    for name in shown:
        path, _, function = name.partition("::")
        source = (environment.ROOT / path).read_text()
        assert re.search(rf"^(async )?def {function}\(", source, re.MULTILINE), name
