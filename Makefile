# turnout: every target does its own set-up. `make` alone prints this list.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
ARGS   ?=
# Tests that need no JVM and no server.
FAST   := --ignore tests/spark --ignore tests/integration --ignore tests/nats/jetstream --ignore tests/nats/wire -m "not spark and not jetstream and not subscriptions and not mongo and not postgres and not kafka and not integration and not heavy and not soak and not packaging"

.DEFAULT_GOAL := help
# Tests start hundreds of interpreters; without files of bytecode each of them compiles turnout anew, for half a second.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup demo test every-test fast check lint types layers proto fresh schema editor fix bench soak lowest pythons audit docs reference release coverage wheel sbom build image requirements run clean

help:  ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "turnout needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing turnout and its pinned dependencies into $(VENV) (the first time takes a minute or two)"
	@PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

setup: $(STAMP)  ## .venv with everything, pinned by constraints.txt (the others call it)

demo: $(STAMP)  ## the main job: a year of flights through the switch, on real servers
	@$(BIN)/turnout demo $(ARGS)

test: $(STAMP)  ## the tests, with the real servers that they start themselves
	$(BIN)/python -m tools.run_tests $(ARGS)

every-test: $(STAMP)  ## the same with the heavy ones (clusters, kills, environments of their own); a second try is a failure
	$(BIN)/python -m tools.run_tests --every --strict

fast: $(STAMP)  ## the tests that need no JVM and no server, side by side and with few examples of each property: two or three minutes
	TURNOUT_HYPOTHESIS=fast $(BIN)/python -m pytest -p tools.forked_tests --processes 3 $(FAST) $(ARGS)

check: lint types layers fresh every-test  ## what CI runs, fastest first

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.words
	$(BIN)/python -m tools.sizes --check

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

proto: $(STAMP)  ## generate the gRPC code from src/turnout/rpc/v1/*.proto
	@if ls src/turnout/rpc/v1/*.proto >/dev/null 2>&1; then \
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src --grpc_python_out=src src/turnout/rpc/v1/*.proto; fi

schema: $(STAMP)  ## write schema/*.json for editors, from the models and registries
	$(BIN)/turnout schema route > schema/route.schema.json
	$(BIN)/turnout schema test > schema/test.schema.json
	$(BIN)/turnout schema server > schema/server.schema.json

editor:  ## src/turnout/console/static/vendor: CodeMirror for the console, with npm and the versions of tools/editor
	cd tools/editor && npm ci --ignore-scripts --no-fund --no-audit && node bundle.js

fix: $(STAMP)  ## let ruff repair and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## make bench ARGS="route --json"
	$(BIN)/turnout bench $(ARGS)

soak: $(STAMP)  ## the long tests with faults
	$(BIN)/python -m pytest -m soak $(ARGS)

lowest: $(STAMP)  ## the fast tests, and a run of each extra, with the lowest versions that pyproject.toml allows
	$(BIN)/python -m pytest tests/packaging/test_lowest.py $(ARGS)

pythons: $(STAMP)  ## the demo from the wheel under each Python that is there; TURNOUT_PYTHONS=/path/python3.14 names others
	$(BIN)/python -m pytest tests/packaging/test_pythons.py $(ARGS)

audit: $(STAMP)  ## known vulnerabilities of the pinned versions, asked of PyPI; what cannot be asked is an error
	@$(BIN)/python -m tools.audit

docs: $(STAMP)  ## the documentation as a site, in build/site; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

reference: $(STAMP)  ## write the pages in docs/ that are made of the code
	$(BIN)/python -m tools.reference_pages

GENERATED := src/turnout/rpc/v1 schema docs
fresh: $(STAMP)  ## fail where generated code, schemas or pages are not what the sources make, and write them
	@before=$$(git diff -- $(GENERATED) | sha256sum); $(MAKE) --no-print-directory proto schema reference; \
	test "$$before" = "$$(git diff -- $(GENERATED) | sha256sum)" || { git diff --stat -- $(GENERATED); echo "generated files were stale: commit what was written"; exit 1; }

release: $(STAMP)  ## print what a release would tag, and what stands in its way
	@$(BIN)/python -m tools.release

coverage: $(STAMP)  ## share of the lines that the fast tests run, by module; ARGS="tests/subjects" measures some
	$(BIN)/python -m coverage run -m pytest -q $(FAST) $(ARGS)
	$(BIN)/python -m coverage report

wheel: $(STAMP)  ## dist/: the source distribution, and the wheel that is built from it
	rm -rf build dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

sbom: wheel  ## dist/*.cdx.json: what turnout[all] installs with the pinned versions, as CycloneDX
	$(BIN)/python -m tools.sbom dist

build: proto wheel sbom  ## generate the sources from the proto files, build the package and its bill of materials

image: wheel  ## the container image "turnout", with docker, podman or buildah; deploy/image/build.sh has its settings
	deploy/image/build.sh $(ARGS)

HASHED := --constraints constraints.txt --python-version 3.13 --generate-hashes --no-header --no-annotate --no-emit-index-url
# Not in it are lake (130 MB), msk, connect and what is for a workplace; a test compares.
IN_IMAGE := spark jetstream subscriptions server webhooks ha otlp mongo postgres msgpack regex cel protobuf avro jsonschema kafka
requirements: $(STAMP)  ## deploy/image/*requirements.txt: what the image installs, with the hash of every file
	@printf 'setuptools\nwheel\n' | $(BIN)/uv pip compile --quiet - $(HASHED) --output-file deploy/image/build-requirements.txt
	@$(BIN)/uv pip compile --quiet pyproject.toml $(HASHED) --output-file deploy/image/requirements.txt \
	$(addprefix --extra ,$(IN_IMAGE))

# What is run on this machine alone may be built of what the base's tag names now.
run: export UNPINNED_BASE ?= yes
run: image  ## the image, with the variables of env.txt, which says what a published port needs; make run ARGS="--version"
	deploy/image/run.sh $(ARGS)

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse artifacts
