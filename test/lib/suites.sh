# suites.sh: one function a suite; each counts every test that it ran.
#
# A suite gets: $1 label of the server, $2 pg_config of a private copy with
# the extension installed, $3 the build directory (a copy of the tree), and
# regress $4 not empty if the build has test points.  It runs those of its tests
# that are asked for.

CB_SUITES="lint unit regress pgtap isolation tap stress upgrade fuzz sanitize valgrind mutate"

cb_only=()			# what is asked for, SUITE or SUITE:NAME; none: everything
cb_passed=0
cb_failed=0
cb_skipped=0
cb_failures=()
cb_apart_pid=			# of the suite that runs beside another one

# ---------------------------------------------------- what is asked for

# cb_ask LIST: adds what stands between the list's commas.
cb_ask()
{
	local items

	IFS=, read -ra items <<<"$1"
	cb_only+=("${items[@]:-}")
}

# cb_file_names SUFFIX FILE...: their names, without the suffix.
cb_file_names()
{
	local f

	for f in "${@:2}"; do
		[ ! -f "$f" ] || basename "$f" "$1"
	done
}

# cb_tests SUITE: the names of its tests, in the order in which they run.
# stress, upgrade, fuzz, sanitize, valgrind and mutate only run whole.
cb_tests()
{
	local test=$CB_TREE/test

	case $1 in
		lint) cb_file_names "" "$test"/lint/* ;;
		unit) cb_unit_tests "$test/unit" ;;
		regress) cb_file_names .sql "$CB_TREE"/sql/*.sql | sed '/--/d' ;;
		pgtap) cb_file_names .sql "$test"/pgtap/*.sql ;;
		isolation) cb_file_names .spec "$test"/isolation/specs/*.spec ;;
		tap) cb_file_names .pl "$test"/t/*.pl ;;
	esac
}

# As in the Makefile's NAMES.
cb_unit_tests()
{
	local main

	cb_file_names .c "$1"/*_test.c
	printf '%s\n' core_bench paper sim soak report
	for main in "$1"/*/main.cpp; do
		basename "$(dirname "$main")"
	done
}

