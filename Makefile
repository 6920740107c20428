# SPDX-License-Identifier: Apache-2.0
# The commands of this project; `make help` lists them. All output is in build/.

export PATH := $(PATH):$(HOME)/.cargo/bin
export CARGO_TARGET_DIR := $(CURDIR)/build/cargo
# The NIXL that tests, demo and benchmarks load. `make setup` writes the file, so it is expanded only in recipes.
NIXL_LIBRARY = $$(cat build/nixl-library)
WITH_NIXL = KVMEM_NIXL_LIBRARY="$(NIXL_LIBRARY)"

TREE := build/cmake
SANITIZED := build/sanitized
STARTED := $(shell date +%s)

.DEFAULT_GOAL := all
# Targets run in order, each with all cores. The tools must not use the job server of this make.
.NOTPARALLEL:
unexport MAKEFLAGS
.PHONY: all help setup configure llama library build check test lint rust-test c-test checked-test engines-test commands-test sanitized-test race-test models miri arm-test load-test fuzz-calls fuzz-inputs faults-test hardening demo \
    demo-llama demo-vllm demo-lmcache adapters-test llama-package bench bench-llama bench-store \
    gpu-bundle engine-bundle wheel python-versions new-user docs docs-look soak soak-faults header kernels clean

all: build

