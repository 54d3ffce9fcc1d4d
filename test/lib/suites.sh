# suites.sh: one function a suite; each counts every test that it ran.
#
# A suite gets: $1 label of the server, $2 pg_config of a private copy with
# the extension installed, $3 the build directory (a copy of the tree), and
# regress $4 not empty if the build has test points.

cb_passed=0
cb_failed=0
cb_skipped=0
cb_failures=()

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

cb_pgxs_test_dir()
{
	echo "$(dirname "$("$1" --pgxs)")/../test"
}

cb_limited()
{
	timeout -k 20 "${CB_SUITE_TIMEOUT:-1500}" "$@"
}

# If no input file creates the extension itself, the runner does.
cb_load_option()
{
	grep -qiE 'create extension( if not exists)? cache_batch' "$@" ||
		echo --load-extension=cache_batch
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

# Every sql/*.sql that is no install script; those that set things up first.
# Names that end in _points need a build with test points ($2).
cb_regress_tests()
{
	local dir=$1 points=$2 first f

	for first in init setup extension; do
		[ ! -e "$dir/sql/$first.sql" ] || echo "$first"
	done
	for f in "$dir"/sql/*.sql; do
		f=$(basename "$f" .sql)
		case $f in
			*--* | init | setup | extension | '*') ;;
			*_points) [ -z "$points" ] || echo "$f" ;;
			*) echo "$f" ;;
		esac
	done
}

cb_suite_regress()
{
	local suite="regress on $1" out=$3/out_regress tests status=0
	local f inputs=()

	mapfile -t tests < <(cb_regress_tests "$3" "${4:-}")
	if [ ${#tests[@]} = 0 ]; then
		cb_skip "$suite: no sql/*.sql"
		return 0
	fi
	cb_say "$suite: ${#tests[@]} files"
	mkdir -p "$out"
	# pg_regress gives up altogether at a missing expected output
	for f in "${tests[@]}"; do
		[ -e "$3/expected/$f.out" ] || : >"$3/expected/$f.out"
		inputs+=("$3/sql/$f.sql")
	done
	# shellcheck disable=SC2046
	cb_limited "$(cb_pgxs_test_dir "$2")/regress/pg_regress" \
		--bindir="$("$2" --bindir)" --inputdir="$3" --outputdir="$out" \
		--temp-instance="$out/instance" --encoding=UTF8 \
		--temp-config="$3/test/cache_batch.conf" \
		--temp-config="$3/test/no_workers.conf" \
		--dbname=contrib_regression \
		$(cb_load_option "${inputs[@]}") \
		"${tests[@]}" >"$out/run.log" 2>&1 || status=$?
	cb_stop_servers_under "$out"
	cb_count_regress "$suite" "$out/run.log" "$status" "$out"
}

cb_suite_isolation()
{
	local suite="isolation on $1" dir=$3/test/isolation out=$3/out_isolation
	local tests f status=0

	mapfile -t tests < <(cd "$dir/specs" 2>/dev/null && ls ./*.spec 2>/dev/null |
		sed 's,^\./,,; s,\.spec$,,')
	if [ ${#tests[@]} = 0 ]; then
		cb_skip "$suite: no test/isolation/specs/*.spec"
		return 0
	fi
	cb_say "$suite: ${#tests[@]} specs"
	mkdir -p "$out"
	for f in "${tests[@]}"; do
		[ -e "$dir/expected/$f.out" ] || : >"$dir/expected/$f.out"
	done
	# shellcheck disable=SC2046
	cb_limited "$(cb_pgxs_test_dir "$2")/isolation/pg_isolation_regress" \
		--bindir="$("$2" --bindir)" --inputdir="$dir" --outputdir="$out" \
		--temp-instance="$out/instance" --encoding=UTF8 \
		--temp-config="$3/test/cache_batch.conf" \
		--temp-config="$3/test/no_workers.conf" \
		--dbname=isolation_regression \
		$(cb_load_option "$dir"/specs/*.spec) \
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
	elif [ "$ok" = 0 ] && ! grep -q '# SKIP\|# skip' "$log"; then
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

cb_suite_tap()
{
	local perl out=$3/out_tap f name status started
	perl=$(cb_pgxs_test_dir "$2")/perl

	if ! ls "$3"/test/t/*.pl >/dev/null 2>&1; then
		cb_skip "tap on $1: no test/t/*.pl"
		return 0
	fi
	if [ ! -d "$perl/PostgreSQL/Test" ]; then
		cb_skip "tap on $1: server was built without --enable-tap-tests"
		return 0
	fi
	mkdir -p "$out"
	for f in "$3"/test/t/*.pl; do
		name=$(basename "$f" .pl)
		status=0
		started=$(date +%s%N)
		(cd "$3/test" &&
			PATH="$("$2" --bindir):$PATH" TESTDIR="$out/$name" \
			TEMP_CONFIG="$3/test/cache_batch.conf" \
			PG_REGRESS="$(cb_pgxs_test_dir "$2")/regress/pg_regress" \
			CB_SRCDIR="$3" \
			CB_SUITE_TIMEOUT="${CB_TAP_TIMEOUT:-900}" \
			bash -c 'mkdir -p "$TESTDIR" && exec timeout -k 20 "$@"' - \
			"${CB_TAP_TIMEOUT:-900}" \
			prove -v --norc -I "$perl" -I "$3/test/perl" -I "$3/test/t" \
			"t/$name.pl") >"$out/$name.log" 2>&1 || status=$?
		cb_stop_servers_under "$out"
		cb_count_tap "tap on $1: $name ($(cb_since "$started") s)" \
			"$out/$name.log" "$status"
		cb_tap_logs "$out/$name" "$status"
	done
}

cb_suite_pgtap()
{
	local out=$3/out_pgtap f name status

	if ! ls "$3"/test/pgtap/*.sql >/dev/null 2>&1; then
		cb_skip "pgtap on $1: no test/pgtap/*.sql"
		return 0
	fi
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
	for f in "$3"/test/pgtap/*.sql; do
		name=$(basename "$f" .sql)
		status=0
		{
			"$("$2" --bindir)/createdb" "pgtap_$name" &&
				cb_limited pg_prove --verbose --dbname "pgtap_$name" \
					--psql-bin "$("$2" --bindir)/psql" "$f"
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
	local log=$CB_WORK/unit.log status=0

	if [ ! -e "$CB_TREE/test/unit/Makefile" ]; then
		cb_skip "unit: no test/unit/Makefile"
		return 0
	fi
	cp -a "$CB_TREE" "$CB_WORK/build-unit"
	cb_limited make -C "$CB_WORK/build-unit/test/unit" check \
		>"$log" 2>&1 || status=$?
	cb_count_closing_line unit "$log" "$status"
}

# Once as it is, and once with so small pools and thresholds that all levels
# are in use.
cb_suite_stress()
{
	if [ ! -e "$3/test/stress/differential.py" ]; then
		cb_skip "stress on $1: no test/stress/differential.py"
		return 0
	fi
	cb_stress_run "$1" "$2" "$3"
	cb_stress_run "$1, tiny" "$2" "$3" --tiny --run-min 8 --tail 4
}

cb_stress_run()
{
	local log=$3/stress.log status=0 seed=${CB_SEED:-1}

	cb_say "stress on $1: ${CB_STRESS_SECONDS:-60} s, seed $seed"
	(cd "$3" && cb_limited python3 test/stress/differential.py \
		--bindir "$("$2" --bindir)" --seconds "${CB_STRESS_SECONDS:-60}" \
		--seed "$seed" "${@:4}") >"$log" 2>&1 || status=$?
	cb_stop_servers_under "$CB_WORK"
	if [ "$status" = 0 ]; then
		cb_pass "stress on $1 (seed $seed)"
		cb_say "stress on $1: $(tail -n 1 "$log")"
	else
		cb_fail "stress on $1 (seed $seed, exit status $status)" "$log"
	fi
}

cb_suite_mutate()
{
	local log=$CB_WORK/mutate.log status=0

	if [ ! -e "$CB_TREE/test/mutate" ]; then
		cb_skip "mutate: no test/mutate"
		return 0
	fi
	cb_say "mutate"
	(cd "$CB_TREE" && bash test/mutate --pg-config "$2") >"$log" 2>&1 ||
		status=$?
	cb_count_closing_line mutate "$log" "$status"
}

# Each check in test/lint is a program that prints what it dislikes.
# $1 a pg_config, $2 a build directory compiled for it.
cb_suite_lint()
{
	local f name log status

	for f in "$CB_TREE"/test/lint/*; do
		[ -f "$f" ] || continue
		name=$(basename "$f")
		log=$CB_WORK/lint-$name.log
		status=0
		(cd "$CB_TREE" && PG_CONFIG=$1 CB_BUILT=$2 bash "$f") >"$log" 2>&1 || status=$?
		if [ "$status" = 0 ]; then
			cb_pass "lint: $name"
			grep '^warning:' "$log" | head -n 20 | sed 's/^/    | /' || true
		else
			cb_fail "lint: $name" "$log" 60
		fi
	done
	cb_say "lint: done"
}
