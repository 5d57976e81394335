# A thin front for CMake: which builds there are, and what is run in them.
# On a bare machine use ./run TARGET, which installs what is missing first.
JOBS          ?= $(shell nproc 2>/dev/null || echo 1)
PREFIX        ?= /usr/local
FUZZ_SECONDS  ?= 60
SOAK_STEPS    ?= 1000000
PICTURES      ?= report demo
# Extra options for every configure, such as CMAKE_OPTIONS=-DCMAKE_C_COMPILER=clang.
CMAKE_OPTIONS ?=

QUIET = --log-level=WARNING -DCMAKE_RULE_MESSAGES=ON -DCMAKE_TARGET_MESSAGES=OFF
C_DIRS = $(wildcard include src cli tests examples)
C_FILES = $(shell find $(C_DIRS) -name '*.[ch]' -o -name '*.cuh' -o -name '*.cu' -o -name '*.cc')

# Sanitizers of this age lose their way when addresses are too random; setarch -R stops that.
FIXED = $(shell setarch -R true 2>/dev/null && echo setarch -R)

# $(call build,FOLDER,OPTIONS,TARGET): configures (cheap when nothing changed) and compiles. No
# target: everything, tests too.
define build
	@cmake -S . -B $(1) $(QUIET) $(2) $(CMAKE_OPTIONS) >/dev/null
	@MAKEFLAGS= scripts/progress.sh $(1) \
	    cmake --build $(1) -j $(JOBS) $(if $(3),--target $(3)) -- --no-print-directory
endef

.NOTPARALLEL:
.PHONY: help deps all demo corpus python wheel dist test-python cuda test test-full test-cuda \
        check format bench parity conformance fuzz soak install clean pictures mpi test-bare \
        test-serve serve-campaign serve-table build-float build-double build-asan build-tsan \
        check-format check-cppcheck \
        check-layers check-patterns check-headers check-tested check-abi check-warnings

help:
	@echo "usage: make TARGET      (./run TARGET installs what is missing first)"
	@echo
	@echo "  deps       install the Debian packages all targets need"
	@echo "  all        library, command line and examples, in build/"
	@echo "  demo       train two small models on made-up stories, compare their memories"
	@echo "  corpus     fetch the texts of studies into build/corpus (CORPUS=enwik8: one of them)"
	@echo "  test       float, double and address+undefined sanitizer builds, all tests"
	@echo "  test-full  the same with the slow cases, the thread sanitizer, and each level alone"
	@echo "  python     the Python package, in build/python"
	@echo "  wheel      a wheel with the library and the command, in build/wheel/dist (network)"
	@echo "  dist       the files of a release: source, wheel, Debian package, sums (network)"
	@echo "  test-python  the wheel in an environment of its own, with torch (network)"
	@echo "  test-bare  the commands demo and test in a bare Debian 12 (debootstrap, root)"
	@echo "  cuda       the plugin for NVIDIA GPUs, beside libdra in build/ (needs nvcc)"
	@echo "  mpi        the plugin for ranks by MPI, beside libdra in build/ (docs/ranks.md)"
	@echo "  test-cuda  the tests of everything that computes, on a GPU"
	@echo "  check      formatting, static analysis, layers, banned patterns, headers, ABI, warnings"
	@echo "  format     rewrite all C files in the project's format"
	@echo "  bench      kernels and whole steps against the limits of the machine"
	@echo "  parity     compare with other implementations"
	@echo "  conformance  ways to read a text, families by engines, FAMILIES=\"lfm2 mamba2\""
	@echo "  test-serve clients and the page against dra serve, PYTHON=... with openai, lm-eval"
	@echo "  serve-campaign  SERVE_REQUESTS (100000) mixed requests by SERVE_CLIENTS (16)"
	@echo "  serve-table  tokens per second by the number of clients, of SERVE_MODEL"
	@echo "  fuzz       run each fuzzer for FUZZ_SECONDS (60)"
	@echo "  soak       run the endurance tests, SOAK_STEPS (1000000) tokens each"
	@echo "  pictures   render the pictures of docs/ in Chromium, PICTURES=\"report demo\""
	@echo "  install    install under PREFIX (/usr/local)"
	@echo "  clean      remove build/"