help:
	@echo "make          build the library, the C tests, the benchmarks and the examples, as far as the machine has the tools;"
	@echo "              prints what is missing"
	@echo "make setup    install what is missing: tools, crates, the wheels of NIXL and NVRTC"
	@echo "make check    before a commit: lint, the Rust tests, the C tests of labels unit, contract and nixl; a few minutes"
	@echo "make test     set up, build, then every check and every test"
	@echo "              (SKIPS=allowed: also if this machine skips more than .ci/expected-skips lists)"
	@echo "make demo     set up what it needs, install the package, build the prefill/decode program against it, run it"
	@echo "              (DEMO_ARGS='--blocks 512' passes options to the program; DEMO_ARGS=--reshard: prefill with"
	@echo "              tensor parallelism 2 hands over to decode without, in another order and block size)"
	@echo "make demo-llama"
	@echo "              the same with llama.cpp, which it builds first: a model continues in another process"
	@echo "              (DEMO_ARGS='--tokens=2048 --model=gqa' passes options to the program)"
	@echo "make demo-vllm"
	@echo "              an unmodified vLLM for the CPU keeps blocks by kvmem, also after a restart, and hands requests over to"
	@echo "              another one; installs it once, 2.2 GiB"
	@echo "              (DEMO_ARGS=--small: fewer cases; make test runs them if vLLM is already installed)"
	@echo "make engines-test"
	@echo "              the program of demo-llama as tests of label engines: seven models, small; make test runs them too if"
	@echo "              llama.cpp is already built"
	@echo "make bench-llama"
	@echo "              measure handover, offload and restore beside llama.cpp's own state functions (row 20)"
	@echo "make demo-lmcache"
	@echo "              an unmodified vLLM with an unmodified LMCache server, which keeps objects by kvmem; installs LMCache"
	@echo "              beside the vLLM of demo-vllm once, 0.4 GiB"
	@echo "make adapters-test"
	@echo "              the adapters of LMCache and SGLang under the classes of the releases that docs/lmcache.md and"
	@echo "              docs/sglang.md name, without a GPU; installs both beside the vLLM of demo-vllm once, 1.7 GiB"
	@echo "make bench-store"
	@echo "              measure the store beside foyer, LMCache's raw_block and vLLM's file tier (row 22); installs them once, 3 GB"
	@echo "make bench    measure kvmem and the references; rows and plots under build/bench"
	@echo "              (BENCH_ARGS=--quick only checks that they work; bench/run --help lists the options)"
	@echo "make sanitized-test"
	@echo "              only the C tests, under the address and undefined behaviour sanitizers"
	@echo "make race-test"
	@echo "              the C tests under ThreadSanitizer; slow, and not a part of make test"
	@echo "              (RACE_TESTS=^unit: only these; a regular expression for CTest)"
	@echo "make models   threads of the library in every order, by loom; not a part of make test"
	@echo "make miri     Rust tests of plans, wire forms and the C interface in Miri, which finds undefined behaviour; not a part of make test"
	@echo "make arm-test the Rust tests compiled for 64-bit Arm, under qemu; not a part of make test"
	@echo "              (ARM_TESTS=copy::: only these; words of names of tests)"
	@echo "make package  a tarball and Debian packages of the library, under build/packages"
	@echo "make fuzz-calls"
	@echo "              random sequences of calls for FUZZ_SECONDS=600; see fuzz/README.md"
	@echo "make fuzz-inputs"
	@echo "              data from other processes by libFuzzer, guided by coverage, for FUZZ_SECONDS=600"
	@echo "make faults-test"
	@echo "              each system call of each operation fails, in every way; some minutes"
	@echo "make hardening"
	@echo "              what searches for faults and takes long: faults-test, fuzz-calls, fuzz-inputs, load-test, hostile-test,"
	@echo "              soak-faults, soak, race-test, models, miri, docs-look, the crates by cargo-deny, and two builds with equal bytes"
	@echo "              (ADVISORIES=FOLDER: a checkout of RustSec's advisory-db, for a machine without a network)"
	@echo "make load-test"
	@echo "              agents under load, and peers that are killed and stopped; LOAD_SECONDS=30 per load"
	@echo "make hostile-test"
	@echo "              each behaviour of a peer that speaks a wire form correctly and behaves badly; LOAD_SECONDS=30 per behaviour"
	@echo "make soak     processes that use all of kvmem, and are killed, stopped and restarted meanwhile; MINUTES=10, SEED=n"
	@echo "make soak-faults"
	@echo "              each fault that is seeded into the soak is found"
	@echo "make wheel    make the Python wheel in build/wheels"
	@echo "make python-versions"
	@echo "              run the tests of the wheel in each Python that it supports, fetched once; writes c_tests/bindings/python/versions.txt"
	@echo "make new-user"
	@echo "              install the wheel with pip in a root that has glibc and Python only, then vLLM beside it, and follow docs/vllm.md there"
	@echo "              to equal tokens: 6 GiB, ten minutes; writes c_tests/bindings/python/new-user.txt"
	@echo "make docs     the documentation as a site in build/docs/html, with the references of all languages; installs Doxygen and Sphinx"
	@echo "make docs-look"
	@echo "              load each page of the site in Chromium, wide and narrow, light and dark; pictures are in build/docs-pictures"
	@echo "make gpu-bundle"
	@echo "              fill build/gpu-bundle, to test and measure on a GPU host without Rust or a network"
	@echo "              (GPU_BUNDLE_ARGS=--small: build/gpu-bundle-small, without Go and Zig, in a minute;"
	@echo "              its NIXL is that of this machine, so gpu_nixl_* need the same versions of CUDA and Python there)"
	@echo "make engine-bundle"
	@echo "              fill build/engine-bundle, to build llama.cpp on a GPU host and to move its sessions there"
	@echo "make lint     rustfmt, clippy, links and names in pages, import cycles, unsafe, words"
	@echo "make kernels  compile src/cuda/kernels/*.cu to the committed *.packed"
	@echo "make header   generate the headers in include/ from src/ffi; from the headers docs/reference.md and the constants"
	@echo "              of the bindings"
	@echo "make clean    remove build/"

setup:
	@scripts/setup.sh

# Installs nothing: what the machine lacks is left out, with a message.
configure:
	@scripts/configure.sh $(TREE) "$(CARGO_TARGET_DIR)"

# An engine for the tests of label engines; built once, in minutes.
llama: setup
	@scripts/llama-cpp.sh >/dev/null

library: configure
	@cmake --build $(TREE) --target kvmem

build: configure
	@cmake --build $(TREE)

lint: setup configure
	cargo fmt --check
	cd etcd && cargo fmt --check
	cd bench/reference/foyer && cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	@cmake --build $(TREE) --target kvmem_etcd_lint
	scripts/pages.py
	scripts/module_cycles.py
	scripts/unsafe_modules.py
	scripts/waits.py
	scripts/faults.py
	scripts/words.py
	scripts/bindings.py --check
	bench/figures.py --check

# The tests append each skip to a record, one per target. A skip that .ci/expected-skips does not list fails the target.
# SKIPS=allowed permits all skips, for machines that lack something that the CI machine has.
RECORD = $(CURDIR)/build/skips/$@
# Two tests more than there are processors: most tests wait most of the time. Those that compute have the property PROCESSORS,
# and count as two; those of label fuzz run one at a time.
AT_A_TIME = $$(($$(nproc) + 2))
NEW_RECORD = mkdir -p build/skips && : >$(RECORD)
CHECK_SKIPS = scripts/skips.py $(if $(filter allowed,$(SKIPS)),--allow) $(RECORD)

