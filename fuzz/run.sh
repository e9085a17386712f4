#!/usr/bin/env bash
# Runs fuzz targets one after another, each in one process.
#
#   fuzz/run.sh                       all targets, 600 seconds each
#   SECONDS_EACH=60 fuzz/run.sh sse   one of them, for a minute
#
# Wants a nightly toolchain and cargo-fuzz (`cargo install cargo-fuzz`). Seeds are the streams of our own tests. What was
# learned stays in fuzz/corpus, what is wrong in fuzz/artifacts, and what was seen in fuzz/target/logs.
set -euo pipefail
cd "$(dirname "$0")"
each=${SECONDS_EACH:-600}
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(sse openai_chat openai_responses anthropic gemini)

if [ ! -d seeds ]; then
    echo "== seeds"
    (cd .. && LONGHAUL_FUZZ_SEEDS=$PWD/fuzz/seeds cargo test -p longhaul --lib --quiet model::wire >/dev/null)
fi
logs=${CARGO_TARGET_DIR:-$PWD/target}/logs
mkdir -p "$logs"
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "seeds/$target"
    echo "== $target, $each s"
    # Without a sanitizer: there is no unsafe code here, and what is looked for shows without one.
    nice -n 19 cargo +nightly fuzz run --sanitizer none "$target" "corpus/$target" "seeds/$target" -- \
        -fork=0 -max_total_time="$each" -max_len=8192 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        >"$logs/fuzz-$target.log" 2>&1 || { tail -40 "$logs/fuzz-$target.log"; exit 1; }
    grep -E '^#[0-9]+.*DONE|number_of_executed_units|peak_rss_mb' "$logs/fuzz-$target.log"
done
