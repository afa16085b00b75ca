# Thin: each target names the scripts in .ci and the presets that do the work. `make help` lists them.
SHELL := /bin/bash
PYTHON := .venv/bin/python
SERVER := build/release/counterweight-server
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/.tools/prometheus:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help demo test build deb wheel serve image bench peers fuzz arm64 lint format docs site manifests pictures proto release clean

help: ## List the targets
	@grep -hE '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10
	@echo
	@echo 'CUDA=1 fetches a CUDA compiler and builds for GPUs, CUDA=0 never does. TORCH=1 adds the tests and'
	@echo 'benchmarks that need torch (5 GB). ARGS="..." are the flags of make serve.'

demo: ## From a fresh Debian 12 to a server correcting real rollouts; KEEP=1 leaves it running for a browser
	@echo 'demo: step 1 of 3: packages (the first time 1 to 4 minutes)'
	@.ci/setup
	@echo 'demo: step 2 of 3: building the server (the first time 3 to 12 minutes on two cores; three files of kernels take a minute or more each)'
	@CUDA=$${CUDA:-$$(grep -qs 'COUNTERWEIGHT_CUDA:.*=ON' build/release/CMakeCache.txt || echo 0)} .ci/build release counterweight-server
	@echo 'demo: step 3 of 3: correcting real rollouts (seconds)'
	@$(PYTHON) tests/demo/demo.py --server $(SERVER) $(if $(KEEP),--keep)

test: ## From a fresh Debian 12 to all tests, at both ends of the Python dependencies; ARGS="kernels_test" or a path for a part
	@.ci/test $(ARGS)

build: ## The server, tests and benchmarks in build/release
	@.ci/setup
	@.ci/build release

deb: ## Debian packages of the C++ client and of the server in build/release/deb
	@.ci/setup
	@.ci/build release installed_client counterweight-server
	@cd build/release && cpack

serve: ## Build and run the server; ARGS="--listen=localhost:50051" gives it flags
	@.ci/setup
	@.ci/build release counterweight-server
	@exec $(SERVER) $(ARGS)

image: ## A container image in build/image, without Docker; ARGS="--variant=cuda" names the GPU one (after CUDA=1 make build)
	@.ci/setup
	@.ci/build release counterweight-server
	@$(PYTHON) deploy/image/pack.py $(ARGS)

bench: ## Time per token against memcpy and eager torch
	@.ci/setup torch go
	@.ci/build release
	@.venv-torch/bin/python tests/benchmark/bench.py --build build/release $(ARGS)

peers: ## Compare counterweight_rl.compat with other systems' own releases; ARGS="verl==0.9.1" for one
	@.ci/setup peers
	@.ci/build release counterweight-server
	@.ci/peers $(ARGS)

fuzz: ## Fuzz targets under sanitizers, 20 seconds each; ARGS=600 for the long run
	@.ci/setup fuzz
	@.ci/fuzz $(ARGS)

arm64: ## Compile the kernels for arm64, run their tests in qemu and compare every bit with this machine's
	@.ci/setup arm64
	@.ci/arm64

lint: ## Formatting, clang-tidy, buf, ruff, mypy, Go's vet and staticcheck, layers, words, generated code, documentation and site
	@.ci/setup lint gen site
	@.ci/lint

format: ## Format C++, CUDA, Python and proto files in place
	@.ci/setup lint
	@.ci/lint --fix

docs: ## Rewrite kernels/METHODS.md, kernels/doctor/FINDINGS.md, server/METRICS.md, the Python client's tables and asyncio client, and the dashboards
	@.ci/setup
	@.ci/docs
	@.ci/asyncio_client
	@$(PYTHON) deploy/grafana/dashboards.py

site: ## The documentation site in build/site, of this tree and of each release, from the pages and the docstrings; dead links fail
	@.ci/setup site
	@.ci/site

manifests: ## Copy the alerts into the Helm chart, and rewrite kustomize's objects from it
	@.ci/setup go
	@cp deploy/prometheus/rules.yml deploy/helm/counterweight/files/rules.yml
	@.ci/with_go go test -C deploy/tools -count=1 -vet=off ./manifests -run TheObjectsOfKustomize -write

pictures: ## Take the pictures of the page and of the dashboards' data again
	@.ci/setup browser
	@.ci/build release counterweight-server
	@PYTHONPATH=tests/e2e $(PYTHON) tests/demo/dashboard_pictures.py
	@PYTHONPATH=tests/e2e $(PYTHON) tests/demo/page_pictures.py

proto: ## Regenerate the Python and Go clients' protobuf code
	@.ci/setup gen
	@.ci/generate

wheel: ## dist/*.whl with the client, the library and the server, the source distribution, and the wheel's tests; CUDA=1 adds the wheel with CUDA, ARM64=1 the one for aarch64, SDIST=1 builds from source too
	@.ci/setup wheel $(if $(filter 1,$(ARM64)),arm64)
	@deploy/wheel/make_wheel
	@.ci/build release counterweight-server counterweight_embedded
	@WHEEL=$$(ls $(CURDIR)/dist/counterweight_rl-*_x86_64.whl) \
	  ARM64_WHEEL=$(if $(filter 1,$(ARM64)),$$(ls $(CURDIR)/dist/counterweight_rl-*_aarch64.whl)) \
	  CUDA_WHEEL=$(if $(filter 1,$(CUDA)),$$(ls $(CURDIR)/dist/counterweight_rl_cu13-*.whl)) \
	  SDIST=$(if $(SDIST),$$(ls $(CURDIR)/dist/*.tar.gz)) \
	  $(PYTHON) -m pytest -q -p no:cacheprovider tests/wheel

release: ## dist/release from a tag of this commit: wheels, source, images, Debian packages, chart, bills of materials, checksums, notes; CUDA=0 leaves CUDA out
	@deploy/release/make_release

clean: ## Remove build and dist; the environments .venv* and .tools stay
	rm -rf build dist
