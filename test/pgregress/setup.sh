# setup.sh: what run and specs share.

# pgregress_setup: a private server with the extension and the library pgregress.  Takes the
# server and its source from pg_config and source or, where those are empty, the assertion
# build of version major; sets them and pg, the private server's pg_config.
pgregress_setup()
{
	CB_TREE=$tree
	if [ -z "$pg_config" ]; then
		pg_config=$(cb_server "$major" assert) || cb_die "no server"
		source=$(dirname "$(dirname "$(dirname "$pg_config")")")/src
	fi
	pg=$(cb_copy_server "$pg_config" "$CB_WORK/pg")
	cb_build_install "$pg" "$CB_WORK/build" COPT=-Werror ||
		{ tail -n 30 "$CB_WORK/build.log"; cb_die "does not compile"; }
	make -s -C "$CB_WORK/build/test/pgregress" PG_CONFIG="$pg" with_llvm=no install \
		>"$CB_WORK/module.log" 2>&1 ||
		{ tail -n 30 "$CB_WORK/module.log"; cb_die "does not compile"; }
}
