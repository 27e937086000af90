# Signalbox. `make` alone prints this help.
PY := .venv/bin/python
BIN := .venv/bin
# The stack that `make up` runs is none of a check's business.
CHECK := SIGNALBOX_DATA_DIR=/dev/null SIGNALBOX_DEMO=1
JOBS ?= 2
PYTEST := $(PY) -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help up test test-long smoke lint fmt type bench lock venv chromium

help: ## Print this help
	@echo "make up      runs everything on this machine; make test runs all tests. All targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "Options: make up PORT=8080 DATA_DIR=/path DEMO=no;  make test JOBS=4 ARGS='-k relay'"

up: venv ## Run the whole stack on this machine until Ctrl-C (data in .signalbox/)
	@exec $(PY) manage.py up $(if $(PORT),--port $(PORT)) $(if $(DATA_DIR),--data-dir "$(DATA_DIR)") $(if $(filter no,$(DEMO)),--no-demo)

test: venv chromium ## Run all tests but the long ones, in parallel (JOBS=2)
	@$(CHECK) $(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	@$(PYTEST) -m "not long"

test-long: venv chromium ## Run the long tests (minutes or millions of rows)
	@$(PYTEST) -m long --timeout 3600

smoke: venv ## Prove on a scratch stack that nothing is lost, doubled or out of order; prints one JSON line
	@exec $(PY) manage.py smoke $(ARGS)

lint: venv ## Check style, imports between layers, templates and dependencies
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/djlint --check --lint templates
	@$(BIN)/deptry .

fmt: venv ## Format the code and mend what can be mended by itself
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/djlint --quiet --reformat templates || true

type: venv ## Check types (mypy, strict)
	@$(CHECK) $(BIN)/mypy console relay dlq sagas

bench: venv ## Run the benchmarks, short (FULL=yes for the full length)
	@files=$$(ls bench/*.py 2>/dev/null); \
	if [ -z "$$files" ]; then echo "There are no benchmarks yet."; exit 0; fi; \
	for file in $$files; do echo "$$file"; $(PY) "$$file" $(if $(FULL),,--quick) $(ARGS) || exit 1; done

lock: venv ## Lock the requirements again, with hashes and no host name
	@for name in dev base uv; do \
	  $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	    --no-annotate $$([ $$name = base ] && echo "-c requirements/dev.txt") requirements/$$name.in -o requirements/$$name.txt || exit 1; \
	done

venv:
	@./scripts/venv.sh

chromium:
	@./scripts/chromium.sh
