# targets.mk: test targets of cache_batch (included by the Makefile).
#
# They start private servers with test/cache_batch.conf and need no running
# one; see test/all.  PG_CONFIG chooses the server for all but "check".

CB_TEST_ALL = bash $(srcdir)/test/all
CB_TEST_ONE = $(CB_TEST_ALL) --pg-config '$(PG_CONFIG)' --only

.PHONY: check check-all check-regress check-isolation check-tap check-pgtap check-unit \
	check-stress check-fuzz lint bench demo mutate

# PGXS has a "check" whose recipe only says that it is not supported; that
# recipe is silenced, and its work done by a prerequisite.
check: check-all
check: private SHELL = /bin/true

check-all:
	$(CB_TEST_ALL)

check-regress:
	$(CB_TEST_ONE) regress

check-isolation:
	$(CB_TEST_ONE) isolation

check-tap:
	$(CB_TEST_ONE) tap

check-pgtap:
	$(CB_TEST_ONE) pgtap

check-unit:
	$(CB_TEST_ONE) unit

check-stress:
	$(CB_TEST_ONE) stress

check-fuzz:
	$(CB_TEST_ONE) fuzz

lint:
	$(CB_TEST_ONE) lint

bench:
	bash $(srcdir)/test/bench/run

demo:
	bash $(srcdir)/test/demo

mutate:
	$(CB_TEST_ALL) --only mutate
