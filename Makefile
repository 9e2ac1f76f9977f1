# One environment for everything: .venv/ in the checkout. The demo needs but a part of it.
SHELL := /bin/bash
VENV := .venv
DEMO := $(VENV)/.demo
READY := $(VENV)/.ready
CORE := CMakeLists.txt $(wildcard slurm_sim/core/*)
export PYTHON ?= python3

.PHONY: demo test lint unit docs slurm databases clean help

help:            ## what there is
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo: $(DEMO)    ## the whole loop on a simulated cluster; no Slurm needed
	@. scripts/phase.sh; phase demo $(VENV)/bin/mirage demo

test: $(READY)   ## everything: checks, tests, and the tests on a real Slurm where one can be started
	scripts/test

lint: $(READY)   ## formatting, types, import directions, shell, links of the documentation
	scripts/lint

unit: $(READY)   ## the tests that need neither Slurm nor a database server
	scripts/unit

docs: $(READY)   ## the documentation as a site, in site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

slurm: $(READY)  ## the tests on a real Slurm
	scripts/test-slurm

databases: $(READY)  ## the tests on a real PostgreSQL and MariaDB
	scripts/test-databases

clean:           ## removes the environment and build products
	rm -rf $(VENV) dist build demo-out site

$(DEMO): pyproject.toml constraints.txt $(CORE)
	@scripts/install sim
	@touch $@

$(READY): pyproject.toml constraints.txt $(CORE)
	@scripts/install sim train elastic placement web top postgresql mariadb examples docs dev
	@touch $(DEMO) $@
