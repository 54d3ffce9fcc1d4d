# common.sh: what test/all, test/demo and test/bench/run share.
#
# The outer process (whoever calls the script, perhaps root) installs
# packages, copies the work tree to a scratch directory and starts the script
# again from there as an unprivileged user (the inner process), because
# PostgreSQL refuses root and a clone must not be dirtied.  Whatever happens,
# the outer process then stops every server that runs from the scratch
# directory and removes it.
#
# Nothing is installed into the packaged server: it is copied into the
# scratch directory (PostgreSQL finds its files relative to its programs), and
# the extension goes into the copy.
#
# Environment: CACHE_BATCH_CACHE  where builds and downloads are kept
#              CACHE_BATCH_KEEP=1 keep the scratch directory

CB_PGMAJORS="15 16 17 18"

CB_PACKAGES_BUILD="build-essential postgresql-15 postgresql-server-dev-15
	libicu-dev libpq-dev liburcu-dev pkg-config python3 util-linux passwd"
# to build servers, or to unpack them
CB_PACKAGES_SERVER="bison flex libreadline-dev zlib1g-dev dpkg-dev
	ca-certificates xz-utils bzip2 python3-pip libipc-run-perl"
CB_PACKAGES_TEST="$CB_PACKAGES_BUILD $CB_PACKAGES_SERVER binutils patch
	python3-psycopg2 python3-yaml postgresql-15-pgtap
	libtap-parser-sourcehandler-pgtap-perl"
# what tests can do without: tap:056_monitoring says what it leaves out then
CB_PACKAGES_MONITORING="prometheus-postgres-exporter prometheus python3-jsonschema"

# to draw plots; and to look at a report in a browser, which test/all --full does
CB_PACKAGES_PLOT="python3-matplotlib"
CB_PACKAGES_BROWSER="chromium"
# with the C library's symbols, which it needs
CB_PACKAGES_VALGRIND="valgrind libc6-dbg"

cb_started=${CB_STARTED:-$(date +%s)}

# ---------------------------------------------------------------- messages

cb_say()
{
	printf '[%4ds] %s\n' "$(($(date +%s) - cb_started))" "$*"
}

