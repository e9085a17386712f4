#!/usr/bin/env bash
# Runs fuzz targets, one process at a time, until each has used so much time of the processor: what else the machine does
# meanwhile takes nothing away. They take turns, and what was used is kept in the logs, so that a run can be broken off and
# gone on with.
#
#   fuzz/run.sh                             all targets, 600 seconds each
#   CPU_SECONDS=60 AFRESH=1 fuzz/run.sh sse   one of them, for a minute, whatever was run before
#
# Wants a nightly toolchain and cargo-fuzz (`cargo install cargo-fuzz`). Seeds are the streams and team files of our own tests,
# and what is in fuzz/given. What was learned stays in fuzz/corpus, what is wrong in fuzz/artifacts, and what was seen in the
# target directory, under logs.
set -euo pipefail
cd "$(dirname "$0")"
each=${CPU_SECONDS:-600}
slice=${SLICE:-60}
targets=("$@")
[ ${#targets[@]} -gt 0 ] ||
    targets=(sse openai_chat openai_responses anthropic gemini teamfile permission interpolation)
built=${CARGO_TARGET_DIR:-$PWD/target}
logs=$built/logs
hz=$(getconf CLK_TCK)
mkdir -p "$logs"

if [ ! -d seeds/sse ]; then
    echo "== seeds"
    (cd .. && LONGHAUL_FUZZ_SEEDS=$PWD/fuzz/seeds cargo test -p longhaul --lib --quiet model::wire >/dev/null)
fi
mkdir -p seeds/teamfile
cp -f ../examples/teams/*.yaml ../crates/longhaul/tests/teams/*.yaml ../crates/longhaul/tests/teams/*/*.yaml seeds/teamfile/

# Without a sanitizer: there is no unsafe code here, and what is looked for shows without one.
[ -n "${BUILT:-}" ] || cargo +nightly fuzz build --sanitizer none

pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true' EXIT

# One process, for a slice.
turn() {
    local target=$1 most=$2 log=$logs/fuzz-$1.log dict=() stat fields
    mkdir -p "corpus/$target" "seeds/$target" "artifacts/$target" "given/$target"
    [ ! -f "given/$target.dict" ] || dict=(-dict="given/$target.dict")
    # The time-out is one of the clock, and only for what never ends; the targets themselves look at the processor's time.
    RUST_BACKTRACE=0 nice -n "${NICE:-19}" "$built/x86_64-unknown-linux-gnu/release/$target" -fork=0 -max_len=8192 \
        -timeout=1200 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="artifacts/$target/" "${dict[@]}" \
        "corpus/$target" "seeds/$target" "given/$target" >"$log" 2>&1 &
    pid=$!
    used=0
    while [ "$used" -lt "$most" ] && stat=$(cat "/proc/$pid/stat" 2>/dev/null); do
        read -r -a fields <<<"${stat##*) }"
        [ "${fields[0]}" != Z ] || break
        used=$((fields[11] + fields[12]))
        sleep 2
    done
    kill -USR1 "$pid" 2>/dev/null || true
    wait "$pid" || { tail -40 "$log"; exit 1; }
    pid=
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
}

going=1
for target in "${targets[@]}"; do
    [ -z "${AFRESH:-}" ] || rm -f "$logs/$target.sum"
done
while [ "$going" = 1 ]; do
    going=0
    for target in "${targets[@]}"; do
        sum=$logs/$target.sum all=0 ran=0
        [ ! -f "$sum" ] || read -r all ran <"$sum"
        left=$((each * hz - all))
        [ "$left" -gt 0 ] || continue
        going=1
        turn "$target" $((left < slice * hz ? left : slice * hz))
        echo "$((all + used)) $((ran + runs))" >"$sum"
        echo "$target: $(((all + used) / hz)) s of the processor, $((ran + runs)) runs, $(find "corpus/$target" -type f | wc -l) in the corpus"
    done
done