# $(call ANY_OF,LABELS): CTest's pattern for these labels.
empty :=
ANY_OF = '^($(subst $(empty) $(empty),|,$(strip $(1))))$$'

# Before a commit.
check: lint rust-test checked-test
	@echo "make check: all passed, in $$(($$(date +%s) - $(STARTED))) s"

# The C tests of some labels with the library of cargo's profile dev, which has debug assertions and checks for overflow; the Rust
# tests have compiled most of it. Without the client of etcd, which takes longer than all others.
CHECKED := build/checked
CHECK_LABELS ?= unit contract nixl
checked-test: setup
	@cmake -S . -B $(CHECKED) -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 -DKVMEM_CARGO_PROFILE=dev -DKVMEM_ETCD=OFF \
	    -DKVMEM_INSTALL=OFF -DKVMEM_BUILD_DOCTOR=OFF -DKVMEM_BUILD_BENCH=OFF -DKVMEM_BUILD_EXAMPLES=OFF \
	    -DKVMEM_CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)" -DKVMEM_TEST_NIXL_LIBRARY="$(NIXL_LIBRARY)" >/dev/null
	@cmake --build $(CHECKED) --target $(CHECK_LABELS:%=tests_%)
	@$(NEW_RECORD)
	KVMEM_TEST_SKIPS=$(RECORD) ctest --no-tests=error --test-dir $(CHECKED) --output-on-failure --parallel $(AT_A_TIME) \
	    --label-regex $(call ANY_OF,$(CHECK_LABELS))
	@$(CHECK_SKIPS)

rust-test: setup
	@$(NEW_RECORD)
	$(WITH_NIXL) KVMEM_TEST_SKIPS=$(RECORD) RUST_TEST_THREADS=$(AT_A_TIME) cargo test --locked
	@$(CHECK_SKIPS)

c-test: setup build
	@$(NEW_RECORD)
	KVMEM_TEST_SKIPS=$(RECORD) ctest --no-tests=error --test-dir $(TREE) --output-on-failure --parallel $(AT_A_TIME)
	@$(CHECK_SKIPS)

# The tests with a real engine alone.
engines-test: setup llama configure
	@cmake --build $(TREE) --target kvmem_package example_llama_cpp example_llama_cpp_tests
	@$(NEW_RECORD)
	KVMEM_TEST_SKIPS=$(RECORD) ctest --no-tests=error --test-dir $(TREE) --output-on-failure --label-regex '^engines$$'
	@! grep . $(RECORD)

# The C tests under the address and undefined behaviour sanitizers. The library is the same; the sanitizers detect callers
# that write outside its memory, and leaks of both. Excluded tests: those with NIXL, because UCX hooks malloc and NIXL
# never frees some memory; those that take longer than all others together; and those that measure the process's memory.
UNSANITIZED := gpu_sim\.((transfer_|staged_|peer_)?walk|registration|rates)|gpu\.(copy|cycles|paths)
UNSANITIZED := $(UNSANITIZED)|gpu_share\.damage
SANITIZED_LABELS := unit share handover cuda_sim gpu gpu_sim gpu_share fuzz
sanitized-test: setup library
	@cmake -S . -B $(SANITIZED) -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 -DKVMEM_ETCD=OFF -DKVMEM_INSTALL=OFF \
	    -DKVMEM_TEST_SANITIZE=ON -DKVMEM_BUILD_DOCTOR=OFF -DKVMEM_BUILD_BENCH=OFF -DKVMEM_BUILD_EXAMPLES=OFF \
	    -DKVMEM_CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)" -DKVMEM_TEST_NIXL_LIBRARY="$(NIXL_LIBRARY)" >/dev/null
	@cmake --build $(SANITIZED) --target $(SANITIZED_LABELS:%=tests_%)
	@$(NEW_RECORD)
	KVMEM_TEST_SKIPS=$(RECORD) LSAN_OPTIONS=suppressions="$(CURDIR)/c_tests/leaks.supp":print_suppressions=0 \
	    ctest --no-tests=error --test-dir $(SANITIZED) --output-on-failure --parallel $(AT_A_TIME) \
	    --label-regex $(call ANY_OF,$(SANITIZED_LABELS)) --label-exclude needs_nixl \
	    --exclude-regex '^($(UNSANITIZED))$$'
	@$(CHECK_SKIPS)

