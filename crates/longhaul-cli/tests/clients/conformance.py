"""The official conformance suite, against the real server and against the same stack with the suite's fixtures."""

import os
import re
import subprocess
import sys

from scenario import MODULES, ROOT

NODE = str(MODULES / "node/bin/node")
NEWEST = str(MODULES / "@modelcontextprotocol/conformance/dist/index.js")
OLDER = str(MODULES / "conformance-2025/dist/index.js")
SERVER = os.environ.get("LONGHAUL_CONFORMANCE", str(ROOT / "target/debug/examples/mcp_conformance"))

# What needs no fixtures.
REAL_NEWEST = ["server-stateless", "tools-list", "dns-rebinding-protection", "caching", "http-header-validation",
               "resources-list", "sep-2164-resource-not-found"]
REAL_OLDER = ["server-initialize", "ping", "tools-list", "resources-list", "dns-rebinding-protection"]


class Server:
    def __init__(self, kind):
        self.process = subprocess.Popen([SERVER, kind], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def __enter__(self):
        return self.url

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def run(suite, url, *args):
    """Runs scenarios. Returns what the suite printed."""
    done = subprocess.run([NODE, suite, "server", "--url", url, *args], capture_output=True, text=True, timeout=600)
    return done.stdout + done.stderr


def failures(text):
    return [line for line in text.splitlines() if line.startswith("✗")]


def summary(text):
    scenarios = re.findall(r"^([✓✗]) ([\w-]+): (\d+) passed, (\d+) failed", text, re.M)
    assert scenarios, text
    passed = sum(1 for mark, *_ in scenarios if mark == "✓")
    checks, failed = sum(int(s[2]) for s in scenarios), sum(int(s[3]) for s in scenarios)
    return f"{passed} of {len(scenarios)} scenarios, {checks} checks passed, {failed} failed"


def single(suite, url, scenario, *args):
    text = run(suite, url, "--scenario", scenario, *args)
    found = re.search(r"Passed: (\d+)/(\d+), (\d+) failed", text)
    assert found, text
    # Some checks need a fixture tool, and say so.
    skipped = text.count("Error: Not testable:")
    return scenario, int(found.group(1)), int(found.group(3)) - skipped, skipped, text


def main():
    wrong = []
    with Server("fixture") as url:
        for name, suite, args in (("2026-07-28", NEWEST, ["--requirements", "2026-07-28"]),
                                  ("2025-11-25", OLDER, ["--suite", "active"])):
            text = run(suite, url, *args)
            print(f"conformance {name}, fixture: {summary(text)}")
            wrong += failures(text)
    with Server("real") as url:
        for name, suite, scenarios, args in (("2026-07-28", NEWEST, REAL_NEWEST, ["--spec-version", "2026-07-28"]),
                                             ("2025-11-25", OLDER, REAL_OLDER, [])):
            results = [single(suite, url, scenario, *args) for scenario in scenarios]
            passed = sum(1 for _, _, failed, _, _ in results if failed == 0)
            checks, skipped = sum(result[1] for result in results), sum(result[3] for result in results)
            print(f"conformance {name}, real server: {passed} of {len(results)} scenarios, {checks} checks passed, "
                  f"{skipped} need fixtures")
            wrong += [f"{name}: {scenario}\n{text}" for scenario, _, failed, _, text in results if failed]
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    sys.exit(main())
