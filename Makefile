# cache_batch: build with PGXS; the check-* targets are in test/targets.mk
EXTENSION = cache_batch
MODULE_big = cache_batch
DATA = sql/cache_batch--1.0.sql sql/cache_batch--1.0--1.1.sql
SCRIPTS = cache_batch_check
PGFILEDESC = "cache_batch - batched index access method"

# Where the sources are: here, or elsewhere (make -f DIR/Makefile, or with VPATH)
CB_SOURCES := $(or $(VPATH),$(patsubst %/,%,$(dir $(firstword $(MAKEFILE_LIST)))))
cb_files = $(patsubst $(CB_SOURCES)/%,%,$(sort $(wildcard $(addprefix $(CB_SOURCES)/,$(1)))))

C_FILES := $(call cb_files,src/*.c src/*/*.c)
OBJS = $(C_FILES:.c=.o)
CB_HEADERS := $(call cb_files,src/*/*.h)
ifneq ($(CB_SOURCES),.)
$(shell mkdir -p $(sort $(dir $(OBJS))))
endif

PG_CPPFLAGS = -I$(srcdir)/src
# tests and CI add COPT=-Werror
PG_CFLAGS = -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers -Wno-cast-function-type -Wno-clobbered

# TESTPOINTS=1: named places where tests stop, fail or kill a backend
ifdef TESTPOINTS
PG_CPPFLAGS += -DCB_TESTPOINTS
endif
# Nobody puts functions in the place of ours: calls among them are direct, or inlined
ifeq ($(shell uname -s),Linux)
PG_CFLAGS += -fno-semantic-interposition
SHLIB_LINK += -Wl,-Bsymbolic
endif
# src/core/cb_model.c
SHLIB_LINK += -lm

# make installcheck: the regression tests that pass on any running server that has
# the library preloaded.  Not those that need test points (*_points), that no other
# session, autovacuum's either, holds back what is dead (marks, packed, scan_rows,
# unlink, vacuum_skip), heat_epoch = 1d (heat) or max_prepared_transactions (prepared).
CB_PRIVATE_TESTS = %_points heat marks packed prepared scan_rows unlink vacuum_skip
REGRESS = $(filter-out $(CB_PRIVATE_TESTS),$(patsubst sql/%.sql,%,$(filter-out sql/cache_batch--%,$(call cb_files,sql/*.sql))))
REGRESS_OPTS = --load-extension=cache_batch --encoding=UTF8

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
ifneq (,$(findstring --enable-cassert,$(shell $(PG_CONFIG) --configure)))
PG_CPPFLAGS += -DCB_CORE_ASSERT
endif
include $(PGXS)

# A query runs once through most of what a scan is made of: compiled as one unit,
# and without a table of jumps to the server's functions, that is fewer lines of
# the processor's cache.  GCC only; builds for debugging stay as they are.
ifneq (,$(and $(filter Linux,$(shell uname -s)),$(findstring gcc,$(CC)),$(findstring -O2,$(CFLAGS))))
override CFLAGS += -flto=auto -fno-plt
endif

# the loops over whole leaves
src/core/cb_pack.o src/core/cb_pack_read.o: CFLAGS := $(patsubst -O2,-O3,$(CFLAGS))

# PGXS does not track headers
$(OBJS): $(CB_HEADERS)

-include $(srcdir)/test/targets.mk $(srcdir)/packaging/targets.mk
