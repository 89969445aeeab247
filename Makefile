# `make up` starts a broker with its page, `make test` runs the tests; both prepare .venv by themselves.
# PYTHON=python3.12 picks another interpreter (for a new .venv), ARGS=... goes to the program run.

PYTHON ?= python3
ARGS ?=
BIN := $(CURDIR)/.venv/bin
# What `make up` needs is installed, and what everything else does.
RUNS := .venv/.runs
READY := .venv/.ready
BUILD_EXT := $(BIN)/python setup.py -q build_ext --inplace
# Some tests call tools by name: cython-lint calls pycodestyle, say.
IN_VENV := PATH="$(BIN):$$PATH"

.PHONY: help up ext test spark-matrix screenshots soak unsteady mutants trust bench bench-growth bench-smoke bench-clients bench-tools \
    bench-spark debug-test asan-test fuzz fuzz-smoke fuzz-states cov html lint go-nsq go-client go-minio completions man samples docs configuration \
    locks lowest wheel wheels wheel-test wheel-extras chroot-test test-pythons check-workflows clean

# What stands behind ## beside a target, and in lines of its own for a target with ARGS.
help: ## say what there is to make
	@awk '/^[a-z-]+:.* ## / { name = $$0; sub(/:.*/, "", name); text = $$0; sub(/^.* ## /, "", text); said = 1 } \
	    /^## [a-z-]+ .*: / { name = $$0; sub(/^## /, "", name); sub(/: .*/, "", name); text = $$0; sub(/^[^:]*: /, "", text); said = 1 } \
	    said { printf "make %-23s%s\n", name, text; said = 0 }' Makefile

# Tests start thousands of programs, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# All but spark: see IF_SPARK.
EXTRAS := admin,arrays,arrow,bench,chart,opentelemetry,prometheus,server,snappy
RUN_EXTRAS := admin,server
# Without a network pip writes pages about it.
define INSTALL
$(BIN)/python -m pip install -q --disable-pip-version-check --no-compile $(1) 2>.venv/pip.log || { status=$$?; \
	if grep -qi 'connection\|timed out' .venv/pip.log; then \
	    echo "nsqfast: the package index cannot be reached: .venv/pip.log has what pip says"; \
	else cat .venv/pip.log; fi >&2; exit $$status; }
endef
BUILD_NEEDS = sed -n '/^requires = /{s/.*\[//; s/[]"]//g; s/, /\n/g; p}' pyproject.toml

# Python compiles what is run, which is a part of what is installed; make ext compiles the rooms.
$(RUNS): pyproject.toml
	@test ! -f .ci/check-tools || sh .ci/check-tools "$(PYTHON)"
	@echo "nsqfast: preparing .venv (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BUILD_NEEDS) > .venv/build-needs
	@$(call INSTALL,-r .venv/build-needs)
	@export NSQFAST_ROOMS=none; $(call INSTALL,--no-build-isolation -e '.[$(RUN_EXTRAS)]')
	@touch $@

$(READY): $(RUNS)
	@echo "nsqfast: installing what tests need (once)"
	@$(call INSTALL,-U "pip>=25.1")
	@$(call INSTALL,--group dev --group docs 'nsqfast[$(EXTRAS)]')
	@touch $@

ext: $(READY) ## build what changed in _ext/
	@$(BUILD_EXT)

# PySpark is half a gigabyte, so it is installed where it can run; what else needs it says that Java is missing.
HAS_JAVA = test -f .ci/check_java.py && $(BIN)/python .ci/check_java.py
IF_SPARK = if $(HAS_JAVA) && ! $(BIN)/python -c 'import pyspark, grpc_status' 2>/dev/null; then \
	    echo "nsqfast: installing PySpark (once; a minute or two)"; \
	    $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile 'nsqfast[spark]' 'pyspark[pipelines]'; \
	fi

# All but dev, which is for tests.
up: $(RUNS) ## start nsqlookupd, nsqd (ports 4150 and 4151, data in ./data) and nsqadmin, whose page is on port 4171
## up ARGS=--nsqd-only: the broker alone
## up ARGS=--demo-cluster: a cluster to look at in the page: two nsqd, topics that are well and others that are not
## up ARGS=--demo: send messages through a broker of its own and show them, then stop
## up ARGS=--demo-spark: the same with Spark: a load, an ingest, the table of what arrived; needs Java 17
	@NSQFAST_ROOMS="core commitlog protocol storage broker server client bench" $(BUILD_EXT)
	@$(if $(findstring --demo-spark,$(ARGS)),$(IF_SPARK))
	@$(BIN)/python -m $(if $(findstring --demo-spark,$(ARGS)),nsqfast.dev.demo_spark,nsqfast.dev.demo) $(ARGS)