# cb_named SUITE NAME: the test of that name, or else all whose names begin so.
cb_named()
{
	local name begin=()

	for name in $(cb_tests "$1"); do
		case $name in
			"$2") begin=("$name") && break ;;
			"$2"*) begin+=("$name") ;;
		esac
	done
	[ ${#begin[@]} = 0 ] || printf '%s\n' "${begin[@]}"
}

# cb_asked SUITE...: is one of them asked for, or a test of theirs?
cb_asked()
{
	local suite item

	[ ${#cb_only[@]} != 0 ] || return 0
	for suite in "$@"; do
		for item in "${cb_only[@]}"; do
			[ "${item%%:*}" != "$suite" ] || return 0
		done
	done
	return 1
}

# cb_asked_tests SUITE: those of its tests that are asked for.
cb_asked_tests()
{
	local item

	for item in "${cb_only[@]-$1}"; do
		case $item in
			"$1") cb_tests "$1" ;;
			"$1":*) cb_named "$1" "${item#*:}" ;;
		esac
	done | awk '!seen[$0]++'
}

# Complains of what there is not; false if there is anything.
cb_check_asked()
{
	local item suite status=0

	for item in "${cb_only[@]}"; do
		suite=${item%%:*}
		if ! tr ' ' '\n' <<<"$CB_SUITES" | grep -qxF -e "$suite"; then
			echo "no suite is named \"$suite\"; there are: $CB_SUITES" >&2
			status=1
		elif [ "$item" != "$suite" ] &&
			[ -z "$(cb_named "$suite" "${item#*:}")" ]; then
			echo "no test of $suite has the name \"${item#*:}\", or one that begins so" >&2
			status=1
		fi
	done
	return $status
}

# ------------------------------------------------------------ counting

cb_count()
{
	cb_passed=$((cb_passed + $1))
	cb_failed=$((cb_failed + $2))
}

# cb_fail NAME [LOG]: one failed test, with the end of its log.
cb_fail()
{
	cb_failed=$((cb_failed + 1))
	cb_failures+=("$1")
	cb_say "FAILED: $1"
	if [ -n "${2:-}" ] && [ -e "$2" ]; then
		tail -n "${3:-40}" "$2" | sed 's/^/    | /'
	fi
}

cb_pass()
{
	cb_passed=$((cb_passed + 1))
	if [ -n "${CB_VERBOSE:-}" ]; then
		cb_say "ok: $1"
	fi
}

cb_skip()
{
	cb_skipped=$((cb_skipped + 1))
	cb_say "skipped: $1"
}

# cb_apart COMMAND...: a suite that keeps one processor busy runs beside what comes next.
# What it says and what it has counted come with cb_rejoin, which waits for it.
cb_apart()
{
	(
		cb_passed=0 cb_failed=0 cb_skipped=0 cb_failures=()
		"$@"
		printf '%s\n' "$cb_passed $cb_failed $cb_skipped" "${cb_failures[@]}" >"$CB_WORK/apart.counts"
	) >"$CB_WORK/apart.said" 2>&1 &
	cb_apart_pid=$!
}

cb_rejoin()
{
	local passed failed skipped failures

	[ -n "$cb_apart_pid" ] || return 0
	wait "$cb_apart_pid" || true
	cb_apart_pid=
	cat "$CB_WORK/apart.said"
	if [ -e "$CB_WORK/apart.counts" ]; then
		{ read -r passed failed skipped && mapfile -t failures; } <"$CB_WORK/apart.counts"
		cb_count "$passed" "$failed"
		cb_skipped=$((cb_skipped + skipped))
		cb_failures+=("${failures[@]}")
	else
		cb_fail "suite that ran beside another one"
	fi
	rm -f "$CB_WORK"/apart.*
}

cb_pgxs_test_dir()
{
	echo "$(dirname "$("$1" --pgxs)")/../test"
}

cb_limited()
{
	timeout -k 20 "${CB_SUITE_TIMEOUT:-1500}" "$@"
}

# cb_count_regress SUITE LOG STATUS: reads the lines of pg_regress, both the
# form of 15 ("test a ... ok 1 ms") and the later one ("ok 1 - a").
cb_count_regress()
{
	local suite=$1 log=$2 status=$3 ok bad name

	ok=$(grep -cE '^(test|     ).* \.\.\. ok|^ok [0-9]+' "$log" || true)
	bad=$(grep -E '^(test|     ).* \.\.\. FAILED|^not ok [0-9]+' "$log" |
		sed -E 's/^(test|not ok [0-9]+ +[-+]|     ) *([^ ]+).*/\2/' || true)
	cb_count "$ok" 0
	for name in $bad; do
		cb_fail "$suite: $name"
	done
	if [ -n "$bad" ]; then
		head -n 120 "$4/regression.diffs" 2>/dev/null | sed 's/^/    | /'
	elif [ "$status" != 0 ] || [ "$ok" = 0 ]; then
		cb_fail "$suite: run (exit status $status)" "$log"
	fi
	cb_say "$suite: $ok passed, $(echo "$bad" | wc -w) failed"
}

# Those that are asked for; names that end in _points need a build with test
# points ($1 not empty).  $2: pg_config; some need what a server may lack.
cb_regress_tests()
{
	cb_asked_tests regress | if [ -n "$1" ]; then cat; else sed '/_points$/d'; fi |
		if [ -z "${2:-}" ] || cb_has_icu "$2"; then cat; else
			grep -vxE "$CB_REGRESS_ICU"; fi || true
}

# tests that need collations of ICU, or contrib modules
CB_REGRESS_ICU="equality|errors|opclass|total|types"

# Was the server built with ICU?  One without it has no contrib modules either.
cb_has_icu()
{
	case $("$1" --configure) in
		*--without-icu*) return 1 ;;
	esac
}

# Names of tests, from standard input, without those of unique indexes, which are
# there from version 18 on.
CB_SINCE_18="unique-.*|unique|unique_points"

cb_of_version()
{
	if [ "$("$1" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')" -ge 18 ]; then
		cat
	else
		grep -vxE "$CB_SINCE_18" || true
	fi
}

cb_suite_regress()
{
	local suite="regress on $1" out=$3/out_regress tests f status=0

	mapfile -t tests < <(cb_regress_tests "${4:-}" "$2")
	cb_has_icu "$2" || cb_skip "regress on $1: ${CB_REGRESS_ICU//|/, }: no ICU, no contrib"
	[ ${#tests[@]} != 0 ] || return 0
	cb_say "$suite: ${#tests[@]} files"
	mkdir -p "$out"
	# pg_regress gives up altogether at a missing expected output
	for f in "${tests[@]}"; do
		[ -e "$3/expected/$f.out" ] || : >"$3/expected/$f.out"
	done
	cb_limited "$(cb_pgxs_test_dir "$2")/regress/pg_regress" \
		--bindir="$("$2" --bindir)" --inputdir="$3" --outputdir="$out" \
		--temp-instance="$out/instance" --encoding=UTF8 \
		--temp-config="$3/test/cache_batch.conf" \
		--temp-config="$3/test/no_workers.conf" \
		--dbname=contrib_regression --load-extension=cache_batch \
		"${tests[@]}" >"$out/run.log" 2>&1 || status=$?
	cb_stop_servers_under "$out"
	cb_count_regress "$suite" "$out/run.log" "$status" "$out"
}

cb_suite_isolation()
{
	local suite="isolation on $1" dir=$3/test/isolation out=$3/out_isolation
	local tests f status=0

	mapfile -t tests < <(cb_asked_tests isolation | cb_of_version "$2")
	[ ${#tests[@]} != 0 ] || return 0
	cb_say "$suite: ${#tests[@]} specs"
	mkdir -p "$out"
	for f in "${tests[@]}"; do
		[ -e "$dir/expected/$f.out" ] || : >"$dir/expected/$f.out"
	done
	cb_limited "$(cb_pgxs_test_dir "$2")/isolation/pg_isolation_regress" \
		--bindir="$("$2" --bindir)" --inputdir="$dir" --outputdir="$out" \
		--temp-instance="$out/instance" --encoding=UTF8 \
		--temp-config="$3/test/cache_batch.conf" \
		--temp-config="$3/test/no_workers.conf" \
		--dbname=isolation_regression --load-extension=cache_batch \
		"${tests[@]}" >"$out/run.log" 2>&1 || status=$?
	cb_stop_servers_under "$out"
	cb_count_regress "$suite" "$out/run.log" "$status" "$out"
}

# cb_count_tap SUITE LOG STATUS: top-level lines of TAP.
cb_count_tap()
{
	local suite=$1 log=$2 status=$3 ok bad line

	ok=$(grep -E '^ok [0-9]+' "$log" | grep -vc '# skip' || true)
	cb_count "$ok" 0
	bad=0
	while read -r line; do
		bad=$((bad + 1))
		cb_fail "$suite: $line"
	done < <(grep -E '^not ok [0-9]+' "$log" | grep -v '# T[O]DO' || true)
	if [ "$bad" != 0 ]; then
		grep -A 7 -E '^# +Failed |^not ok|^psql:|ERROR|FATAL|PANIC' "$log" |
			grep -vE '^ok |background' | head -n 60 | sed 's/^/    | /' || true
	elif [ "$status" != 0 ]; then
		cb_fail "$suite: run (exit status $status)" "$log"
		bad=1
	elif [ "$ok" = 0 ] && ! grep -qi '# skip\|\.\. skipped: ' "$log"; then
		cb_fail "$suite: no test was run" "$log"
		bad=1
	fi
	cb_say "$suite: $ok passed, $bad failed"
}

# Of a failed TAP file: what its servers complained of, and why it died.
cb_tap_logs()
{
	local log

	if [ "$2" = 0 ]; then
		rm -rf "$1"
		return 0
	fi
	for log in "$1"/tmp_check/log/*; do
		[ -e "$log" ] || continue
		case $log in
		*/regress_log_*) tail -n 12 "$log" ;;
		*) grep -E ' (PANIC|FATAL|ERROR): |TRAP: |terminated by signal|still waiting' "$log" |
			tail -n 12 || true ;;
		esac | sed "s,^,    | $(basename "$log"): ,"
	done
}

# cb_tap_run PG_CONFIG BUILD NAME: one file; its exit status and seconds are written
# to NAME.end when it is over.
cb_tap_run()
{
	local perl out=$2/out_tap name=$3 status=0 started
	perl=$(cb_pgxs_test_dir "$1")/perl

	started=$(date +%s%N)
	(cd "$2/test" &&
		PATH="$("$1" --bindir):$PATH" TESTDIR="$out/$name" \
		TESTDATADIR="$out/$name/tmp_check" TESTLOGDIR="$out/$name/tmp_check/log" \
		TEMP_CONFIG="$2/test/cache_batch.conf" PG_TEST_PORT_DIR="$out/ports" \
		PG_REGRESS="$(cb_pgxs_test_dir "$1")/regress/pg_regress" \
		CB_SRCDIR="$2" \
		CB_SUITE_TIMEOUT="${CB_TAP_TIMEOUT:-900}" \
		bash -c 'mkdir -p "$TESTDIR" && exec timeout -k 20 "$@"' - \
		"${CB_TAP_TIMEOUT:-900}" \
		prove -v --norc -I "$perl" -I "$2/test/perl" -I "$2/test/t" \
		"t/$name.pl") >"$out/$name.log" 2>&1 || status=$?
	cb_stop_servers_under "$out/$name"
	echo "$status $(cb_since "$started")" >"$out/$name.new"
	mv "$out/$name.new" "$out/$name.end"
}

# cb_tap_count LABEL OUT: the files that are over, and were not counted before.
cb_tap_count()
{
	local end name status seconds

	for end in "$2"/*.end; do
		[ -e "$end" ] || continue
		name=$(basename "$end" .end)
		read -r status seconds <"$end"
		rm "$end"
		cb_count_tap "tap on $1: $name ($seconds s)" "$2/$name.log" "$status"
		cb_tap_logs "$2/$name" "$status"
	done
}

# As many files at a time as there are processors: they wait more than they work.
cb_suite_tap()
{
	local out=$3/out_tap name

	if [ ! -d "$(cb_pgxs_test_dir "$2")/perl/PostgreSQL/Test" ]; then
		cb_skip "tap on $1: server was built without --enable-tap-tests"
		return 0
	fi
	mkdir -p "$out/ports"
	for name in $(cb_asked_tests tap); do
		while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
			wait -n || true
			cb_tap_count "$1" "$out"
		done
		cb_tap_run "$2" "$3" "$name" &
	done
	wait
	cb_tap_count "$1" "$out"
}

cb_suite_pgtap()
{
	local out=$3/out_pgtap name status

	if [ ! -e "$("$2" --sharedir)/extension/pgtap.control" ]; then
		cb_skip "pgtap on $1: the server has no pgTAP"
		return 0
	fi
	mkdir -p "$out"
	if ! cb_server_init "$2" "$out/data" <"$3/test/cache_batch.conf" ||
		! cb_server_start "$2" "$out/data"; then
		cb_fail "pgtap on $1: server start"
		return 0
	fi
	for name in $(cb_asked_tests pgtap); do
		status=0
		{
			"$("$2" --bindir)/createdb" "pgtap_$name" &&
				cb_limited pg_prove --verbose --dbname "pgtap_$name" \
					--psql-bin "$("$2" --bindir)/psql" "$3/test/pgtap/$name.sql"
		} >"$out/$name.log" 2>&1 || status=$?
		cb_count_tap "pgtap on $1: $name" "$out/$name.log" "$status"
	done
	cb_server_stop "$2" "$out/data" || cb_fail "pgtap on $1: server stop"
}

# Count a suite by its closing line "N passed, N failed": NAME LOG STATUS.
cb_count_closing_line()
{
	local passed failed

	if [[ $(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$2" | tail -n 1) =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
		passed=${BASH_REMATCH[1]} failed=${BASH_REMATCH[2]}
	else
		cb_fail "$1" "$2"
		return 0
	fi
	[ "$3" = 0 ] || [ "$failed" != 0 ] || failed=1
	cb_count "$passed" "$failed"
	cb_say "$1: $passed passed, $failed failed"
	if [ "$failed" != 0 ]; then
		cb_failures+=("$1: $failed")
		grep -E '^not ok|NOT CAUGHT' "$2" | sed 's/^/    | /' || true
	fi
}

cb_suite_unit()
{
	local log=$CB_WORK/unit.log tests status=0

	mapfile -t tests < <(cb_asked_tests unit)
	cp -a "$CB_TREE" "$CB_WORK/build-unit"
	cb_limited make -j"$(nproc)" -C "$CB_WORK/build-unit/test/unit" check ONLY="${tests[*]}" \
		>"$log" 2>&1 || status=$?
	cb_count_closing_line unit "$log" "$status"
}

# Once as it is, and once with so small pools and thresholds that all levels
# are in use; with --full a short soak, which is too short to be judged.
cb_suite_stress()
{
	cb_stress_run "$1" "$2" "$3"
	cb_stress_run "$1, tiny" "$2" "$3" --tiny --run-min 8 --delta 4
	[ -z "${full:-}" ] || cb_soak_run "$1" "$2" "$3"
}

cb_soak_run()
{
	local log=$3/soak.log status=0

	cb_say "soak on $1: 2 parts of a minute"
	(cd "$3" && cb_limited python3 test/soak/soak.py --bindir "$("$2" --bindir)" --dir "$3/soak" \
		--parts 2 --minutes 1 --every 2 --rows 2000 --run-min 8 --delta 4) >"$log" 2>&1 || status=$?
	cb_stop_servers_under "$3/soak"
	if [ "$status" = 0 ]; then
		cb_pass "soak on $1"
		cb_say "soak on $1: $(tail -n 1 "$log")"
	else
		cb_fail "soak on $1 (exit status $status)" "$log"
	fi
}

cb_stress_run()
{
	local dir log=$3/stress.log status=0 seed=${CB_SEED:-1}

	dir=$(mktemp -d "$CB_WORK/stress.XXXX")
	cb_say "stress on $1: ${CB_STRESS_SECONDS:-30} s, seed $seed"
	(cd "$3" && cb_limited python3 test/stress/differential.py \
		--bindir "$("$2" --bindir)" --workdir "$dir" --seconds "${CB_STRESS_SECONDS:-30}" \
		--seed "$seed" "${@:4}") >"$log" 2>&1 || status=$?
	cb_stop_servers_under "$dir"
	if [ "$status" = 0 ]; then
		cb_pass "stress on $1 (seed $seed)"
		cb_say "stress on $1: $(tail -n 1 "$log")"
	else
		cb_fail "stress on $1 (seed $seed, exit status $status)" "$log"
	fi
}

# Damaged pages: some under a running server, and some under redo.
# CB_FUZZ_TRIES says how many.
cb_suite_fuzz()
{
	local tries=${CB_FUZZ_TRIES:-${full:+10000}}

	cb_fuzz_run "$1" "$2" "$3" --tries "${tries:-100}"
	cb_fuzz_run "$1, redo" "$2" "$3" --redo --tries "$((${tries:-100} / 10))"
}

cb_fuzz_run()
{
	local log=$3/fuzz.log status=0

	cb_say "fuzz on $1: seed ${CB_SEED:-1}"
	(cd "$3" && CB_SUITE_TIMEOUT=${CB_FUZZ_TIMEOUT:-${full:+14400}} cb_limited python3 test/fuzz/pages.py \
		--bindir "$("$2" --bindir)" --seed "${CB_SEED:-1}" "${@:4}") >"$log" 2>&1 || status=$?
	cb_stop_servers_under "$CB_WORK"
	cb_count_closing_line "fuzz on $1" "$log" "$status"
	[ "$status" = 0 ] || grep -m 20 FAILED "$log" | sed 's/^/    | /' || true
}

# What a sanitizer says ends the process, so a test fails.  Seconds are for slow
# machines: all is several times as slow.
cb_suite_sanitize()
{
	local cb_only=() CB_SUITE_TIMEOUT=${CB_SUITE_TIMEOUT:-7200} CB_TAP_TIMEOUT=${CB_TAP_TIMEOUT:-3600}
	local CB_STRESS_SECONDS=${CB_STRESS_SECONDS:-1800}

	cb_suite_regress "$1" "$2" "$3" points
	cb_suite_isolation "$1" "$2" "$3"
	cb_suite_stress "$1" "$2" "$3"
	cb_suite_tap "$1" "$2" "$3"
}

# Those whose memory valgrind looks at: builds, scans of each tier, flushes and runs,
# packing, staging, unique checks, VACUUM; short ones, as all is twenty times as slow.
CB_VALGRIND_TESTS="compact empty_journal entry_cache large packed ranges_points
	scan_points stage stage_points unique unlink upsert vacuum_skip"

# Each process of the server runs under valgrind, but for initdb's; it writes a log
# only of what it finds.
cb_suite_valgrind()
{
	local cb_only=() CB_SUITE_TIMEOUT=${CB_SUITE_TIMEOUT:-7200} suite="valgrind on $1"
	local bindir logs=$CB_WORK/valgrind
	bindir=$("$2" --bindir)

	# shellcheck disable=SC2086
	cb_only=($(printf 'regress:%s ' $CB_VALGRIND_TESTS))
	mkdir -p "$logs"
	mv "$bindir/postgres" "$bindir/postgres.checked"
	cat >"$bindir/postgres" <<-EOF
		#!/bin/sh
		case \$1 in
		-D) exec valgrind --quiet --trace-children=yes --leak-check=no --time-stamp=yes \\
			--log-file="$logs/%p.log" --suppressions="$3/test/valgrind.supp" \\
			"$bindir/postgres.checked" "\$@" ;;
		*) exec "$bindir/postgres.checked" "\$@" ;;
		esac
	EOF
	chmod +x "$bindir/postgres"
	cb_suite_regress "$1" "$2" "$3" points
	find "$logs" -type f -size +0 -exec cat {} + >"$logs/all"
	if [ -s "$logs/all" ]; then
		cb_fail "$suite: what it found" "$logs/all" 60
	else
		cb_pass "$suite: it found nothing"
	fi
}

# cb_suite_upgrade LABEL OLD NEW BUILD: pg_upgrade from one server to another one, of
# a cluster whose indexes have entries at every level: by copies of its files, and then
# by links to them, after which the old one must not be started any more.
cb_suite_upgrade()
{
	local suite="upgrade, $1" dir=$CB_WORK/upgrade sql=$4/test/upgrade old mode
	old=$("$2" --bindir)

	cb_say "$suite"
	rm -rf "$dir"
	mkdir -p "$dir"
	cp "$4/test/cache_batch.conf" "$dir/conf"
	cat "$4/test/no_workers.conf" >>"$dir/conf"
	# joined by &&: in a condition "set -e" ends nothing
	if ! (cb_server_init "$2" "$dir/old" <"$dir/conf" &&
		cb_server_start "$2" "$dir/old" &&
		"$old/psql" -XAtq -v ON_ERROR_STOP=1 -f "$sql/before.sql" &&
		"$old/psql" -XAtq -v ON_ERROR_STOP=1 -f "$sql/look.sql" >"$dir/old.out" &&
		cb_server_stop "$2" "$dir/old") >"$dir/log" 2>&1; then
		cb_fail "$suite: the old server" "$dir/log"
		return 0
	fi
	cb_upgrade_check "$suite: levels above the tree, an adopted operator class" "$dir/old.out" \
		'/^(runs|journal) [1-9]/ || /^linked 1/ { n++ } END { exit n != 3 }'
	for mode in copy link; do
		cb_upgrade_run "$suite, $mode" "$old" "$3" "$sql" "$mode"
	done
}

# cb_upgrade_run LABEL OLD_BINDIR NEW SQL MODE
cb_upgrade_run()
{
	local dir=$CB_WORK/upgrade sql=$4 new checksums=
	new=$("$3" --bindir)

	[[ $("$new/initdb" --help) != *no-data-checksums* ]] || checksums=--no-data-checksums
	rm -rf "$dir/new"
	if ! (CB_INITDB=$checksums cb_server_init "$3" "$dir/new" <"$dir/conf" &&
		cd "$dir" &&
		"$new/pg_upgrade" -U postgres -b "$2" -B "$new" -d old -D new -s "$CB_WORK/s" "--$5" &&
		cb_server_start "$3" "$dir/new" &&
		"$new/psql" -XAtq -v ON_ERROR_STOP=1 -f "$sql/look.sql" >"$dir/new.out" &&
		"$new/psql" -XAtq -v ON_ERROR_STOP=1 -f "$sql/after.sql" &&
		"$new/psql" -XAtq -v ON_ERROR_STOP=1 -f "$sql/look.sql" >"$dir/later.out" &&
		cb_server_stop "$3" "$dir/new") >"$dir/log" 2>&1; then
		cb_fail "$1" "$dir/log"
		return 0
	fi
	cb_upgrade_check "$1: all is found as before" "$dir/new.out" \
		"{ getline old <\"$dir/old.out\"; if (\$0 != old) exit 1 }"
	cb_upgrade_check "$1: the new server goes on" "$dir/later.out" \
		'/^table/ { t = $2 " " $3 } /^up_[kt]/ { n += $2 " " $3 == t } /^sound 4/ { n++ } END { exit n != 3 }'
}

# cb_upgrade_check NAME FILE PROGRAM: an awk program is content with the file.
cb_upgrade_check()
{
	if awk "$3" "$2"; then
		cb_pass "$1"
	else
		cb_fail "$1" "$2"
	fi
}

cb_suite_mutate()
{
	local log=$CB_WORK/mutate.log status=0

	cb_say "mutate"
	(cd "$CB_TREE" && bash test/mutate --pg-config "$2") >"$log" 2>&1 ||
		status=$?
	cb_count_closing_line mutate "$log" "$status"
}

# Each check in test/lint is a program that prints what it dislikes.
# $1 a pg_config, $2 a build directory compiled for it.
cb_suite_lint()
{
	local name log status

	for name in $(cb_asked_tests lint); do
		log=$CB_WORK/lint-$name.log
		status=0
		(cd "$CB_TREE" && PG_CONFIG=$1 CB_BUILT=$2 bash "test/lint/$name") >"$log" 2>&1 || status=$?
		if [ "$status" = 0 ]; then
			cb_pass "lint: $name"
			grep '^warning:' "$log" | head -n 20 | sed 's/^/    | /' || true
		else
			cb_fail "lint: $name" "$log" 60
		fi
	done
	cb_say "lint: done"
}
