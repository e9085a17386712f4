#!/usr/bin/env bash
# Runs fuzz targets one after another, each in one process, until it has used so much time of the processor: what else the
# machine does meanwhile takes nothing away.
#
#   fuzz/run.sh                       all targets, 600 seconds each
#   CPU_SECONDS=60 fuzz/run.sh sse    one of them, for a minute
#
# Wants a nightly toolchain and cargo-fuzz (`cargo install cargo-fuzz`). Seeds are the streams and team files of our own tests,
# and what is in fuzz/given. What was learned stays in fuzz/corpus, what is wrong in fuzz/artifacts, and what was seen in the
# target directory, under logs.
set -euo pipefail
cd "$(dirname "$0")"
each=${CPU_SECONDS:-600}
targets=("$@")
[ ${#targets[@]} -gt 0 ] ||
    targets=(sse openai_chat openai_responses anthropic gemini teamfile permission interpolation)
built=${CARGO_TARGET_DIR:-$PWD/target}
logs=$built/logs
mkdir -p "$logs"

if [ ! -d seeds/sse ]; then
    echo "== seeds"
    (cd .. && LONGHAUL_FUZZ_SEEDS=$PWD/fuzz/seeds cargo test -p longhaul --lib --quiet model::wire >/dev/null)
fi
mkdir -p seeds/teamfile
cp -f ../examples/teams/*.yaml ../crates/longhaul/tests/teams/*.yaml ../crates/longhaul/tests/teams/*/*.yaml seeds/teamfile/

# Without a sanitizer: there is no unsafe code here, and what is looked for shows without one.
[ -n "${BUILT:-}" ] || cargo +nightly fuzz build --sanitizer none
hz=$(getconf CLK_TCK)

for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "seeds/$target" "artifacts/$target" "given/$target"
    log=$logs/fuzz-$target.log
    dict=()
    [ ! -f "given/$target.dict" ] || dict=(-dict="given/$target.dict")
    # The time-out is one of the clock, and only for what never ends; the targets themselves look at the processor's time.
    RUST_BACKTRACE=0 nice -n "${NICE:-19}" "$built/x86_64-unknown-linux-gnu/release/$target" -fork=0 -max_len=8192 \
        -timeout=600 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="artifacts/$target/" "${dict[@]}" \
        "corpus/$target" "seeds/$target" "given/$target" >"$log" 2>&1 &
    pid=$!
    trap 'kill "$pid" 2>/dev/null || true' EXIT
    used=0
    while [ "$used" -lt $((each * hz)) ] && stat=$(cat "/proc/$pid/stat" 2>/dev/null); do
        read -r -a fields <<<"${stat##*) }"
        used=$((fields[11] + fields[12]))
        sleep 2
    done
    kill -USR1 "$pid" 2>/dev/null || true
    wait "$pid" || { tail -40 "$log"; exit 1; }
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$target: $((used / hz)) s of the processor, $runs runs, $(find "corpus/$target" -type f | wc -l) in the corpus"
done
