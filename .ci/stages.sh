# Runs commands as stages that do not end the script, and ends with a table of them. For .ci/run and .ci/nightly.
# shellcheck shell=bash

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=()
table=
declare -A pids # of the stages that run beside others

# A compiler that collects no garbage computes a fifth less. The limit is for each of its processes, of which one in a hundred comes near it.
compile=(env GOGC=off GOMEMLIMIT=2GiB)

# row STAGE OUTCOME [SECONDS] adds a line to the table.
row() { table+=$(printf '%-14s %6s  %s' "$1" "${3:--}" "$2")$'\n'; }

# outcome NAME STATUS SECONDS adds the line of a stage to the table, and returns its status.
outcome() {
	if [[ $2 == 0 ]]; then
		row "$1" passed "$3"
	else
		row "$1" "FAILED (exit $2)" "$3"
		failed+=("$1")
	fi
	return "$2"
}

# stage NAME COMMAND... runs a stage and returns its status.
stage() {
	local name=$1 began=$SECONDS
	shift
	printf '\nci: %s: %s\n' "$name" "$*"
	"$@" 2>&1 | tee "$logs/$name"
	outcome "$name" "${PIPESTATUS[0]}" $((SECONDS - began))
}

# beside NAME COMMAND... begins a stage that takes the time that others leave: tests wait more than they compute.
beside() {
	local name=$1
	shift
	printf '\nci: %s, beside what follows: %s\n' "$name" "$*"
	(
		began=$SECONDS
		nice -n 19 "$@" >"$logs/$name" 2>&1
		status=$?
		echo "$status $((SECONDS - began))" >"$logs/$name.status"
		printf '\nci: %s has ended: exit %s\n' "$name" "$status"
	) &
	pids[$name]=$!
}

# await NAME shows a stage that began beside others once it has ended, and returns its status.
await() {
	local status seconds
	wait "${pids[$1]}"
	read -r status seconds <"$logs/$1.status"
	printf '\nci: %s:\n' "$1"
	cat "$logs/$1"
	outcome "$1" "$status" "$seconds"
}

# flaky lists the tests of make test that passed only when they were run once more.
flaky() { [[ ! -f .cache/flaky.txt ]] || awk '$2 > $4' .cache/flaky.txt; }

# summary prints the table, and then the lines of each failed stage that name a test or a package. It returns 1 if a stage failed.
summary() {
	local name
	[[ -z $(flaky) ]] || row flaky "$(flaky | wc -l) tests passed only when run once more"
	printf '\n%-14s %6s  %s\n%s' stage seconds outcome "$table"
	printf '%-14s %6s\n' total "$SECONDS"
	df -Ph . | awk 'NR == 2 {print "ci: " $4 " of disk are free"}' # a full disk looks like a test that fails
	flaky | sed 's/^/ci: flaky: /'
	for name in ${failed[@]+"${failed[@]}"}; do
		printf '\nci: %s failed:\n' "$name"
		grep -aE '^ *--- FAIL: |^=== FAIL: |^FAIL[[:space:]]+[^[:space:]]|^panic: |^(vet: )?[^ :]+\.go:[0-9]+(:[0-9]+)?: |^not formatted|^make.*Error |: error: |did not build|DATA RACE' "$logs/$name" |
			awk '!seen[$0]++' | head -n 40 | grep . || tail -n 20 "$logs/$name"
	done
	[[ ${#failed[@]} == 0 ]]
}
