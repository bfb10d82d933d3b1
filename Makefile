# make demo    simulate, fit, compare with the truth, write a report
# make serve   the demo model as a page and an API on this machine
# make test    lint, types, layers, tests
# make proofs  the long proofs: one line per bar (an hour or two)
# make peers   the tables of docs/peers, each by the command on its page (a day; finished runs are kept in runs/)
# make bench   the benchmarks (MovieLens-1M is looked for in DOUBLEFEATURE_DATA or ../shared/data)

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo serve test proofs peers bench clean

demo: .venv/ready
	$(BIN)/doublefeature demo
	@echo "explore it in a browser: make serve"

serve: .venv/ready-server
	@test -d demo-model || $(BIN)/doublefeature demo
	$(BIN)/doublefeature serve demo-model

test: .venv/ready-dev
	./.ci/parts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m doublefeature.inference.compiling
	$(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist loadfile

proofs: .venv/ready-dev
	$(BIN)/python -m tests.correctness
	$(BIN)/python -m tests.store
	$(BIN)/python -m tests.server

peers: .venv/ready-peers
	for page in docs/peers/*.md; do \
		sed -n '/^doublefeature compare/,/^```/{/^```/d;p}' $$page | PATH="$(CURDIR)/$(BIN):$$PATH" sh -e || exit 1; \
	done

bench: .venv/ready-bench
	$(BIN)/python benchmarks/first_use.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/accuracy_time.py
	$(BIN)/python benchmarks/scale.py overhead

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/ready: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/ready-server: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[server]'
	touch $@ .venv/ready

.venv/ready-dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ .venv/ready .venv/ready-server

.venv/ready-bench: .venv/ready-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@

.venv/ready-peers: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