# The C tests under ThreadSanitizer. The library and std are compiled for it too, because ThreadSanitizer must see the locks and
# atomic numbers of std; that needs a nightly compiler with the component rust-src. This takes about half an hour on two cores, so it
# is not a part of `make test`. An explicit target keeps the flags away from build scripts, so that only the test programs link
# the sanitizer's runtime. C and Rust have frame pointers for the stacks of a report. A forked child of a process with threads may
# start threads: die_after_fork=0.
RACE := build/race
RACE_HOST = $$(rustc -vV | sed -n 's/^host: //p')
RACE_TESTS ?= .
RACE_FLAGS := -Zsanitizer=thread -Cforce-frame-pointers=yes
RACE_CARGO := RUSTUP_TOOLCHAIN=nightly CARGO_UNSTABLE_BUILD_STD=std,panic_unwind RUSTFLAGS="$(RACE_FLAGS)" CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
# Excluded tests: those that repeat an operation for each driver call, those that measure the process's memory or reserve
# terabytes of addresses, which ThreadSanitizer has for itself, those with NIXL, one whose transfers write to the same blocks at once, and
# one that copies many MiB, each byte of which is watched.
UNRACED := nixl_sim\.limits|unit\.dropped_owners|gpu_sim\.(([a-z]+_)?walk|registration|share_claims)|gpu\.(cycles|repeat)
RACE_OPTIONS = suppressions="$(CURDIR)/c_tests/races.supp" history_size=7 exitcode=66 die_after_fork=0
RACE_LABELS := unit share handover gpu gpu_sim gpu_share nixl_sim
race-test: setup
	@cmake -S . -B $(RACE) -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 -DKVMEM_TEST_RACE=ON -DKVMEM_ETCD=OFF \
	    -DKVMEM_RUST_TARGET=$(RACE_HOST) -DKVMEM_CARGO_TARGET_DIR="$(CURDIR)/$(RACE)/cargo" -DKVMEM_INSTALL=OFF \
	    -DKVMEM_BUILD_DOCTOR=OFF -DKVMEM_BUILD_BENCH=OFF -DKVMEM_BUILD_EXAMPLES=OFF -DKVMEM_TEST_NIXL_LIBRARY="$(NIXL_LIBRARY)" >/dev/null
	@$(RACE_CARGO) cmake --build $(RACE) --target $(RACE_LABELS:%=tests_%)
	@$(NEW_RECORD)
	KVMEM_TEST_SKIPS=$(RECORD) KVMEM_TEST_DEADLINE=1100 TSAN_OPTIONS='$(RACE_OPTIONS)' \
	    ctest --no-tests=error --test-dir $(RACE) --output-on-failure --parallel $(AT_A_TIME) --tests-regex '$(RACE_TESTS)' \
	    --label-regex $(call ANY_OF,$(RACE_LABELS)) --label-exclude needs_nixl \
	    --exclude-regex '^($(UNRACED))$$'
	@$(CHECK_SKIPS)

# Threads of the library in every order, by loom, and then with a fault in each model. The record is tests/records.md.
models:
	scripts/models.py

# Rust tests in Miri, which finds undefined behaviour. It needs a nightly compiler with the components miri and rust-src.
miri:
	scripts/miri.py

# The Rust unit tests for 64-bit Arm, under qemu. It needs neither a build of the library nor NIXL.
arm-test:
	scripts/arm-test.sh $(ARM_TESTS)

# The fuzzer of call sequences with new seeds, for a quarter of the time each: on one thread, on several, with
# failures of the driver and of opening files, and with NIXL. A run without findings adds its rows to fuzz/records.md.
FUZZ_SECONDS ?= 600
fuzz-calls: setup build
	scripts/fuzz-calls.sh $(TREE) "$(NIXL_LIBRARY)" $(FUZZ_SECONDS)

# libFuzzer with the targets of fuzz/, for the same part of the time each. It prints the rows of fuzz/records.md, and needs the nightly compiler
# of race-test.
fuzz-inputs:
	scripts/fuzz-inputs.sh $(FUZZ_SECONDS)

