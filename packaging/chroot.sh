# chroot.sh: what test-deb and test-image share: chroots of Debian's suites, made from
# nothing and removed, and counted tests.  As root.  "here" is this directory.

passed=0
failed=0

# test_begin NAME: a scratch directory that is removed whatever happens.
test_begin()
{
	[ "$(id -u)" = 0 ] || { echo "$0: must be root, to make chroots" >&2; exit 2; }
	command -v mmdebstrap >/dev/null || { echo "$0: needs mmdebstrap" >&2; exit 2; }
	scratch=$(mktemp -d "/var/tmp/cache_batch-$1.XXXXXX")
	trap 'rm -rf --one-file-system "$scratch"' EXIT
	trap 'exit 130' INT TERM HUP
}

test_end()
{
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ] || exit 1
	exit 0
}

# check NAME COMMAND...: one test; the end of what it says, if it fails.
check()
{
	local name=$1
	shift

	if "$@" >"$scratch/log" 2>&1; then
		echo "ok: $name"
		passed=$((passed + 1))
	else
		echo "FAILED: $name"
		tail -n "${CB_TAIL:-40}" "$scratch/log" | sed 's/^/    | /'
		failed=$((failed + 1))
		return 1
	fi
}

# suite_of_major MAJOR: the suite of Debian that has that version of PostgreSQL.
suite_of_major()
{
	case $1 in
		15) echo bookworm ;;
		17) echo trixie ;;
		18) echo sid ;;
		*) return 1 ;;
	esac
}

major_of_suite()
{
	local major

	for major in 15 17 18; do
		[ "$(suite_of_major "$major")" != "$1" ] || echo "$major"
	done
}

# Where this machine's packages of Debian come from.
debian_mirror()
{
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
		'Origin: Debian' | grep -v security | sort -u | head -n 1
}

# Can that suite be had, with a version of PostgreSQL for us?  Says "skipped: why" if not.
suite_there()
{
	local url
	url=$(debian_mirror) && url=${url%/}/dists/$1/Release

	if [ -z "$(major_of_suite "$1")" ]; then
		echo "skipped: $1: no version of PostgreSQL is known to be there"
	elif ! /usr/lib/apt/apt-helper download-file "$url" "$scratch/Release" \
		>"$scratch/Release.log" 2>&1; then
		echo "skipped: $1 cannot be had: $url: $(tail -n 1 "$scratch/Release.log")"
	else
		return 0
	fi
	return 1
}

# copy_tree TO: the tree that this is in, but for history and packages.
copy_tree()
{
	mkdir -p "$1" && tar -C "$here/.." --exclude=./.git --exclude=./deb -cf - . | tar -C "$1" -xf -
}

# make_chroot SUITE DIR PACKAGES: with those packages (separated by commas), which do
# not start servers.
make_chroot()
{
	local late

	late=$(apt-config shell late Acquire::Check-Valid-Until)
	mmdebstrap --quiet --mode=root --variant=apt ${3:+--include="$3"} \
		${late:+--aptopt='Acquire::Check-Valid-Until "false"'} \
		--essential-hook='printf "#!/bin/sh\nexit 101\n" >"$1/usr/sbin/policy-rc.d"' \
		--essential-hook='chmod +x "$1/usr/sbin/policy-rc.d"' \
		"$1" "$2" "$(debian_mirror)"
}

# in_chroot [--no-network] DIR COMMAND...: what COMMAND starts ends with it.
in_chroot()
{
	local network=

	[ "$1" != --no-network ] || { network=--net && shift; }
	unshare --mount --pid --ipc --uts $network --fork --kill-child -- \
		bash -euc 'root=$1 && shift
			mount -t proc proc "$root/proc"
			mkdir -p "$root/dev/shm" && mount -t tmpfs tmpfs "$root/dev/shm"
			exec env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
				PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
				chroot "$root" "$@"' - "$@" </dev/null
}