# Without Go, or without a way to its modules, what needs these programs is skipped.
IF_GO = if test ! -x .go-nsq/nsqd && command -v go >/dev/null 2>&1; then \
	    $(MAKE) --no-print-directory go-nsq || echo "nsqfast: go-nsq was not built, what needs it is skipped"; \
	fi

# Whoever names other tests does not wait for it.
NEEDS_SPARK = $(if $(findstring tests/,$(ARGS)),$(findstring spark,$(ARGS)),yes)

test: ext ## every suite, a few side by side (ARGS=... goes to pytest: ARGS='-k name -x', ARGS=tests/client)
	@$(IF_GO)
	@$(if $(NEEDS_SPARK),$(IF_SPARK))
	@$(IN_VENV) $(BIN)/python tests/run_suites.py $(ARGS)

# Each in a folder of its own before that of .venv; a version whose install fails is a failure.
SPARKS ?= 4.0 4.2 4.3
spark-matrix: ext ## tests/spark on every PySpark that is supported: 4.0, 4.2, 4.3 (SPARKS=4.1 for another)
	@$(IF_GO)
	@$(IF_SPARK)
	@status=0; for version in $(SPARKS); do \
	    place="$(CURDIR)/build/pyspark-$$version"; \
	    test -e "$$place/.ready" || { rm -rf "$$place"; $(BIN)/python -m pip install -q --disable-pip-version-check \
	        --target "$$place" "pyspark==$$version.*" && touch "$$place/.ready"; } || { status=1; continue; }; \
	    echo "nsqfast: PySpark $$version"; \
	    PYTHONPATH="$$place" $(IN_VENV) $(BIN)/pytest tests/spark $(ARGS) || status=$$?; \
	done; exit $$status

screenshots: ext ## every page and dialog of nsqadmin: build/screenshots, what documents show in docs/screenshots
	@TZ=UTC $(BIN)/python tests/admin_ui/screenshots.py $(ARGS)

soak: ext ## the tests that make test leaves out because they take long, CI runs both: Go's nsqd once more, kills, leaks
	@$(IF_GO)
	@$(IF_SPARK)
	@$(IN_VENV) $(BIN)/python tests/run_suites.py -m soak $(ARGS)

unsteady: ext ## tests that fail by luck: what make test runs, ROUNDS times (5), on a machine that is kept busy
	@$(IF_GO)
	@$(IF_SPARK)
	@$(IN_VENV) ROUNDS="$(ROUNDS)" $(BIN)/python tests/unsteady.py $(ARGS)

docs: configuration ## the documents as a site, in build/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q --strict
	@echo "nsqfast: build/site/index.html"

configuration: ext ## docs/reference/configuration.md, from the options of every program
	@$(BIN)/python docs/site/configuration.py docs/reference/configuration.md

# One line per workload: boundaries, crash states, and what was missing in them.
trust: ext ## crashes by the thousand: power cuts between any two calls, and what survives them (half an hour)
	@$(IF_GO)
	@$(IN_VENV) $(BIN)/pytest tests/durability -m trust -s $(ARGS)

# docs/performance.md has tables of the reports.
QUOTE = $(BIN)/python benchmarks/quotes.py

# An installed package has its bytecode, without which a start compiles every module; Python may be told to write none.
bench: ext ## measure nsqfast beside Go's nsqd: benchmarks/results/REPORT.md (three quarters of an hour)
	@$(IF_GO)
	@mkdir -p build
	@$(BIN)/python -m compileall -q nsqfast _ext
	@$(IN_VENV) $(BIN)/pytest benchmarks --ignore=benchmarks/client --ignore=benchmarks/tools --ignore=benchmarks/spark --ignore=benchmarks/growth --benchmark-json=build/bench.json --benchmark-columns=median,iqr,rounds $(ARGS)
	@$(BIN)/python benchmarks/report.py build/bench.json benchmarks/results
	@$(QUOTE)

bench-growth: ext ## what one more costs when there are many, and what others have to bear: benchmarks/results/GROWTH.md (an hour or two)
	@$(IF_GO)
	@mkdir -p build
	@$(IN_VENV) $(BIN)/pytest benchmarks/growth -q --growth-scale=full -o faulthandler_timeout=0 --benchmark-json=build/growth.json --benchmark-columns=rounds $(ARGS)
	@$(BIN)/python benchmarks/growth/table.py build/growth.json benchmarks/results/GROWTH.md
	@$(QUOTE)

