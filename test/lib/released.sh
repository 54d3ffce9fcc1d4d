# released.sh: this version beside those that were released before it.
#
# test/upgrade/released names them.  Of each there is data of a server, as it was
# after a clean stop and after a crash, made by its own sources, which come out of
# git: so the outer process has to get them.  The data is kept in the cache directory.

CB_RELEASED=$tree/test/upgrade/released

cb_released()
{
	sed '/^#/d; s/ .*//' "$CB_RELEASED"
}

# In the outer process: the sources of each version, if this clone has them.
cb_released_export()
{
	local version commit

	while read -r version commit _; do
		git -c safe.directory='*' -C "$tree" archive "$commit" >"$CB_WORK/released-$version.tar" 2>/dev/null ||
			rm "$CB_WORK/released-$version.tar"
	done < <(grep -v '^#' "$CB_RELEASED")
}

# cb_released_psql PG_CONFIG ARGS...
cb_released_psql()
{
	"$("$1" --bindir)/psql" -XAtq -v ON_ERROR_STOP=1 "${@:2}"
}

# cb_released_look PG_CONFIG SQL: what is above the tree, what the indexes say.
cb_released_look()
{
	cb_released_psql "$1" -f "$2/look.sql" && cb_released_psql "$1" -f "$2/kinds_look.sql"
}

# cb_released_make VERSION PG_CONFIG TREE DIR: the data, into DIR.  All that was done is in
# the WAL that the crash leaves, with images that redo is compared with.
cb_released_make()
{
	local work=$CB_WORK/released sql=$3/test/upgrade pg how

	rm -rf "$work" "$4"
	mkdir -p "$work/src" "$4"
	tar -C "$work/src" -xf "$CB_WORK/released-$1.tar" &&
		pg=$(cb_copy_server "$2" "$work/pg") || return 1
	CB_TREE=$work/src cb_build_install "$pg" "$work/build" TESTPOINTS=1 ||
		{ tail -n 30 "$work/build.log"; return 1; }
	{
		cat "$3/test/cache_batch.conf" "$3/test/no_workers.conf"
		printf '%s\n' "checkpoint_timeout = 1h" "wal_consistency_checking = 'cache_batch'"
	} | CB_INITDB=--wal-segsize=1 cb_server_init "$pg" "$work/data" &&
		cb_server_start "$pg" "$work/data" &&
		cb_released_psql "$pg" -f "$sql/before.sql" &&
		cb_released_psql "$pg" -f "$sql/kinds.sql" &&
		cb_released_look "$pg" "$sql" >"$4/look.out" || return 1
	for how in immediate fast; do
		cb_server_stop "$pg" "$work/data" "$how" &&
			tar -C "$work" -czf "$4/$how.tar.gz" data || return 1
		[ "$how" = fast ] || cb_server_start "$pg" "$work/data" || return 1
	done
	rm -rf "$work"
}

