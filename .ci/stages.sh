# Runs commands as stages that do not end the script, and ends with a table of them. For .ci/run and .ci/nightly.
# shellcheck shell=bash

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=()
table=

# A compiler that collects no garbage computes a fifth less. The limit is for each of its processes, of which one in a hundred comes near it.
compile=(env GOGC=off GOMEMLIMIT=2GiB)

# row STAGE OUTCOME [SECONDS] adds a line to the table.
row() { table+=$(printf '%-14s %6s  %s' "$1" "${3:--}" "$2")$'\n'; }

# stage NAME COMMAND... runs a stage and returns its status.
stage() {
	local name=$1 began=$SECONDS status
	shift
	printf '\nci: %s: %s\n' "$name" "$*"
	"$@" 2>&1 | tee "$logs/$name"
	status=${PIPESTATUS[0]}
	if [[ $status == 0 ]]; then
		row "$name" passed $((SECONDS - began))
	else
		row "$name" "FAILED (exit $status)" $((SECONDS - began))
		failed+=("$name")
	fi
	return "$status"
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