# The other clients are worth a try, not a failure.
bench-clients: ext ## the client library beside pynsq, ansq, asyncnsq and go-nsq (a few minutes)
	@$(BIN)/python -m pip install -q --group bench-clients || echo "nsqfast: some clients cannot be installed and are left out"
	@if command -v go >/dev/null 2>&1; then $(MAKE) --no-print-directory go-client || true; fi
	@mkdir -p build
	@$(IN_VENV) $(BIN)/pytest benchmarks/client -q --benchmark-json=build/clients.json --benchmark-columns=rounds $(ARGS)
	@$(BIN)/python benchmarks/client/table.py build/clients.json benchmarks/results/CLIENTS.md
	@$(QUOTE)
	@cat benchmarks/results/CLIENTS.md

bench-tools: ext ## the utilities beside Go's: benchmarks/results/TOOLS.md (a few minutes)
	@$(IF_GO)
	@mkdir -p build
	@$(IN_VENV) $(BIN)/pytest benchmarks/tools -q --benchmark-json=build/tools.json --benchmark-columns=rounds $(ARGS)
	@$(BIN)/python benchmarks/tools/table.py build/tools.json benchmarks/results/TOOLS.md
	@$(QUOTE)
	@cat benchmarks/results/TOOLS.md

bench-spark: ext ## receiver, source, sink and jobs in local[2]: benchmarks/results/SPARK.md (ten minutes)
	@$(IF_GO)
	@$(IF_SPARK)
	@mkdir -p build
	@$(IN_VENV) $(BIN)/pytest benchmarks/spark -q --benchmark-json=build/spark.json --benchmark-columns=rounds $(ARGS)
	@$(BIN)/python benchmarks/spark/table.py build/spark.json benchmarks/results/SPARK.md
	@$(QUOTE)
	@cat benchmarks/results/SPARK.md

bench-smoke: ext ## every benchmark briefly: whether it works, not how fast
	@$(IF_GO)
	@$(IF_SPARK)
	@$(IN_VENV) $(BIN)/python tests/run_suites.py benchmarks $(ARGS)

go-nsq: ## build the NSQ programs in Go that compatibility tests talk to
	@if test ! -f tests/compat/go/build.sh; then echo "nsqfast: no tests/compat/go here" >&2; exit 1; fi
	@command -v go >/dev/null 2>&1 || { echo "nsqfast: go is missing: apt install golang-go" >&2; exit 1; }
	@sh tests/compat/go/build.sh .go-nsq

# The newest that the Go module proxy has; Go checks its sum.
MINIO := github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
go-minio: ## build MinIO, whose buckets outlive a kill: for one test of soak, and a row of bench-spark (two minutes)
	@command -v go >/dev/null 2>&1 || { echo "nsqfast: go is missing: apt install golang-go" >&2; exit 1; }
	@GOBIN="$(CURDIR)/.go-nsq" go install -trimpath -ldflags="-s -w" $(MINIO)

go-client: ## build the Go client that bench-clients measures
	@command -v go >/dev/null 2>&1 || { echo "nsqfast: go is missing: apt install golang-go" >&2; exit 1; }
	@mkdir -p .go-nsq
	@cd benchmarks/client/go && GOFLAGS="$$GOFLAGS -mod=readonly" go build -o "$(CURDIR)/.go-nsq/client_driver" .

# Each of these leaves the release build behind, whatever the tests said; should it be interrupted,
# the next `make ext` sees that the settings differ and builds all of it anew.
debug-test: $(READY) ## tests on the build with checks compiled in
	@NSQFAST_DEBUG=1 $(BUILD_EXT)
	@status=0; $(IN_VENV) NSQFAST_DEBUG=1 $(BIN)/python tests/run_suites.py --ignore=tests/source --ignore=tests/admin_ui $(ARGS) || status=$$?; \
	$(BUILD_EXT) && exit $$status

asan-test: $(READY) ## tests/ext under the address and undefined-behaviour sanitizers
	@NSQFAST_SANITIZE=1 $(BUILD_EXT)
	@status=0; $(IN_VENV) NSQFAST_SANITIZE=1 PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	$(BIN)/python -m pytest tests/ext $(ARGS) || status=$$?; \
	$(BUILD_EXT) && exit $$status