# cb_suite_released LABEL PG_CONFIG BUILD FROM: the library on data of each released
# version.  FROM is the server without the extension.
cb_suite_released()
{
	local sql=$3/test/upgrade version key dir how

	for version in $(cb_released); do
		key=$({ "$4" --version --configure; declare -f cb_released_make; grep "^$version " "$CB_RELEASED"
			cat "$3"/test/*.conf "$sql"/{before,look,kinds,kinds_look}.sql; } | cksum | cut -d' ' -f1)
		dir=$CB_CACHE/server/data-$version-$key
		if [ ! -e "$dir/done" ] && [ ! -e "$CB_WORK/released-$version.tar" ]; then
			cb_skip "upgrade from $version on $1: this tree has no git history with that version"
			continue
		fi
		if ! cb_cached "$dir" "making data with cache_batch $version" cb_released_make "$version" "$4" "$3" "$dir"; then
			cb_stop_servers_under "$CB_WORK/released"
			cb_fail "upgrade from $version on $1: data of $version"
			continue
		fi
		for how in fast immediate; do
			cb_released_run "upgrade from $version on $1, after ${how/fast/clean} stop" "$2" "$sql" "$dir" "$how" "$version"
		done
	done
}

# cb_released_objects PG_CONFIG SQL DATABASE
cb_released_objects()
{
	cb_released_psql "$1" -d "$3" -f "$2/objects.sql"
}

# cb_released_use PG_CONFIG SQL DIR VERSION: all that is tried, with what it printed in DIR.
# Called in a condition, so joined by &&.
cb_released_use()
{
	local sql=$2 dir=$3 current

	cb_server_start "$1" "$dir/data" &&
		cb_released_look "$1" "$sql" >"$dir/look.out" &&
		cb_released_psql "$1" -f "$sql/functions.sql" >"$dir/called.out" &&
		cb_released_objects "$1" "$sql" postgres >"$dir/objects.released" &&
		cb_released_psql "$1" -c "CREATE DATABASE stepped" -c "CREATE DATABASE fresh" &&
		cb_released_psql "$1" -d fresh -c "CREATE EXTENSION cache_batch" &&
		cb_released_psql "$1" -d stepped -c "CREATE EXTENSION cache_batch VERSION '$4'" &&
		cb_released_objects "$1" "$sql" stepped >"$dir/objects.again" &&
		cb_released_psql "$1" -d stepped -c "ALTER EXTENSION cache_batch UPDATE" &&
		cb_released_psql "$1" -c "ALTER EXTENSION cache_batch UPDATE" &&
		for current in postgres stepped fresh; do
			cb_released_objects "$1" "$sql" "$current" >"$dir/objects.$current" || return 1
		done &&
		cb_released_psql "$1" -f "$sql/functions.sql" >"$dir/called-updated.out" &&
		cb_released_psql "$1" -f "$sql/after.sql" -f "$sql/kinds_after.sql" &&
		cb_released_look "$1" "$sql" >"$dir/later.out" &&
		cb_server_stop "$1" "$dir/data"
}

# cb_released_run LABEL PG_CONFIG SQL DATA HOW VERSION
cb_released_run()
{
	local dir=$CB_WORK/upgrade

	cb_say "$1"
	rm -rf "$dir"
	mkdir -p "$dir"
	tar -C "$dir" -xzf "$4/$5.tar.gz"
	if ! cb_released_use "$2" "$3" "$dir" "$6" >"$dir/log" 2>&1; then
		tail -n 20 "$dir/data.log" >>"$dir/log" || true
		cb_fail "$1" "$dir/log"
		cb_stop_servers_under "$CB_WORK"
		return 0
	fi
	cb_upgrade_check "$1: levels above the tree" "$4/look.out" \
		'/^(runs|journal) [1-9]/ || /^levels .* [1-9][0-9]* [1-9][0-9]*$/ { n++ } END { exit n < 15 }'
	[ "$5" = fast ] || cb_upgrade_check "$1: WAL is replayed" "$dir/data.log" \
		'/redo done/ { n++ } END { exit n != 1 }'
	cb_released_same "$1: all is found as before" "$4/look.out" "$dir/look.out"
	cb_upgrade_check "$1: all functions and views work" "$dir/called.out" '/^unknown: none/ { n++ } END { exit n != 1 }'
	cb_upgrade_check "$1: and when it is updated" "$dir/called-updated.out" \
		'/^unknown: none/ { n++ } END { exit n != 1 }'
	cb_released_same "$1: its objects are those of then" "$dir/objects.released" "$dir/objects.again"
	cb_released_same "$1: the update makes what is made anew" "$dir/objects.fresh" "$dir/objects.postgres"
	cb_released_same "$1: also from there" "$dir/objects.fresh" "$dir/objects.stepped"
	cb_upgrade_check "$1: the indexes go on" "$dir/later.out" \
		'/^table/ { t = $2 " " $3 } /^up_[kt]/ { n += $2 " " $3 == t } /^sound 4/ || /^same 21 of 21/ || /^sound 21/ { n++ } /^linked 1/ { n++ } END { exit n != 6 }'
}

# cb_released_same NAME WANTED FILE
cb_released_same()
{
	if diff "$2" "$3" >"$CB_WORK/upgrade/diff" && [ -s "$3" ]; then
		cb_pass "$1"
	else
		cb_fail "$1" "$CB_WORK/upgrade/diff"
	fi
}
