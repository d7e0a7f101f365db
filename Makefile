# One environment, made from wheels and jars alone, in .venv; `make` lists what there is to make.
#   PYTHON=…  the Python (3.11 or newer) to make it with     VENV=…  another folder for it
#   ARGS=…    further words for the demo, the benchmarks or pytest     JOBS=…    test processes
VENV ?= .venv
PYTHON ?=
UV ?= uv
ARGS ?=
JOBS ?= 4
BIN = $(VENV)/bin
COMPAT-4.0 = tests/unit/datasources tests/unit/spark tests/integration/datasources tests/e2e/test_mirror.py \
	tests/integration/mirror/test_spark_engine.py
COMPAT-4.1 = $(COMPAT-4.0)
COMPAT-4.2 = tests/unit/datasources tests/unit/spark tests/unit/mirror tests/integration/datasources tests/integration/mirror \
	tests/integration/documents tests/integration/pipeline tests/e2e/test_mirror.py tests/e2e/test_mirror_modes.py \
	tests/e2e/test_live.py
EXTRAS = spark java embedded lake iceberg otel aws azure google
# Where a shell sets it, every process of the tests compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help environment demo docs quick test test-all pytest soak mirror-soak chaos simulate compat compat-4.0 compat-4.1 compat-4.2 compat-lowest lint bench \
	bench-record deploy-check dist dist-installed sbom lock clean

help:
	@echo "make demo       a shop in PostgreSQL, its documents in OpenSearch, live (ARGS=--once: once, and exit)"
	@echo "make docs       the documentation as a site, served on this machine (ARGS=--build: only built)"
	@echo "make quick      format, lint, types, layers, and the tests that need no server and no Spark: about a minute"
	@echo "make test       format, lint, types, layers, all tests but the long ones"
	@echo "make test-all   the same with the long fault suites, and what the tests reach"
	@echo "make pytest     the tests that ARGS names (ARGS=\"tests/integration -m 'not long'\")"
	@echo "make mirror-soak  random workloads, DDL and kills against a mirror (ARGS=--minutes=30)"
	@echo "make soak       random schemas and workloads against the oracle (ARGS=--minutes=10: so long)"
	@echo "make chaos      every fault in turn, with writers (ARGS=--minutes=30: so long)"
	@echo "make simulate   the controller against simulated servers (ARGS=\"--schedules 1000000\")"
	@echo "make compat     sources and mirrors, by Delta for Spark too, on PySpark 4.0 and 4.1; on 4.2 documents, too"
	@echo "make compat-lowest  the tests on the lowest version of each dependency, in an environment of its own"
	@echo "make lint       format, lint, types, layers, the prose of the pages"
	@echo "make bench      the benchmarks (ARGS=--quick: in short)"
	@echo "make bench-record  the same, and keep the ratios in bench/history.jsonl (ARGS=\"drain --rounds 3\")"
	@echo "make deploy-check  image, chart, alerts, unit and compose file, by the tools that read them (ARGS=rules: only that)"
	@echo "make dist       wheel and sdist in dist/, checked"
	@echo "make dist-installed  the wheel of dist/ alone in an environment of its own, and its demo"
	@echo "make sbom       build/sbom.cdx.json: what a deployment is made of (CycloneDX)"
	@echo "make lock       requirements.lock from pyproject.toml (needs uv)"
	@echo "make clean      remove what the others made, $(VENV) included"

environment:
	@PYTHON="$(PYTHON)" sh .ci/environment "$(VENV)"

demo:
	@PYTHON="$(PYTHON)" sh .ci/demo "$(VENV)" $(ARGS)

docs:
	@PYTHON="$(PYTHON)" sh .ci/docs "$(VENV)" $(ARGS)

lint: environment
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	PYTHONPATH=docs $(BIN)/python -m builder.prose