deps:
	@./run deps

all:
	$(call build,build,,programs)

# With the tests, as all that follow.
build-float:
	$(call build,build)

build-double:
	$(call build,build/double,-DDRA_DOUBLE=ON)

build-asan:
	$(call build,build/asan,-DDRA_SANITIZE=address)

build-tsan:
	$(call build,build/tsan,-DDRA_SANITIZE=thread)

# The plugin of GPUs, see docs/cuda.md. CUDA_ARCH=90-real picks what it has code for.
NVCC ?= $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
cuda:
	@[ -n "$(NVCC)" ] || { echo "cuda   no nvcc: install the CUDA toolkit (12.4 or newer), or \
say where it is by NVCC=PATH" >&2; exit 1; }
	$(call build,build,-DDRA_CUDA=ON -DCMAKE_CUDA_COMPILER=$(NVCC) \
	    $(if $(CUDA_ARCH),-DDRA_CUDA_ARCHITECTURES="$(CUDA_ARCH)"),dra_cuda)

# The plugin of ranks, see docs/ranks.md; where there is an MPI every build makes it.
mpi:
	@command -v mpicc >/dev/null || { echo "mpi    no mpicc: install Open MPI (Debian: \
libopenmpi-dev, openmpi-bin)" >&2; exit 1; }
	$(call build,build,-DDRA_MPI=ON,dra_mpi)
	$(call build,build,,dra_cli)
	@build/dra devices | grep '^ranks'

# A GPU takes turns between processes: more than a few at a time are slower.
test-cuda: build-float cuda
	@DRA_TEST_JOBS=$${DRA_TEST_JOBS:-4} tests/run.sh cuda=build+cuda

# PYTHONPATH=build/python; the package needs NumPy.
python:
	@command -v python3 >/dev/null || { echo "python  no python3" >&2; exit 1; }
	$(call build,build,,dra_python)

# pip fetches the build's own tools into build/wheel.
wheel:
	@scripts/wheel.sh build/wheel

# The wheel is made first; CUDA_PLUGIN=build/libdra-cuda.so adds the one of the plugin.
dist: wheel
	$(call build,build/deb,-DDRA_TESTS=OFF -DDRA_MPI=OFF -DCMAKE_INSTALL_PREFIX=/usr,programs)
	@scripts/dist.sh build $(CUDA_PLUGIN)

test-python: python wheel
	@tests/python/full.sh build

corpus:
	@scripts/corpus.sh $(CORPUS)

demo:
	$(call build,build,,dra_cli)
	@build/dra demo --out build/demo

test: build-float build-double build-asan
	@$(FIXED) tests/run.sh float=build double=build/double asan=build/asan apart=build+apart \
	    gpu=build+host

# ./run demo and ./run test in a minimal Debian, as root: docs/testing.md.
test-bare:
	@scripts/test_bare.sh

test-full: build-float build-double build-asan build-tsan
	@DRA_TEST_FULL=1 $(FIXED) tests/run.sh \
	    float=build double=build/double asan=build/asan tsan=build/tsan \
	    avx2=build@avx2 ref=build@ref apart=build+apart

# `make -k check` continues after a finding.
check: check-format check-cppcheck check-layers check-patterns check-headers check-tested \
       check-abi check-warnings
	@echo "check  clean"

check-format:
	@echo "check  format"
	@clang-format --dry-run -Werror $(C_FILES)

# Suppressed: log() of sums that start at 0 but never stay there; compound literals in a
# conditional, which this version of cppcheck cannot parse.
check-cppcheck:
	@echo "check  cppcheck"
	@cppcheck --quiet --std=c11 --language=c --enable=warning,performance,portability \
	    --suppress=invalidFunctionArg --suppress=internalAstError \
	    --inline-suppr --error-exitcode=1 -j $(JOBS) \
	    -I include -I src -I cli -I tests $(C_DIRS)

