# `make run` and `make test` need Python 3.11 and make, nothing else.

# The first of these that is Python 3.11. Recursive on purpose: only looked for when it is needed.
PYTHON = $(shell for python in .venv/bin/python python3.11 python3 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null \
	&& { command -v "$$python"; break; }; done)
BOOTSTRAP = python="$(PYTHON)"; [ -n "$$python" ] || \
	{ echo "Python 3.11 not found: install it, or put it on PATH" >&2; exit 1; }; \
	"$$python" scripts/bootstrap.py
BIN = .venv/bin
# More workers than cores only make the tests wait for each other.
TEST_WORKERS ?= 2
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test coverage e2e screenshots check format bench chaos rehearse install venv lock services clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

venv:
	@$(BOOTSTRAP) run

install: ## make .venv with all that development needs
	@$(BOOTSTRAP) dev

# PORT, WEB_SERVER, WEB_WORKERS and WORKERS reach it from the environment or from make's command line.
run: venv ## start the shop, with a demo sale, on http://127.0.0.1:8000
	@exec $(BIN)/python manage.py up

# LONG and FULL reach it from the environment or from make's command line.
test: install ## run the suite (ARGS="-k gate"; LONG=1 or FULL=1 for more of it)
	@exec $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadgroup $(ARGS)

# Counts what the shop's own processes run too, unless they are killed. Browsers find nothing more.
coverage: install ## tell which lines no test reaches
	@exec $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadgroup -m "not browser" \
		--cov --cov-report=term $(ARGS)

e2e: install ## run the tests that drive a browser
	@exec $(BIN)/python -m pytest tests/browser -m browser $(ARGS)

screenshots: install ## take pictures of every page into docs/screenshots
	@exec $(BIN)/python scripts/screenshots.py $(ARGS)

check: install ## format, lint, import contracts, types, migrations, system checks
	@exec $(BIN)/python scripts/check.py

format: install ## put the code into its form
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: install ## measure the hot path on this machine
	@exec $(BIN)/python -m tests.bench $(ARGS)

# SECONDS, SEED and CHANNEL reach it from the environment or from make's command line.
chaos: install ## break everything during a sale, and check every invariant (SECONDS=120 SEED=7)
	@exec $(BIN)/python -m tests.chaos

rehearse: venv ## run a synthetic sale against a running `make run`
	@exec $(BIN)/python manage.py rehearse $(ARGS)

lock: install ## write requirements.txt and requirements/dev.txt anew
	@exec $(BIN)/python scripts/lock.py $(ARGS)

.PHONY: sbom
sbom: venv ## write a bill of materials (CycloneDX) of requirements.txt to stdout
	@exec $(BIN)/python scripts/sbom.py $(ARGS)

services: ## install what the tests can use (Debian, as root)
	@exec sh scripts/services.sh

clean: ## remove what make and the tests made; var/ (the embedded shop's data) stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis htmlcov .coverage