# Agents under load and peers that fail, for LOAD_SECONDS per load. A run without a failure adds its rows to
# c_tests/nixl/load-records.md.
LOAD_SECONDS ?= 30
export LOAD_PROGRAMS
load-test: setup build
	scripts/load-test.sh $(TREE) "$(NIXL_LIBRARY)" $(LOAD_SECONDS)

# A peer that behaves badly, beside healthy ones, for LOAD_SECONDS per behaviour, within the bounds of docs/reliability.md. Rows as those of
# make load-test.
HOSTILE_PROGRAMS = $(addprefix hostile/hostile_,served owner idle share broker epochs leases directory objects)
hostile-test: setup build
	LOAD_PROGRAMS="$${LOAD_PROGRAMS:-$(HOSTILE_PROGRAMS)}" KVMEM_RECORD="$${KVMEM_RECORD:-c_tests/hostile/records.md}" \
	    scripts/load-test.sh $(TREE) "$(NIXL_LIBRARY)" $(LOAD_SECONDS)

# Processes that use all of kvmem for MINUTES; c_tests/soak/README.md. A run that finds nothing adds a row to c_tests/soak/records.md.
MINUTES ?= 10
SOAK = $(call SITE_OF,build/python-tools/bin/python,soak) && cmake --build $(TREE) --target kvmem_cuda_sim && \
    scripts/soak-test.sh $(TREE) "$(NIXL_LIBRARY)" build/python-tools/bin/python build/soak/site
soak: wheel
	@$(SOAK) $(MINUTES) $(SEED)

export FAULTS
soak-faults: wheel
	@$(SOAK) faults $(SEED)

# Each system call of each operation fails. make test runs a part of the ways of each call.
faults-test: setup build
	scripts/faults-test.sh $(TREE)

# What searches for faults and takes long. ADVISORIES is a checkout of https://github.com/RustSec/advisory-db.
hardening: faults-test fuzz-calls fuzz-inputs load-test hostile-test soak-faults soak race-test models miri docs-look
	scripts/crates-test.sh $(ADVISORIES)
	scripts/reproduced.sh $(TREE)
	@echo "make hardening: all passed, in $$(($$(date +%s) - $(STARTED))) s"

# The commands that pages name, in a small form.
commands-test: setup build
	scripts/commands-test.sh

test: lint rust-test c-test sanitized-test commands-test
	@echo "make test: all passed, in $$(($$(date +%s) - $(STARTED))) s"

# A separate project that uses only the installed package. It needs no etcd, and set-up installs only what it needs.
DEMO := build/demo
demo:
	@scripts/setup.sh demo
	@cmake -S . -B $(DEMO)/kvmem -G Ninja -DCMAKE_BUILD_TYPE=Release -DKVMEM_CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)" -DKVMEM_ETCD=OFF \
	    -DKVMEM_BUILD_DOCTOR=OFF -DKVMEM_BUILD_TESTS=OFF -DKVMEM_BUILD_BENCH=OFF -DKVMEM_BUILD_EXAMPLES=OFF >/dev/null
	@cmake --build $(DEMO)/kvmem --target kvmem_package
	@cmake --install $(DEMO)/kvmem --prefix $(DEMO)/prefix >/dev/null
	@cmake -S examples/cpp/04_prefill_decode -B $(DEMO)/build -G Ninja -DCMAKE_BUILD_TYPE=Release \
	    -DCMAKE_PREFIX_PATH="$(CURDIR)/$(DEMO)/prefix" >/dev/null
	@cmake --build $(DEMO)/build
	@echo
	@$(WITH_NIXL) $(DEMO)/build/prefill_decode $(DEMO_ARGS)

# The same with a real engine. llama.cpp's libraries are found by their rpath in the program.
LLAMA_DEMO := build/demo-llama
BUILD_WITH_LLAMA = llama=$$(scripts/llama-cpp.sh) && cmake -S $(1) -B $(2) -G Ninja -DCMAKE_BUILD_TYPE=Release \
    "-DCMAKE_PREFIX_PATH=$(CURDIR)/$(LLAMA_DEMO)/prefix;$$llama" >/dev/null && cmake --build $(2)
llama-package: setup configure
	@cmake --build $(TREE) --target kvmem_package
	@cmake --install $(TREE) --prefix $(LLAMA_DEMO)/prefix >/dev/null

demo-llama: llama-package
	@$(call BUILD_WITH_LLAMA,examples/cpp/05_llama_cpp,$(LLAMA_DEMO)/build)
	@echo
	@$(WITH_NIXL) $(LLAMA_DEMO)/build/llama_handover $(DEMO_ARGS)

