# `make` lists the targets. Each one sets up what it needs in .venv and is quick the second time.

VENV := .venv
BIN := $(VENV)/bin
RUNTIME_SOURCES := $(shell find runtime -type f -not -path '*/build*' 2>/dev/null)
OTHER_C := $(shell git ls-files '*.c' '*.cc' '*.h' 2>/dev/null | grep -v -e ^runtime/ -e /golden/)
KERNELS := codegen_cc/_runtime/.installed
AARCH64 := build/aarch64-libraries
CROSS := aarch64-linux-gnu-
# Where the tests keep the objects of its kernels (codegen_cc/link/foreign_kernels.py).
CROSS_BUILD := $(CURDIR)/build/kernels-$(CROSS:-=)
CROSS_KERNELS = $(MAKE) -s -C runtime -j$(JOBS) CC=$(CROSS)gcc AR=$(CROSS)ar BUILD=$(CROSS_BUILD)
JOBS := $(shell nproc 2>/dev/null || echo 2)
# Installed without dependencies: of rapidocr only the models inside it are used, of pnnx only the
# program that converts models for ncnn; its Python part would bring PyTorch.
RAPIDOCR := rapidocr==3.10.0
EXTRAS_demo := $(RAPIDOCR)
EXTRAS_test := $(RAPIDOCR)
EXTRAS_bench := $(RAPIDOCR) pnnx==20261020
# Packages of networks of PyTorch, and what these need but for PyTorch.
ZOO := timm==1.0.31 torchvision==0.28.0 transformers==5.23.0 onnxscript==0.7.2 onnx-ir==1.1.0
ZOO_NEEDS := huggingface-hub==2.4.0 regex requests safetensors tokenizers pyyaml tqdm
# Engines of `byoc bench --generate` that are made for decoders: what else they need is in .venv.
GENAI := onnxruntime-genai==0.18.0 openvino-genai==2026.4.1.0 openvino-tokenizers==2026.4.1.0
# PyTorch for the tests, in a folder of its own: beside TVM it would be imported with TVM, in seconds,
# by every process. What else it needs is there already.
TORCH := torch==2.13.0 filelock fsspec networkx
# The engines of the extras ray and serve, with all that they need, in a folder of their own as well:
# they ask for an older protobuf than ONNX has. Beside them what the tests ask servers with.
CLIENTS := tritonclient[http,grpc]==2.73.0 pillow
LIST_ENGINES := import sys; \
  toml = __import__("tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli", fromlist=["loads"]); \
  extras = toml.loads(open("pyproject.toml").read())["project"]["optional-dependencies"]; \
  print(*extras["ray"], *extras["serve"], sep="\n")

# The first interpreter that is new enough; PYTHON=... overrides.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.10; do \
  $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && \
  echo $$python && break; done)

# Tests start Python some hundred times: without bytecode each start that imports the product takes a
# second more. Python writes that of what it imports; pip, with this, none of the 16,000 files that
# nobody does.
unexport PYTHONDONTWRITEBYTECODE
INSTALL = $(BIN)/python -m pip install --quiet --no-compile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-all bench bench-kernels conformance corpus pytorch-zoo tvm-tests fuzz hostile \
  sanitize docs lint release test-needs \
  format clean check-tools kernels aarch64-kernels aarch64-libraries

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(BIN)/.demo kernels ## Read a picture of text with a compiled network; time ResNet-50
	$(BIN)/python -m models.demo

# Files in the order of their folders: by their number of tests the slowest would come last.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations 30

test: test-needs ## Run the tests that take a second or two at most: nine of ten
	$(PYTEST) -m "not slow"

test-all: test-needs $(VENV)/serving/.installed ## Run all tests
	$(PYTEST)

bench: ARGS := --suite zoo
bench: $(BIN)/.bench kernels ## Time the zoo's networks beside other engines (ARGS="resnet50 --threads 1")
	$(BIN)/byoc bench $(ARGS)

bench-kernels: $(BIN)/.bench kernels ## Time single kernels beside the core's peak
	$(BIN)/python -m benchmarks.kernels $(ARGS)

conformance: $(BIN)/.test kernels ## Run ONNX's backend tests; write docs/conformance.md (15 minutes)
	$(BIN)/python -W ignore -m tests.conformance.run --write --jobs $(JOBS)

corpus: $(BIN)/.test kernels ## Compile, compare and time trained networks of public packages (ARGS=--write; 10 minutes or more)
	$(BIN)/python -m benchmarks.corpus $(ARGS)

pytorch-zoo: $(VENV)/pytorch-zoo/.installed kernels ## Compile 40 networks of timm and transformers, compare with PyTorch and ONNX (6 minutes or more)
	PYTHONPATH=$(VENV)/torch:$(VENV)/pytorch-zoo $(BIN)/python -W ignore -m tests.torch.zoo $(ARGS)

tvm-tests: $(BIN)/.test kernels ## Compare modules of TVM's own tests with plain TVM (TVM=checkout; 1 hour)
	@test -d "$(TVM)/tests/python/relax" || { echo "error: TVM=$(TVM) has no tests/python/relax;" \
	  "give a checkout of TVM: make tvm-tests TVM=../tvm" >&2; exit 2; }
	nice $(BIN)/python -W ignore -m tests.tvm_modules.run "$(TVM)" --jobs $(JOBS) $(ARGS)

