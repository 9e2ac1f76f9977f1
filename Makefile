# One environment for everything: .venv/ in the checkout.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo test lint unit slurm databases clean help

help:            ## what there is
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo: $(READY)   ## the whole loop on a simulated cluster; no Slurm needed
	$(VENV)/bin/mirage demo

test: $(READY)   ## everything: checks, tests, and the tests on a real Slurm where one can be started
	scripts/test

lint: $(READY)   ## formatting, types, import directions, shell
	scripts/lint

unit: $(READY)   ## the tests that need neither Slurm nor a database server
	$(VENV)/bin/pytest -m 'not slurm and not databases and not long'

slurm: $(READY)  ## the tests on a real Slurm
	scripts/test-slurm

databases: $(READY)  ## the tests on a real PostgreSQL and MariaDB
	scripts/test-databases

clean:           ## removes the environment and build products
	rm -rf $(VENV) dist build demo-out

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,examples,sim,train,postgresql,mariadb,web]'
	touch $@
