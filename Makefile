# Every target sets up what it needs; stamp files in .venv make a second call instant.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# A virtual environment cannot be moved: where the folder was copied or renamed, it is made anew.
MOVED := $(shell [ "$$(cat $(STAMPS)/created 2>/dev/null)" = "$$(pwd -P)" ] || echo FORCE)

# uv does not read pip's configuration, so whatever pip was told (by file or environment) is handed on to it.
pip-says = $$($(BIN)/python -m pip config list | sed -n "s/^[^=]*[.]$(1)='\(.*\)'$$/\1/p" | tail -1)
UV = UV_PYTHON_DOWNLOADS=never \
	UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$(call pip-says,index-url)}" \
	UV_INDEX="$${UV_INDEX:-$(call pip-says,extra-index-url)}" \
	UV_FIND_LINKS="$${UV_FIND_LINKS:-$(call pip-says,find-links)}" \
	SSL_CERT_FILE="$${SSL_CERT_FILE:-$(call pip-says,cert)}" \
	$(BIN)/uv

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMPS)/jars ## Make .venv from requirements.lock and fetch the engine's jars
	@:

.PHONY: demo
demo: setup ## Land sample data and build every table; on your data: SOURCE=dir [FROM=day TO=day]
	@$(BIN)/lakehouse demo $(if $(SOURCE),--source "$(SOURCE)") $(if $(FROM),--from "$(FROM)") $(if $(TO),--to "$(TO)")

.PHONY: demo-stream
demo-stream: setup kafka ## Start a Kafka broker, stream events into gold, kill the stream and go on
	@$(BIN)/lakehouse demo-stream

.PHONY: demo-online
demo-online: setup redis ## Start Redis, load features of the lake, serve one user and certify; USER_ID=17841 SOURCE=dir FROM=day TO=day
	@$(BIN)/lakehouse demo-online $(if $(USER_ID),--user "$(USER_ID)") $(if $(SOURCE),--source "$(SOURCE)") \
		$(if $(FROM),--from "$(FROM)") $(if $(TO),--to "$(TO)")

.PHONY: dev
dev: setup $(STAMPS)/archive ## Run the web interface and its daemon on 127.0.0.1:3000
	@$(BIN)/lakehouse dev $(ARGS)

# Three processes take file after file; beside them goes the browser, which is shown at the end: four, for two cores, since a
# third of it waits (for what was killed, for idle times). They share one engine; what is killed, and the browser, have engines
# of their own: 10 GB together, and where less than 12 are free there are two. A browser on a busy machine gets a second try, on
# a new server, for what it failed. Where Python is told to keep no compiled files, each of the many processes would compile
# the whole package again.
PROCESSES ?= $(shell awk '/^MemAvailable/ { print ($$2 > 12000000) ? 3 : 2 }' /proc/meminfo 2>/dev/null || echo 2)
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
UI = $(PYTEST) -o cache_dir=.pytest_cache/ui -m ui lakehouse_tests/ui
# Nearly every test commits, and a commit waits for the disk: where there is room for files in memory, tests write there. What a
# run that failed has left is moved to LEFT; what one that was killed has left is removed by the next.
LEFT = .pytest_cache/files
IN_MEMORY = for old in /dev/shm/lakehouse-tests.*; do kill -0 "$${old\#\#*.}" 2>/dev/null || rm -rf "$$old" 2>/dev/null; done; \
	room=$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }'); memory=/dev/shm/lakehouse-tests.$$$$; \
	if [ "$${room:-0}" -gt 6000000 ] && ! grep -q "^[^ ]* /dev/shm .*noexec" /proc/mounts && mkdir -m 700 $$memory; \
	then export PYTEST_DEBUG_TEMPROOT=$$memory; else memory=; fi
OUT_OF_MEMORY = rm -rf $(LEFT); [ -z "$$memory" ] || { [ $$ended = 0 ] || mv $$memory $(LEFT); rm -rf $$memory; }
.PHONY: test
test: setup $(STAMPS)/archive browser database kafka redis ## Run all tests; some of them: ARGS="-k publish"
ifdef ARGS
	@$(PYTEST) $(ARGS)
