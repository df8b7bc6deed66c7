"""`make bench`: the hot path on this machine, as ratios within one run; see `--help`.

Everything runs here: wrk, web process, worker, PostgreSQL, Redis, RabbitMQ. The absolute numbers
say little about another machine; the ratios do.
"""

import argparse
import json
import sys

from tests.bench import measure

TARGETS = {
    "accepted": ("accepted purchases / bare ASGI function", 0.45),
    "refused": ("refusals by the mark / bare ASGI function", 0.70),
    "page": ("empty Django page / granian's WSGI mode", 0.70),
    "orders": ("orders committed / one message and transaction each", 8.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these parts")
    parser.add_argument("--seconds", type=float, default=6, help="length of each load (6)")
    parser.add_argument("--units", type=int, default=20_000, help="units of the order part (20000)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    figures = measure.run(
        options.parts or list(measure.PARTS), seconds=options.seconds, units=options.units
    )
    sys.stdout.write(json.dumps(figures, indent=2) + "\n" if options.json else _table(figures))
    return 0 if _met(figures) else 1


def _table(figures: dict[str, float]) -> str:
    rows = [f"{name:<38}{value:>12,.1f}" for name, value in figures.items() if "ratio" not in name]
    for part, (text, target) in TARGETS.items():
        if (ratio := figures.get(f"{part}_ratio")) is not None:
            state = "ok" if ratio >= target else "MISSED"
            rows.append(f"{text:<52}{ratio:>8.2f}  (at least {target:g})  {state}")
    return "\n".join(rows) + "\n"


def _met(figures: dict[str, float]) -> bool:
    ratios = all(figures.get(f"{p}_ratio", t) >= t for p, (_, t) in TARGETS.items())
    return ratios and figures.get("accepted_p99_ms", 0) < 100


if __name__ == "__main__":
    sys.exit(main())
