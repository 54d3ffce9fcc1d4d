# targets.mk: packages (included by the Makefile); packaging/README says what of.

.PHONY: deb dist

# for the servers VERSIONS="15 17", or all that there are headers of
deb:
	bash $(srcdir)/packaging/make-deb $(VERSIONS)

# for PGXN: the tree as committed
CB_DISTRIBUTION = cache_batch-$(shell sed -n '/"version"/{s/.*: *"\(.*\)".*/\1/p;q;}' $(srcdir)/META.json)

dist:
	git -C $(srcdir) archive --format=zip --prefix=$(CB_DISTRIBUTION)/ \
		--output='$(CURDIR)/$(CB_DISTRIBUTION).zip' HEAD
	@echo $(CB_DISTRIBUTION).zip