else
	@trap 'kill 0' INT TERM; mkdir -p .pytest_cache; $(IN_MEMORY); \
	{ $(UI) || $(UI) --last-failed; } >.pytest_cache/ui.log 2>&1 & browser=$$!; \
	$(PYTEST) -m "not ui" --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder; ended=$$?; \
	wait $$browser || ended=$$?; cat .pytest_cache/ui.log; $(OUT_OF_MEMORY); exit $$ended
endif

.PHONY: quick
quick: setup ## Check style and types and run the tests that need no engine, browser or patience
	@trap 'kill 0' INT TERM; mkdir -p .pytest_cache; $(IN_MEMORY); \
	$(MAKE) --no-print-directory lint >.pytest_cache/lint.log 2>&1 & lint=$$!; \
	SPARK_HOME=/no/engine/here $(PYTEST) -q --few --numprocesses auto --dist loadfile \
		-m "not spark and not ui and not slow" $(ARGS); ended=$$?; \
	$(OUT_OF_MEMORY); wait $$lint || ended=$$?; cat .pytest_cache/lint.log; exit $$ended

.PHONY: screenshots
screenshots: setup $(STAMPS)/archive browser ## Make the pictures of the documentation anew, by the tests of the interface
	@LAKEHOUSE_PICTURES=docs/images $(UI)

.PHONY: crash
crash: setup $(STAMPS)/archive ## Kill, break and fuzz, and count what is lost; longer: ARGS="--cases 100"
	@$(PYTEST) -m crash $(ARGS)

.PHONY: lint
lint: $(STAMPS)/installed ## Check style, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

.PHONY: docs
docs: $(STAMPS)/installed ## Build the documentation into build/site; fails on a broken link
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "The site is in build/site: open build/site/index.html, or with its search:"
	@echo "$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000"

.PHONY: bench
bench: setup ## Measure; choose what with ARGS="--help"
	@$(BIN)/python -m lakehouse_tests.benchmarks $(ARGS)

.PHONY: browser
browser: $(STAMPS)/browser ## Find or install the Chromium that the tests of the web interface drive
	@:

.PHONY: database
database: $(STAMPS)/database ## Find or install the PostgreSQL server that the tests start
	@:

.PHONY: kafka
kafka: $(STAMPS)/kafka ## Fetch the Kafka broker that the tests and `lakehouse kafka start` run
	@:

.PHONY: redis
redis: $(STAMPS)/redis ## Find or install the Redis that the tests and `lakehouse redis start` run
	@:

.PHONY: archive
archive: setup ## Make the archive of the engine's classes anew, with which engines start sooner (half a minute, 230 MB)
	@rm -f $(STAMPS)/archive
	@$(MAKE) --no-print-directory $(STAMPS)/archive