# The instrumented modules stand in build/fuzz, so the release build stays as it is.
FUZZ_BUILD = NSQFAST_FUZZ=1 CC=clang $(BIN)/python setup.py -q build --build-base build/fuzz --build-lib build/fuzz/lib
IF_FUZZ = lacks=""; command -v clang >/dev/null 2>&1 || lacks="clang: apt install clang"; \
	test -n "$$lacks" || $(BIN)/python -c "import atheris" 2>/dev/null \
	|| $(BIN)/python -m pip install -q --group fuzz >/dev/null 2>&1 || lacks="atheris: pip install --group fuzz"

fuzz: ext ## libFuzzer on all that reads foreign bytes (ARGS='--seconds 600 session'); needs clang
	@$(IF_FUZZ); if test -n "$$lacks"; then echo "nsqfast: fuzzing needs $$lacks" >&2; exit 1; fi
	@$(FUZZ_BUILD) >/dev/null
	@$(BIN)/python tests/fuzz/run.py $(ARGS)

fuzz-smoke: ext ## every target briefly, with the same inputs each time; skipped without clang or atheris
	@$(IF_FUZZ); if test -n "$$lacks"; then echo "nsqfast: fuzz-smoke is skipped, it needs $$lacks"; exit 0; fi; \
	$(FUZZ_BUILD) >/dev/null && $(BIN)/python tests/fuzz/run.py --smoke $(ARGS)

# The broker of the same build; where clang or atheris is missing, the release build.
fuzz-states: ext ## many clients and operators do what they like for ten minutes, and no message is lost (ARGS='--seconds 60 --seed 1')
	@$(IF_FUZZ); if test -n "$$lacks"; then \
	    echo "nsqfast: no sanitizers, they need $$lacks"; $(BIN)/python tests/fuzz/states/run.py $(ARGS); \
	else $(FUZZ_BUILD) >/dev/null && $(BIN)/python tests/fuzz/states/run.py --sanitized $(ARGS); fi

mutants: ext ## whether tests notice changed lines of a package (ARGS='nsqfast/net --count 20'); hours for 200
	@$(IF_GO)
	@$(BIN)/python -c "import cosmic_ray" 2>/dev/null || $(WITH_GROUP) mutants
	@$(IN_VENV) $(BIN)/python tests/mutants/run.py $(ARGS)

# In one process, which a browser's driver would not share: it runs an event loop for as long as the process lives.
cov: $(READY) ## line coverage, .pyx included
	@NSQFAST_TRACE=1 $(BUILD_EXT)
	@status=0; $(IN_VENV) $(BIN)/coverage run -m pytest --deselect tests/source --ignore=tests/admin_ui $(ARGS) || status=$$?; \
	$(BIN)/coverage report || status=$$?; $(BUILD_EXT) && exit $$status

html: $(READY) ## _ext/*.html: which lines touch the Python C API
	@NSQFAST_ANNOTATE=1 $(BUILD_EXT)
	@find _ext -name '*.html'

# Without a compiled module, so that it can come before the build.
lint: $(READY) ## style, types, layers, citations, lengths
	@NSQFAST_ROOMS=none $(BUILD_EXT)
	@$(IN_VENV) $(BIN)/pytest -q tests/source -m "not built and not soak" $(ARGS)

completions: ext ## completions/ for bash and zsh, from the options of every program
	@$(BIN)/python -m nsqfast.tools.completion.main bash > completions/nsqfast.bash
	@$(BIN)/python -m nsqfast.tools.completion.main zsh > completions/_nsqfast

man: ext ## deploy/man/: a page for every program, from its options
	@$(BIN)/python -m nsqfast.dev.manual man deploy/man

samples: ext ## deploy/config/: a config file with every setting of each daemon, from its options
	@$(BIN)/python -m nsqfast.dev.manual samples deploy/config