# vLLM with the wheel, as a user has it.
demo-vllm: wheel
	@python=$$(scripts/vllm-env.sh) && rm -rf build/vllm/site && \
	    "$$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target build/vllm/site build/wheels/kvmem-*.whl && \
	    $(WITH_NIXL) PYTHONPATH="$(CURDIR)/build/vllm/site" examples/python/vllm/demo.py "$$python" $(DEMO_ARGS)

# The adapters of LMCache and SGLang with the wheel, under the classes of the releases that call them.
SITE_OF = $(1) -m pip install --quiet --disable-pip-version-check --no-index --no-deps --upgrade --target build/$(2)/site build/wheels/kvmem-*.whl
adapters-test: wheel
	@set -e; for engine in lmcache sglang; do \
	    python=$$(scripts/engine-env.sh $$engine); $(call SITE_OF,"$$python",$$engine); \
	    PYTHONPATH="$(CURDIR)/build/$$engine/site" "$$python" -m pytest -q -p no:cacheprovider --rootdir c_tests/bindings/python \
	        c_tests/bindings/python/test_$$engine.py; \
	done

# vLLM with LMCache's server and the adapter.
demo-lmcache: wheel
	@python=$$(scripts/engine-env.sh lmcache) && $(call SITE_OF,"$$python",lmcache) && \
	    PYTHONPATH="$(CURDIR)/build/lmcache/site" examples/python/lmcache/demo.py "$$python"

# Row 20 of the benches.
bench-llama: llama-package
	@$(call BUILD_WITH_LLAMA,bench/engine,$(LLAMA_DEMO)/bench)
	@mkdir -p build/bench
	@$(WITH_NIXL) $(LLAMA_DEMO)/bench/20_engine --output=build/bench/20_engine.json $(BENCH_ARGS)

# Row 22, beside other stores.
bench-store: wheel
	@python=$$(scripts/store-peers.sh) && mkdir -p build/bench && \
	    "$$python" bench/22_store_peers.py --output build/bench/22_store_peers.json $(BENCH_ARGS)

bench: setup build
	@$(WITH_NIXL) bench/run $(BENCH_ARGS)

package: build
	cd $(TREE) && cpack -G "TGZ;DEB" -B "$(CURDIR)/build/packages"

# The Python wheel, with the libraries in it.
wheel: setup configure
	@cmake --build $(TREE) --target kvmem_package
	@cmake --install $(TREE) --prefix build/wheel-prefix >/dev/null
	@build/python-tools/bin/python scripts/wheel.py build/wheel-prefix build/wheels

# Its tests in each Python that the package supports. Two of them are alone in a root: it needs the network once, and root or user namespaces.
python-versions: wheel
	@build/python-tools/bin/python scripts/python_versions.py fetch build/pythons
	@build/python-tools/bin/python scripts/python_versions.py test build/pythons "$$(ls -t build/wheels/kvmem-*.whl | head -n 1)"

# What a new user does with the wheel and vLLM, in a root with glibc and Python only: it needs the network, 6 GiB, and root or user namespaces.
new-user: wheel
	@build/python-tools/bin/python scripts/new_user.py build/new-user "$$(ls -t build/wheels/kvmem-*.whl | head -n 1)"

# The documentation as a site, which works offline and from the file system. Python's reference is made from the wheel.
docs: wheel
	@scripts/setup.sh docs
	@rm -rf build/docs-python
	@build/docs-tools/bin/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile \
	    --target build/docs-python "$$(ls -t build/wheels/kvmem-*.whl | head -n 1)"
	@scripts/docs_site.py build/docs

# The pages of the site as a reader sees them, in Chromium, which this does not install. The record is tests/records.md.
docs-look: docs
	@scripts/docs_look.py build/docs/html build/docs-pictures

# Copy it to a GPU host; its `run` lists the commands.
gpu-bundle: setup build
	@scripts/gpu-bundle.sh $(GPU_BUNDLE_ARGS)

# The same for a real engine, which is compiled on that host.
engine-bundle: setup build
	@scripts/engine-bundle.sh

kernels: setup
	python3 scripts/kernels.py

header: setup
	KVMEM_BLESS=1 cargo test --locked --test header
	scripts/bindings.py

clean:
	rm -rf build
