#!/bin/sh
# Runs a team on what a change touches, headless. The exit code is the job's:
#   0 fine · 1 a blocker was found, or the run failed · 6 the team file · 7 a budget · 8 a person is needed · 124 no time left
# Settings come from the environment: LONGHAUL (the program), TEAM, BASE, MAX_COST, MAX_TOKENS, TIMEOUT.
set -u
longhaul=${LONGHAUL:-longhaul}
team=${TEAM:-$(dirname "$0")/team.yaml}
base=${BASE:-origin/main}
error() { echo "::error title=Longhaul::$1" >&2; } # how GitHub shows an error; elsewhere it is a line like any other

set -- run "$team" - --json --unattended stop --timeout "${TIMEOUT:-20m}" --max-cost "${MAX_COST:-2}"
[ -z "${MAX_TOKENS:-}" ] || set -- "$@" --max-tokens "$MAX_TOKENS"
{
    echo "Review this change. Begin a line with BLOCKER: for each thing that must not be merged."
    git diff --stat "$base"...HEAD 2>/dev/null || true
} | "$longhaul" "$@" >events.jsonl
code=$?

# The last event is the end of the root; its output is the answer.
answer=$(tail -n 1 events.jsonl | jq -r '.output // empty' 2>/dev/null)
printf '%s\n' "$answer"
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    printf '%s\n' "$answer" >>"$GITHUB_STEP_SUMMARY"
fi
if [ "$code" -ne 0 ]; then
    error "the run ended with exit code $code"
    exit "$code"
fi
if printf '%s\n' "$answer" | grep -q '^BLOCKER:'; then
    error "$(printf '%s\n' "$answer" | grep -m 1 '^BLOCKER:')"
    exit 1
fi
