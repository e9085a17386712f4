"""Runs all scenarios at the same time: real MCP clients from npm with played models behind them, and the conformance suite."""

import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = ["claude", "codex", "opencode", "conformance", "acp_agents", "acp_editors", "acp_example"]


def main(names):
    begun = time.monotonic()
    running = {name: subprocess.Popen([sys.executable, "-u", str(HERE / f"{name}.py")], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True) for name in names}
    failed = []
    for name, process in running.items():
        out, _ = process.communicate(timeout=900)
        print(out.rstrip(), flush=True)
        if process.returncode != 0:
            failed.append(name)
    print(f"{len(names) - len(failed)} of {len(names)} passed in {time.monotonic() - begun:.0f} s")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:] or SCENARIOS)
