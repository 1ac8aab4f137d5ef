# Each target works from a clean clone. What they need is put in place by config/setup/setup.sh.
HOST = 127.0.0.1
PORT ?= 8000
ARGS =
PY := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup run test check bench

help:     ## this list
	@sed -n 's/^\([a-z]*\): *[a-z-]*.*## /  make \1|/p' Makefile | column -t -s '|'

setup: setup-run  ## virtual environment .venv/ and the packages that running needs

run: setup-run  ## everything, from nothing, in the foreground (PORT=8000 HOST=127.0.0.1)
	@$(PY) manage.py up --host $(HOST) --port $(PORT) $(ARGS)

test: setup-test  ## the suite on MariaDB and on SQLite, with servers of its own (ARGS="-k name")
	@$(PY) -m tests $(ARGS)

check: setup-dev  ## lint, types, import directions, migrations and generated docs
	@config/setup/check.sh

bench: setup-test  ## every benchmark against its baseline (ARGS=--long, ARGS=--json)
	@config/setup/bench.sh
	@$(PY) -m tests.bench $(ARGS)

setup-%:
	@config/setup/setup.sh $*
