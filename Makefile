# make table: everything from nothing to the table, on any machine with Python 3.11 and a network to PyPI
# make test:  the same set-up, then the tests
# make gpu:   one JSON of what training does on a GPU
# make docs:  the documentation as a site, in build/docs
# make release: the wheel, requirements locked with hashes, and a software bill of materials, in dist
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# every process of Ray imports the package: compiled once, if the environment forbids it, too
unexport PYTHONDONTWRITEBYTECODE

.PHONY: table test lint gpu docs release clean

table: $(VENV)/ready
	$(BIN)/python experiments/main_table.py

# Two files of tests side by side, each process with a Ray of its own, `make lint` beside: 1,039 s on two cores with AVX2
# alone, 439 s on two with AVX-512.
# Three processes took 1,472 s where two took 1,259 s, because a start of Ray then takes up to two minutes.
test: $(VENV)/ready
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# is training right and fast on a GPU: with torch, transformers, pyarrow and numpy of any Python, or those of the set-up
gpu:
	PYTHONPATH=. $(if $(wildcard $(VENV)/ready),$(BIN)/python,$(PYTHON)) benchmarks/gpu.py

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	nice $(BIN)/mypy

# the variable leaves out a notice that the theme, Material, is maintained until May 2027; search needs a server:
# python -m http.server --directory build/docs
docs: $(VENV)/ready
	$(BIN)/pip install -qq --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# the bill of materials is of the wheel installed alone, without the tools that test or release it
release: $(VENV)/ready
	rm -rf dist build/lib build/bdist.* build/release
	$(BIN)/pip install -qq --constraint constraints.txt --editable '.[release]'
	$(BIN)/python -m build --wheel --outdir dist
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --constraint constraints.txt \
		--output-file dist/requirements.txt pyproject.toml
	$(PYTHON) -m venv --without-pip build/release
	$(BIN)/pip --python build/release install -qq --constraint constraints.txt torch==2.13.0
	$(BIN)/pip --python build/release install -qq --constraint constraints.txt dist/*.whl
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
		--output-file dist/tlm_ray.cdx.json build/release

# torch first and alone: where pip finds a CPU build of this version, the rest is content with it.
# A new pip resolves the rest in 59 s of one core instead of 146; what is imported is compiled then, instead of all 28,640
# files at once (158 s of one core).
$(VENV)/ready: pyproject.toml constraints.txt
	@echo "installing into $(VENV): one to three minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -qq --constraint constraints.txt --upgrade pip
	$(BIN)/pip install -qq --no-compile --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install -qq --no-compile --constraint constraints.txt --editable '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) .tlm results build dist