.PHONY: lock
lock: $(STAMPS)/created ## Renew requirements.lock and jars.lock; newest versions: ARGS=--upgrade
	@$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra dev \
		--custom-compile-command "make lock" $(ARGS) pyproject.toml -o requirements.lock
	@$(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra kubernetes \
		--constraint requirements.lock --custom-compile-command "make lock" pyproject.toml -o docs/deploy/requirements.lock
	@$(MAKE) --no-print-directory $(STAMPS)/installed
	@$(BIN)/python -m lakehouse.spark.jars --relock
	@$(BIN)/python -m lakehouse.kafka.jars --relock

.PHONY: clean
clean: ## Remove .venv, builds and caches; tables and landed files stay
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find lakehouse lakehouse_tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: FORCE
FORCE:

# uv itself comes from the lock as well: pip installs just that entry, by its hashes.
$(STAMPS)/created: $(MOVED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Python 3.11 or newer is needed, but $(PYTHON) is: $$($(PYTHON) --version 2>&1)."; \
		echo "Install one and name it: make setup PYTHON=python3.11"; exit 1; } >&2
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments. Debian, Ubuntu: apt-get install python3-venv"; exit 1; } >&2
	@found=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\(1\.\)*\([0-9]*\).*/\2/p' | head -1); \
	[ "$${found:-0}" -ge 17 ] || { \
		echo "Java 17 or newer is needed to run Spark; found: $${found:-none}."; \
		echo "Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17"; \
		echo "Then put it on PATH or in JAVA_HOME."; exit 1; } >&2
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@mkdir -p $(STAMPS)
	@awk '/^uv==/ { on = 1 } on { print } on && !/\\$$/ { exit }' requirements.lock > $(VENV)/uv.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r $(VENV)/uv.txt
	@pwd -P > $@

$(STAMPS)/synced: requirements.lock $(STAMPS)/created
	@echo "Installing requirements.lock"
	@$(UV) pip sync -q --python $(BIN)/python --compile-bytecode --require-hashes --build-constraints requirements.lock \
		requirements.lock
	@touch $@

$(STAMPS)/installed: pyproject.toml setup.cfg $(STAMPS)/synced
	@$(BIN)/uv pip install -q --python $(BIN)/python --offline --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/jars: lakehouse/spark/jars.lock $(STAMPS)/installed
	@$(BIN)/python -m lakehouse.spark.jars
	@touch $@

$(STAMPS)/kafka: lakehouse/kafka/jars.lock $(STAMPS)/installed
	@$(BIN)/python -m lakehouse.kafka.jars
	@touch $@

$(STAMPS)/archive: $(STAMPS)/jars
	@echo "Making the archive of the engine's classes: half a minute, once"
	@$(BIN)/python -m lakehouse.spark.archive
	@touch $@

$(STAMPS)/browser: $(STAMPS)/created
	@found() { for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name && return; done; \
		for app in "Google Chrome" Chromium; do \
			[ -x "/Applications/$$app.app/Contents/MacOS/$$app" ] && echo "$$app.app" && return; done; return 1; }; \
	if ! found >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing Chromium"; export DEBIAN_FRONTEND=noninteractive; \
		apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null; fi; \
	if found; then touch $@; else \
		echo "No Chromium or Chrome: the tests of the web interface need one."; \
		echo "Debian, Ubuntu: apt-get install chromium; macOS: brew install --cask google-chrome"; \
		[ -z "$$CI" ]; fi

$(STAMPS)/database: $(STAMPS)/created
	@found() { command -v initdb || ls -d /usr/lib/postgresql/*/bin/initdb /opt/homebrew/opt/postgresql*/bin/initdb \
		/usr/local/opt/postgresql*/bin/initdb 2>/dev/null | grep .; }; \
	if ! found >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing PostgreSQL"; export DEBIAN_FRONTEND=noninteractive; \
		mkdir -p /etc/postgresql-common/createcluster.d; \
		echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.d/lakehouse.conf; \
		apt-get -qq update && apt-get -qq install -y --no-install-recommends postgresql >/dev/null; fi; \
	if found >/dev/null; then touch $@; else \
		echo "No PostgreSQL server: the tests of the incremental intake need one."; \
		echo "Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql"; \
		[ -z "$$CI" ]; fi

# Debian starts the server it installs; the lakehouse starts its own, on a port of its own, so that one is told not to.
$(STAMPS)/redis: $(STAMPS)/created
	@if ! command -v redis-server >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing Redis"; export DEBIAN_FRONTEND=noninteractive; \
		[ -e /etc/systemd/system/redis-server.service ] || { mkdir -p /etc/systemd/system; \
			ln -s /dev/null /etc/systemd/system/redis-server.service; }; \
		apt-get -qq update && apt-get -qq install -y --no-install-recommends redis-server >/dev/null; fi; \
	if command -v redis-server; then touch $@; else \
		echo "No Redis server: features online and their tests need one."; \
		echo "Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis"; \
		[ -z "$$CI" ]; fi