check-layers:
	$(call build,build,,dra_static)
	@echo "check  layers"
	@scripts/check_layers.sh build

check-patterns:
	@echo "check  patterns"
	@scripts/check_patterns.sh
	@scripts/short_names.sh

check-headers:
	@echo "check  headers"
	@scripts/check_headers.sh

check-tested:
	@echo "check  ops without a test"
	@scripts/ops_without_test.sh

# ABI_BASE=COMMIT compares with that commit instead of the release.
check-abi:
	@JOBS=$(JOBS) scripts/check_abi.sh build $(ABI_BASE)

check-warnings:
	$(call build,build/werror,-DDRA_WERROR=ON)

format:
	@clang-format -i $(C_FILES)

# BENCH=... picks cases and options, such as BENCH="products --repeats 21"; without --threads among
# them, one thread and two.
bench: all
ifneq (,$(findstring --threads,$(BENCH)))
	@build/dra bench $(BENCH)
else
	@build/dra bench --threads 1 $(BENCH)
	@echo
	@build/dra bench --threads 2 $(BENCH)
endif

parity: build-float
	@tests/parity/run.sh

conformance: build-float
	@tests/parity/conformance.sh $(FAMILIES)

# By coverage where clang brings libFuzzer, else by mutation under gcc's sanitizers; FUZZ="pth zip"
# picks some.
LIBFUZZER = $(shell echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | \
    clang -x c -fsanitize=fuzzer,address -o /dev/null - 2>/dev/null && echo yes)
fuzz:
	$(if $(LIBFUZZER),$(call build,build/fuzz,-DDRA_SANITIZE=fuzzer \
	    -DCMAKE_C_COMPILER=clang,fuzzers),$(call build,build/asan,-DDRA_SANITIZE=address,fuzzers))
	@scripts/fuzz.sh $(if $(LIBFUZZER),build/fuzz,build/asan) $(FUZZ_SECONDS) $(FUZZ)

# Mixers say one line each, so they are run by themselves.
soak: build-float
	@CMOCKA_MESSAGE_OUTPUT=TAP DRA_SOAK=$(SOAK_STEPS) build/tests/memory/test_soak
	@DRA_TEST_SOAK=1 DRA_TEST_ONLY=graph/test_soak tests/run.sh float=build

# Clients that people use, and the page in Chromium; PYTHON has openai, lm-eval[api] and
# websocket-client. What is missing is skipped.
PYTHON = python3
test-serve:
	$(call build,build,,dra_cli)
	@tests/serve/run.sh build/dra $(PYTHON)

# Minutes: mixed requests, each answer compared with that of a lonely run; memory by tenths.
SERVE_REQUESTS = 100000
SERVE_CLIENTS = 16
serve-campaign:
	$(call build,build,,serve_campaign)
	@build/tests/serve/campaign $(SERVE_REQUESTS) $(SERVE_CLIENTS)

# A minute: 1 to 32 clients, and dra generate as the peer. Without SERVE_MODEL a model is drawn.
SERVE_MODEL = build/serve-table/model
serve-table:
	$(call build,build,,dra_cli serve_concurrency)
	@mkdir -p $(dir $(SERVE_MODEL))
	@[ -e $(SERVE_MODEL) ] || build/dra init --preset rwkv4 --set dim=768 --set depth=8 \
	    --set vocab=256 --out $(SERVE_MODEL) >/dev/null
	@build/tests/serve/concurrency $(SERVE_MODEL) build/dra

# Minutes: the demo and three small runs are trained first.
pictures:
	$(call build,build,,dra_cli)
	@scripts/pictures.sh build/dra build/pictures $(PICTURES)

install: all
	@cmake --install build --prefix $(PREFIX)

clean:
	@rm -rf build