# In a copy of the sources: build/lib keeps the modules of yesterday, and the build that is running stays as it is.
WITH_GROUP = $(BIN)/python -m pip install -q --disable-pip-version-check --group
MADE = build/wheels/made
CHECK_WHEELS = $(BIN)/twine check --strict $(MADE)/* && $(BIN)/check-wheel-contents $(MADE)/*.whl \
	&& for wheel in $(MADE)/*.whl; do $(BIN)/auditwheel show $$wheel | grep 'platform tag:'; done \
	&& $(IN_VENV) NSQFAST_WHEELS=$(MADE) $(BIN)/pytest -q tests/packaging/test_wheel.py

wheel: ext ## sdist in dist/, and a wheel for this Python and this machine's glibc
	@$(WITH_GROUP) wheels
	@PYTHONPATH=.ci $(BIN)/python -m wheels.build --native
	@$(CHECK_WHEELS)

wheels: ext ## wheels for glibc 2.28 and every Python from 3.11 that is here (PYTHONS='python3.12 ...' names them); others stay
	@$(WITH_GROUP) wheels
	@PYTHONS="$(PYTHONS)" PYTHONPATH=.ci $(BIN)/python -m wheels.build
	@$(CHECK_WHEELS)

wheel-test: $(READY) ## install each of them without a compiler, and run tests against it, as root and as nobody
	@PYTHONS="$(PYTHONS)" PYTHONPATH=.ci $(BIN)/python -m wheels.installed $(ARGS)

wheel-extras: $(READY) ## install each extra alone: its size, and that its programs start
	@$(IN_VENV) NSQFAST_WHEELS=dist NSQFAST_EXTRAS=1 $(BIN)/pytest -q -rP tests/packaging/test_installed.py $(ARGS)

chroot-test: $(READY) ## the tutorial, word by word, on a bare Debian with the wheel (apt install debootstrap; as root)
	@PYTHONPATH=.ci $(BIN)/python -m wheels.chroot $(ARGS)

test-pythons: $(READY) ## tests on every Python from 3.11 that is here
	@PYTHONS="$(PYTHONS)" PYTHONPATH=.ci $(BIN)/python -m wheels.pythons $(ARGS)

# What images and releases install: exact versions and hashes, for each platform. Python of the image, or the lowest.
COMPILE_LOCK = $(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-annotate --custom-compile-command "make locks"
locks: $(READY) ## the versions and hashes that images, wheels and audits install, from pyproject.toml
	@$(WITH_GROUP) locks
	@$(COMPILE_LOCK) --python-version 3.13 --extra server --extra admin pyproject.toml -o deploy/docker/requirements.txt
	@$(BUILD_NEEDS) | $(COMPILE_LOCK) --python-version 3.11 - -o deploy/docker/build-requirements.txt
	@$(COMPILE_LOCK) --python-version 3.13 --group release -o .github/requirements/release.txt
	@$(COMPILE_LOCK) --python-version 3.13 --group audit -o .github/requirements/audit.txt

# nsqadmin asks for a later aiohttp than the rest, so each has an environment of its own.
LOWEST_OF_admin = --extra server --extra admin
LOWEST_OF_rest = --extra server --extra arrow --extra msgspec --extra opentelemetry --extra pydantic
LOWEST_TESTS_admin = tests/nsqadmin tests/net
LOWEST_TESTS_rest = tests/app tests/client tests/nsqd tests/nsqlookupd tests/streams tests/archives tests/tools \
    --deselect='tests/nsqd/test_checkup.py::test_the_other_daemons[nsqadmin]'
lowest: ext ## tests with the lowest version of each dependency that pyproject.toml allows
	@$(WITH_GROUP) locks
	@mkdir -p build
	@$(foreach part,rest admin,$(BIN)/uv venv -q --clear --python $(BIN)/python build/lowest-$(part) \
	    && $(BIN)/uv pip compile -q --upgrade --resolution lowest-direct --python $(BIN)/python $(LOWEST_OF_$(part)) pyproject.toml \
	        -o build/lowest-$(part).txt \
	    && $(BIN)/uv pip install -q --python build/lowest-$(part)/bin/python -r build/lowest-$(part).txt --group wheel-tests \
	        setuptools Cython \
	    && NSQFAST_ROOMS=none $(BIN)/uv pip install -q --python build/lowest-$(part)/bin/python --no-deps --no-build-isolation -e . \
	    && build/lowest-$(part)/bin/python -m pytest -q -p no:cacheprovider \
	        -m "not slow and not soak and not trust and not go" $(LOWEST_TESTS_$(part)) $(ARGS) &&) true

# actionlint is a program in Go.
check-workflows: $(READY) ## .github/workflows, by actionlint and cibuildwheel; needs go
	@command -v go >/dev/null 2>&1 || { echo "nsqfast: go is missing: apt install golang-go" >&2; exit 1; }
	@go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7 .github/workflows/*.yml
	@$(WITH_GROUP) workflows
	@for arch in x86_64 aarch64; do $(BIN)/cibuildwheel --platform linux --archs $$arch --print-build-identifiers; done

clean: ## remove everything built, .venv too
	@rm -rf build dist .venv .go-nsq .coverage htmlcov *.egg-info
	@find _ext -name '*.so' -delete -o -name '*.c' -delete -o -name '*.html' -delete
