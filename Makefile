PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 2

.PHONY: demo test fuzz kill mutate lint types format build docs docs-version clean

demo: $(STAMP)  ## the main job end to end on CPU, with data it makes itself
	$(BIN)/romae demo --out demo

# Many tests start Python anew, which takes far longer where it may not keep what it has compiled.
test: $(STAMP)  ## the whole suite, two processes of one thread each
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

mutate: $(STAMP)  ## 300 small changes to the core, each of which a test must notice; minutes on 16 cores, an hour on 2
	$(BIN)/python tests/reliability/mutate.py --keep

lint: $(STAMP)  ## format, lint and type checks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

build: $(STAMP)  ## a wheel in dist/
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

docs: $(STAMP) ## the documentation as a site in site/; a link that leads nowhere is an error
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-version: docs ## the site of this version beside those of others, on the branch gh-pages; serve it with mike serve
	PATH=$(BIN):$$PATH $(BIN)/mike deploy --update-aliases $$($(BIN)/python -c "import romae; print(romae.__version__)") latest

fuzz: $(STAMP)  ## ten thousand hostile inputs, each refused or answered rightly; minutes on 16 cores, half an hour on 2
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/fuzz_run.py --inputs 10000 --seed 0

kill: $(STAMP)  ## a thousand training runs killed and resumed, compared byte for byte; minutes on 16 cores
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/kill.py --kills 1000 --seed 0

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist demo site .pytest_cache .mypy_cache .ruff_cache