cb_die()
{
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# Seconds since an earlier $(date +%s%N), with one decimal.
cb_since()
{
	awk -v a="$1" -v b="$(date +%s%N)" 'BEGIN { printf "%.1f", (b - a) / 1e9 }'
}

# ---------------------------------------------------------------- packages

cb_missing_packages()
{
	local p

	for p in "$@"; do
		dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null |
			grep -qx installed || echo "$p"
	done
}

# RUNLEVEL=1 keeps the packaged server from being started on installation.
cb_install_packages()
{
	local missing sudo=

	command -v apt-get >/dev/null ||
		cb_die "needs Debian's apt-get to install: $*"
	# shellcheck disable=SC2046
	missing=$(cb_missing_packages "$@" | tr '\n' ' ')
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null ||
			cb_die "run as root, or install first: $missing"
		sudo=sudo
	fi
	cb_say "installing packages: $missing"
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q update \
		>"$CB_WORK/apt.log" 2>&1 || true
	# shellcheck disable=SC2086
	$sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get -q -y --no-install-recommends install $missing \
		>>"$CB_WORK/apt.log" 2>&1 </dev/null ||
		{ tail -n 30 "$CB_WORK/apt.log"; cb_die "apt-get install failed"; }
}

# ------------------------------------------------- outer and inner process

cb_cache_dir()
{
	if [ -n "${CACHE_BATCH_CACHE:-}" ]; then
		echo "$CACHE_BATCH_CACHE"
	elif [ "$(id -u)" = 0 ]; then
		echo /var/cache/cache_batch
	else
		echo "${XDG_CACHE_HOME:-$HOME/.cache}/cache_batch"
	fi
}

# Stops the servers that have their data in directory $1, if it is there, by their lock
# files; only those whose programs are in $CB_WORK.
cb_stop_servers_under()
{
	local f pid exe

	[ -d "$1" ] || return 0
	find "$1" -name postmaster.pid 2>/dev/null | while read -r f; do
		pid=$(head -n 1 "$f")
		exe=$(readlink "/proc/$pid/exe" 2>/dev/null) || continue
		case $exe in
			"$CB_WORK"/*) kill -QUIT "$pid" 2>/dev/null || true ;;
			*) continue ;;
		esac
		for _ in $(seq 50); do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.1
		done
	done
}

cb_outer_cleanup()
{
	local status=$?

	trap - EXIT INT TERM HUP
	if [ -n "${cb_child:-}" ]; then
		kill -TERM -- "-$cb_child" 2>/dev/null || true
	fi
	cb_stop_servers_under "$CB_WORK"
	if declare -F cb_outer_end >/dev/null; then
		cb_outer_end
	fi
	if [ -n "${CACHE_BATCH_KEEP:-}" ]; then
		echo "kept: $CB_WORK"
	else
		rm -rf "$CB_WORK"
	fi
	exit "$status"
}

# cb_enter TREE SCRIPT PACKAGES ARGS...: returns in the inner process only.
# SCRIPT is relative to TREE.  Functions that run in the outer process, where
# there are any: cb_outer_before before the inner one is started, with the name
# of its user; cb_outer_after when it has ended; cb_outer_end when its servers
# are stopped, too, whatever happened.
cb_enter()
{
	local tree=$1 script=$2 packages=$3 run_as=() commit
	shift 3

	if [ "${CB_INNER:-}" = 1 ]; then
		return 0
	fi
	export CB_CACHE CB_WORK CB_OUTDIR=$tree
	CB_CACHE=$(cb_cache_dir)
	mkdir -p "$CB_CACHE" || cb_die "cannot make $CB_CACHE"
	CB_WORK=$(mktemp -d "$CB_CACHE/run.XXXXXX")
	cb_child=
	trap cb_outer_cleanup EXIT
	trap 'exit 130' INT TERM HUP

	# shellcheck disable=SC2086
	cb_install_packages $packages
	commit=$(git -c safe.directory='*' -C "$tree" describe --always --dirty \
		2>/dev/null) || commit=unknown
	mkdir "$CB_WORK/tree" "$CB_WORK/home"
	tar -C "$tree" --exclude=./.git --exclude='*.o' --exclude='*.bc' \
		--exclude='*.so' --exclude=./tmp_check -cf - . |
		tar -C "$CB_WORK/tree" -xf -
	if [ "$(id -u)" = 0 ]; then
		id cachebatch-test >/dev/null 2>&1 ||
			useradd --system --user-group --no-create-home \
				--home-dir "$CB_CACHE" cachebatch-test
		chmod 755 "$CB_CACHE"
		chown -R cachebatch-test: "$CB_WORK"
		mkdir -p "$CB_CACHE/server"
		chown cachebatch-test: "$CB_CACHE/server"
		run_as=(setpriv --reuid=cachebatch-test --regid=cachebatch-test
			--init-groups)
	else
		mkdir -p "$CB_CACHE/server"
	fi

	if declare -F cb_outer_before >/dev/null; then
		cb_outer_before "${run_as:+cachebatch-test}"
	fi

	# A session of its own, so that one signal reaches all that it started, and
	# a working directory that it may read.
	setsid "${run_as[@]}" env -C "$CB_WORK/tree" -u LC_ALL -u LANGUAGE CB_INNER=1 CB_STARTED="$cb_started" \
		CB_COMMIT="$commit" HOME="$CB_WORK/home" LANG=C.UTF-8 TZ=UTC \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		bash "$CB_WORK/tree/$script" "$@" </dev/null &
	cb_child=$!
	local status=0
	wait "$cb_child" || status=$?
	cb_child=
	if declare -F cb_outer_after >/dev/null; then
		cb_outer_after
	fi
	exit "$status"
}

# ------------------------------------------------------------ build, servers

# Ends the script if that is no version of PostgreSQL that there are tests for.
cb_check_major()
{
	case " $CB_PGMAJORS " in
		*" $1 "*) ;;
		*) cb_die "versions of PostgreSQL are ${CB_PGMAJORS// /, }, not $1" ;;
	esac
}

# cb_copy_server PG_CONFIG DIR: a private copy of a server; prints the copy's
# pg_config.  Works because PostgreSQL computes its directories from where its
# programs are; checked here, so that nothing is ever installed elsewhere.
cb_copy_server()
{
	local from=$1 dir=$2 what path copy got

	mkdir -p "$dir"
	case $from in
		"$CB_CACHE"/server/*/inst/*)
			path=${from%%/inst/*}/inst
			mkdir -p "$dir$(dirname "$path")"
			cp -a "$path" "$dir$path" || return 1 ;;
	esac
	for what in bindir pkglibdir sharedir includedir includedir-server; do
		path=$("$from" "--$what") || return 1
		case $what in
			includedir)
				# libpq's headers are the system's; a source build's are inside
				[ "$path" != /usr/include/postgresql ] || continue ;;
		esac
		[ -d "$path" ] || continue
		[ ! -e "$dir$path" ] || continue
		mkdir -p "$dir$(dirname "$path")"
		cp -a "$path" "$dir$(dirname "$path")/" || return 1
	done
	chmod -R u+w "$dir"
	copy="$dir$("$from" --bindir)/pg_config"
	for what in bindir pkglibdir sharedir includedir-server; do
		got=$("$copy" "--$what")
		[ "$got" = "$dir$("$from" "--$what")" ] ||
			{ echo "server is not relocatable: --$what is $got" >&2; return 1; }
	done
	echo "$copy"
}

# cb_build_install PG_CONFIG BUILDDIR [make variables]: compiles a copy of the
# tree and installs it into that server (a private copy).
cb_build_install()
{
	local pg_config=$1 dir=$2
	shift 2

	mkdir -p "$dir"
	cp -a "$CB_TREE/." "$dir/"
	make -C "$dir" -j"$(nproc)" PG_CONFIG="$pg_config" with_llvm=no "$@" \
		>"$dir.log" 2>&1 &&
		make -C "$dir" PG_CONFIG="$pg_config" with_llvm=no "$@" install \
			>>"$dir.log" 2>&1
}

# cb_server_init PG_CONFIG DATADIR [LOCALE]: initdb; settings on standard
# input.
cb_server_init()
{
	local bindir
	bindir=$("$1" --bindir)

	"$bindir/initdb" -D "$2" -U postgres --auth=trust --no-sync \
		--encoding=UTF8 --locale="${3:-C.UTF-8}" ${CB_INITDB:-} >"$2.initdb.log" 2>&1 ||
		{ tail -n 20 "$2.initdb.log"; return 1; }
	cat >>"$2/postgresql.conf"
}

# Sets PGHOST, PGPORT, PGUSER for the clients.
cb_server_start()
{
	local bindir sock=$CB_WORK/s
	bindir=$("$1" --bindir)

	mkdir -p "$sock"
	export PGHOST=$sock PGPORT=${CB_PORT:-5432} PGUSER=postgres
	export PGDATABASE=postgres
	"$bindir/pg_ctl" -w -t 120 -D "$2" -l "$2.log" \
		-o "-c listen_addresses='' -k $sock -p $PGPORT" start >/dev/null ||
		{ tail -n 30 "$2.log"; return 1; }
}

cb_server_stop()
{
	local bindir
	bindir=$("$1" --bindir)

	"$bindir/pg_ctl" -w -D "$2" -m "${3:-fast}" stop >/dev/null
}
