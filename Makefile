# `make repro` builds the data set from the recorded LLM answers: no API key, and no network once the packages are there.
#
#   PYTHON=python3.12   the Python that the virtual environment is made with
#   VENV=path           where the virtual environment is

PYTHON ?= python3
VENV ?= .venv

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# What another project's shell may have set must not leak into this one's Python.
unexport PYTHONHOME PYTHONPATH

empty :=
space := $(empty) $(empty)
# Stages say plain `python`, so the virtual environment comes first in PATH, whichever one is active in the shell.
venv_bin := $(if $(filter /%,$(VENV)),,$(CURDIR)/)$(VENV)/bin
in_venv := PATH="$(venv_bin):$$PATH"
pip := "$(venv_bin)/python" -m pip --disable-pip-version-check
installed := $(subst $(space),\$(space),$(VENV))/.installed

.PHONY: help install repro test lock clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

install: $(installed) ## Make the virtual environment (the other targets do it by themselves)

repro: $(installed) ## Build what changed, then show what was built and where to look
	@$(in_venv) awm params
	@$(in_venv) python -m dvc repro
	@$(in_venv) awm env list

test: $(installed) ## Check style, types and behaviour: all that CI checks
	@$(in_venv) python -m ruff check .
	@$(in_venv) python -m ruff format --check .
	@$(in_venv) python -m mypy
	@$(in_venv) python -m pytest

$(installed): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else \
	"awm needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is Python %d.%d. Name another one: make PYTHON=python3.11 $(MAKECMDGOALS)" % v)'
	@echo "Installing into $(VENV) (only now and when requirements.lock or pyproject.toml change)"
	@$(PYTHON) -m venv "$(VENV)"
	@$(pip) install --quiet --progress-bar on --requirement requirements.lock
	@$(pip) install --quiet --no-deps --no-build-isolation --editable .
	@touch "$(VENV)/.installed"

# torch is by far the largest package, so its release is chosen by hand; all others follow from pyproject.toml. It pins its own
# CUDA packages: left out of the lock file, they come with a CUDA build of torch and stay away from a CPU build.
torch := 2.13.0

lock: ## Write requirements.lock anew after a change in pyproject.toml (UPGRADE=1: with the newest releases)
	@scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(PYTHON) -m venv "$$scratch/venv"; \
	"$$scratch/venv/bin/python" -m pip --disable-pip-version-check install --quiet --upgrade pip pip-tools; \
	cp requirements.lock "$$scratch/pins"; \
	echo 'torch==$(torch)' > "$$scratch/torch"; \
	"$$scratch/venv/bin/python" -m piptools compile --constraint "$$scratch/torch" --output-file "$$scratch/pins" \
	    $(if $(UPGRADE),--upgrade) pyproject.toml > /dev/null; \
	{ sed '/^[^#]/,$$d' requirements.lock; \
	  sed -E '/^($$|#|pip=|nvidia-|cuda-|triton=)/d; s/\+[a-z0-9]+ / /; s/ +# via .*-c [^ ,]+(, )?/  # via /; s/ \(pyproject.toml\)//; s/ +#/  #/' \
	    "$$scratch/pins" | LC_ALL=C sort; } > "$$scratch/lock"; \
	cp "$$scratch/lock" requirements.lock

clean: ## Remove .venv and the tools' caches; data, models and paid answers stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
