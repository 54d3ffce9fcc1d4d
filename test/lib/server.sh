# server.sh: PostgreSQL with assertions, built from Debian's source package
# and kept in the cache directory, one build per version and set of options.

CB_ASSERT_OPTIONS="--enable-cassert --enable-debug --enable-tap-tests --with-icu"
CB_ASSERT_CFLAGS="-O1 -g"

# apt with lists, cache and sources of its own, so that neither root nor a
# change of the machine's sources is needed.
cb_source_apt()
{
	local tool=$1 dir=$CB_WORK/apt
	shift
	"$tool" -q -o Dir::Etc::sourcelist="$dir/sources.list" \
		-o Dir::Etc::sourceparts=- -o Dir::State::lists="$dir/lists" \
		-o Dir::Cache="$dir/cache" -o APT::Get::List-Cleanup=0 \
		-o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" "$@"
}

# The machine's own package sources, as source-package sources.
cb_source_list()
{
	local keyring=/usr/share/keyrings/debian-archive-keyring.gpg opt=

	[ ! -e "$keyring" ] || opt="[signed-by=$keyring] "
	apt-get indextargets --format \
		"deb-src $opt\$(REPO_URI) \$(RELEASE) main" \
		'Created-By: Packages' 'Origin: Debian' | sort -u
}

# Downloads the newest source package that the mirror still has into $1.
cb_source_download()
{
	local dir=$CB_WORK/apt version

	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$1"
	cb_source_list >"$dir/sources.list"
	[ -s "$dir/sources.list" ] || { echo "apt has no package lists"; return 1; }
	cb_source_apt apt-get update || true
	for version in $(cb_source_apt apt-cache showsrc \
		"postgresql-$CB_PGMAJOR" 2>/dev/null |
		sed -n 's/^Version: //p' | sort -ruV); do
		(cd "$1" && cb_source_apt apt-get source --download-only \
			"postgresql-$CB_PGMAJOR=$version") && return 0
	done
	return 1
}

# Compiles the tarball in $1 into $2/inst; the source tree stays in $2/src.
cb_assert_compile()
{
	local src=$2/src part

	rm -rf "$2"
	mkdir -p "$src"
	tar -C "$src" --strip-components=1 \
		-xf "$(ls "$1"/postgresql-*.orig.tar.*[a-z0-9] | grep -v '\.asc$' |
			head -n 1)" || return 1
	cd "$src" || return 1
	# shellcheck disable=SC2086
	./configure --prefix="$2/inst" $CB_ASSERT_OPTIONS \
		CFLAGS="$CB_ASSERT_CFLAGS" || return 1
	make -s -j"$(nproc)" || return 1
	make -s install || return 1
	for part in contrib/citext contrib/ltree contrib/btree_gist \
		contrib/pageinspect contrib/amcheck src/test/isolation src/test/regress; do
		make -s -j"$(nproc)" -C "$part" install || return 1
	done
	make -s -C src/test/perl install || return 1
	rm -f config.log
}

# Prints the pg_config of the assertion build, making it first if need be.
# Messages go to standard error.
cb_assert_server()
{
	local key dir log

	if [ -n "${CACHE_BATCH_ASSERT_PG:-}" ]; then
		echo "$CACHE_BATCH_ASSERT_PG"
		return 0
	fi
	key=$(printf '%s' "$CB_ASSERT_OPTIONS $CB_ASSERT_CFLAGS" | cksum |
		cut -d' ' -f1)
	dir=$CB_CACHE/server/assert-$CB_PGMAJOR-$key
	log=$CB_WORK/assert-build.log
	exec 9>"$dir.lock"
	flock 9
	if [ ! -e "$dir/done" ]; then
		cb_say "building PostgreSQL $CB_PGMAJOR with assertions (cached in $dir)" >&2
		if ! { cb_source_download "$CB_WORK/pgsource" &&
			(cb_assert_compile "$CB_WORK/pgsource" "$dir"); } >"$log" 2>&1; then
			tail -n 30 "$log" >&2
			exec 9>&-
			return 1
		fi
		touch "$dir/done"
		cb_say "built $("$dir/inst/bin/pg_config" --version)" >&2
	fi
	exec 9>&-
	echo "$dir/inst/bin/pg_config"
}