fuzz: ARGS := --graphs 2000
fuzz: $(BIN)/.test $(BIN)/.fuzz kernels ## Compile and run random graphs, and compare (ARGS="--graphs 200 --seed 5000")
	$(BIN)/python -W ignore -m tests.fuzz.run --jobs $(JOBS) $(ARGS)

hostile: $(BIN)/.test kernels ## Try 2,200 damaged libraries, 1,000 databases, 1,000 models (4 minutes)
	$(BIN)/python -W ignore -m tests.hostile.run

sanitize: $(BIN)/.test ## Run kernels, generated C and thread pools under ASan, UBSan and TSan (ARGS=--quick)
	$(BIN)/python -m tests.sanitizers --jobs $(JOBS) $(ARGS)

release: $(BIN)/.release ## Build, check and try sdist and wheels, into dist/ (docs/releasing.md)
	$(BIN)/python -m release.wheels --jobs $(JOBS)

docs: $(BIN)/.test kernels ## Write docs/libraries.md and the notebooks; build the site into build/site
	$(BIN)/byoc libraries --markdown > docs/.libraries.md
	mv docs/.libraries.md docs/libraries.md
	$(BIN)/python -m tests.site.notebooks
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

lint: $(BIN)/.dev ## Check the style of Python and C; refuse warnings of the kernels' compilers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(filter %.c %.h,$(RUNTIME_SOURCES)) $(OTHER_C)
	$(MAKE) -s -C runtime -j$(JOBS) warnings
	+! command -v $(CROSS)gcc >/dev/null || $(CROSS_KERNELS) warnings

format: $(BIN)/.dev ## Format Python and C
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter %.c %.h,$(RUNTIME_SOURCES)) $(OTHER_C)

clean: ## Remove builds, caches and the environment
	rm -rf $(VENV) build dist *.egg-info codegen_cc/_runtime .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	-$(MAKE) -C runtime clean

# Side by side with -j: compiling, and downloads.
test-needs: $(BIN)/.test $(VENV)/torch/.installed kernels aarch64-kernels aarch64-libraries

venv: $(BIN)/.test ## Create .venv with everything that the tests need

# ---------------------------------------------------------------- set-up, each step once

check-tools:
	@test -n "$(PYTHON)" || { echo "error: no Python >= 3.10 found; install python3" \
	  "(Debian, Ubuntu: apt install python3 python3-venv) or give PYTHON=..." >&2; exit 2; }
	@command -v "$${CC:-gcc}" >/dev/null || command -v cc >/dev/null || { \
	  echo "error: no C compiler found; install gcc (Debian, Ubuntu: apt install gcc)" >&2; exit 2; }

$(BIN)/.venv: | check-tools
	@echo "== creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) cannot create environments; install" \
	  "python3-venv (Debian, Ubuntu: apt install python3-venv)" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/torch/.installed: Makefile | $(BIN)/.venv
	@echo "== installing PyTorch for the tests (a CPU build is 800 MB)"
	$(INSTALL) --upgrade --no-deps --target $(VENV)/torch $(TORCH)
	@touch $@

$(VENV)/serving/.installed: Makefile pyproject.toml | $(BIN)/.venv
	@echo "== installing Ray and MLServer for the tests (750 MB)"
	$(BIN)/python -c '$(LIST_ENGINES)' > $(VENV)/engines.txt
	$(INSTALL) --upgrade --target $(VENV)/serving $(CLIENTS) -r $(VENV)/engines.txt
	@touch $@

$(VENV)/genai/.installed: Makefile | $(BIN)/.bench
	$(INSTALL) --upgrade --no-deps --target $(VENV)/genai $(GENAI)
	@touch $@

$(VENV)/pytorch-zoo/.installed: Makefile | $(VENV)/torch/.installed
	$(INSTALL) --upgrade --target $(VENV)/pytorch-zoo $(ZOO_NEEDS)
	$(INSTALL) --upgrade --no-deps --target $(VENV)/pytorch-zoo $(ZOO)
	@touch $@

# The package itself, editable, with the extra of the target's name.  Its kernels are built before,
# as two builds at once would write the same files.
$(BIN)/.%: pyproject.toml setup.py | $(BIN)/.venv $(KERNELS)
	@echo "== installing the project and what '$*' needs (TVM is about 90 MB)"
	@# Quiet about editable installs, which setuptools advises against in general.
	PYTHONWARNINGS=ignore $(INSTALL) --editable '.[$*]'
	@if [ -n "$(EXTRAS_$*)" ]; then set -x; $(INSTALL) --no-deps $(EXTRAS_$*); fi
	@touch $@

kernels: $(KERNELS)

$(KERNELS): $(RUNTIME_SOURCES)
	@echo "== building the kernels"
	$(MAKE) -C runtime -j$(JOBS) install DEST=$(CURDIR)/codegen_cc/_runtime
	@touch $@

# For 64-bit ARM, so that no test waits for them: behind those of this machine, beside downloads.
aarch64-kernels: $(KERNELS)
	+@! command -v $(CROSS)gcc >/dev/null || $(CROSS_KERNELS) all

# TVM's runtime for 64-bit ARM, for the tests that run compiled networks under QEMU.
aarch64-libraries: $(BIN)/.test
	@! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-g++ >/dev/null || \
	  $(BIN)/python examples/deploy_cpp/runtime_libraries.py aarch64 $(AARCH64) || \
	  echo "no TVM runtime for aarch64: tests that run networks under QEMU will be skipped" >&2