# Types are checked beside the tests: together they keep two processors busy.
quick: environment
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	PYTHONPATH=docs $(BIN)/python -m builder.prose
	@$(BIN)/mypy & types=$$!; \
	$(BIN)/python -m pytest tests/unit tests/property -m "not long" --hypothesis-profile quick \
		-n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS); tests=$$?; \
	wait $$types && exit $$tests

test: lint
	$(BIN)/python -m pytest tests -m "not long" -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=15 $(ARGS)

test-all: lint
	$(BIN)/python -m pytest tests -n $(JOBS) --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered $(ARGS)

pytest: environment
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

mirror-soak: environment
	PYTHONPATH=tests $(BIN)/python -m support.mirror_soak $(ARGS)

soak: environment
	PYTHONPATH=tests $(BIN)/python -m support.soak $(ARGS)

simulate: environment
	PYTHONPATH=tests $(BIN)/python -m simulation $(ARGS)

chaos: environment
	PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

compat: compat-4.0 compat-4.1 compat-4.2

compat-4.0 compat-4.1 compat-4.2: compat-%:
	@PYTHON="$(PYTHON)" sh .ci/environment "$(VENV)-compat-$*" .ci/compat-$*.lock
	$(VENV)-compat-$*/bin/python -m pytest $(COMPAT-$*) -m "not newest" --timeout 900 \
		-n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

compat-lowest:
	@PYTHON="$(PYTHON)" sh .ci/environment "$(VENV)-lowest" .ci/lowest.lock
	$(VENV)-lowest/bin/python -m pytest tests -m "not long" --timeout 900 \
		-n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

bench: environment
	@set -e; for each in bench/*.py; do echo "== $$each"; $(BIN)/python "$$each" $(ARGS); done

bench-record: environment
	PYTHONPATH=bench $(BIN)/python -m harness.record $(ARGS)

deploy-check: environment
	@PATH="$(abspath $(BIN)):$$PATH" deploy/check $(ARGS)

dist: environment
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/twine check --strict dist/*
	HEADRACE_TEST_DIST=dist $(BIN)/python -m pytest tests/unit/test_distribution.py $(ARGS)

dist-installed: dist
	HEADRACE_TEST_DIST=dist $(BIN)/python -m pytest tests/e2e/test_installed_wheel.py $(ARGS)

sbom: environment
	mkdir -p build
	$(BIN)/cyclonedx-py requirements deploy/requirements.lock --pyproject pyproject.toml --mc-type application \
		--output-reproducible --output-file build/sbom.cdx.json

lock:
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--no-emit-index-url --extra dev --quiet \
		--output-file requirements.lock pyproject.toml
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--no-emit-index-url --extra spark --extra otel --extra aws --extra azure --extra google --constraint requirements.lock --quiet \
		--output-file deploy/requirements.lock pyproject.toml
	@set -e; for spark in 4.0 4.1 4.2; do \
		$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
			--no-emit-index-url --extra dev --override .ci/compat-$$spark.txt --quiet \
			--output-file .ci/compat-$$spark.lock pyproject.toml; done
	$(UV) pip compile --universal --python-version 3.11 --resolution lowest-direct --no-annotate --no-header \
		--no-emit-index-url $(EXTRAS:%=--extra %) --quiet --output-file .ci/lowest.txt pyproject.toml
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--no-emit-index-url --extra dev --override .ci/lowest.txt --quiet \
		--output-file .ci/lowest.lock pyproject.toml .ci/lowest-tools.txt
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--no-emit-index-url --extra docs --constraint requirements.lock --quiet \
		--output-file .ci/docs.lock pyproject.toml
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		--no-emit-index-url --extra demo --constraint requirements.lock --quiet \
		--output-file .ci/demo.lock pyproject.toml .ci/demo.txt

clean:
	rm -rf build dist htmlcov .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	@for each in "$(VENV)" "$(VENV)-compat-4.0" "$(VENV)-compat-4.1" "$(VENV)-compat-4.2" "$(VENV)-lowest" "$(VENV)-demo" "$(VENV)-docs"; do if [ -f "$$each/.headrace" ]; then rm -rf "$$each"; fi; done
