"""The official conformance suite, against `longhaul serve` and against the same stack with the suite's fixtures."""

import contextlib
import json
import os
import pathlib
import re
import socket
import socketserver
import subprocess
import sys
import threading

from scenario import LONGHAUL, MODULES, ROOT, Scenario

NODE = str(MODULES / "node/bin/node")
NEWEST = str(MODULES / "@modelcontextprotocol/conformance/dist/index.js")
OLDER = str(MODULES / "conformance-2025/dist/index.js")
FIXTURE = os.environ.get("LONGHAUL_CONFORMANCE", str(ROOT / "target/debug/examples/mcp_conformance"))

# What needs no fixtures.
REAL_NEWEST = ["server-stateless", "tools-list", "dns-rebinding-protection", "caching", "http-header-validation",
               "resources-list", "sep-2164-resource-not-found"]
REAL_OLDER = ["server-initialize", "ping", "tools-list", "resources-list", "dns-rebinding-protection"]


@contextlib.contextmanager
def fixture():
    """The same stack with the tools that the suite calls. Gives its URL."""
    process = subprocess.Popen([FIXTURE], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def real():
    """`longhaul serve` as it is, guard included. Gives the URL of a proxy that adds the token: the suite cannot."""
    scenario = Scenario("conformance")
    command = [LONGHAUL, "--data", str(scenario.data), "serve", "--team", "team.yaml", "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, cwd=scenario.project, env=scenario.env, stdout=subprocess.PIPE, text=True)
    try:
        started = json.loads(process.stdout.readline())
        token = pathlib.Path(started["token_file"]).read_text().strip()
        host, port = started["url"].removeprefix("http://").split(":")
        yield f"http://127.0.0.1:{token_proxy(host, int(port), token)}/mcp"
    finally:
        process.terminate()
        assert process.wait(30) == 0, "it drains"
        scenario.end()


def token_proxy(host, port, token):
    """Passes each request on with the token. Hosts and origins stay as they are, but for our own port. Returns the port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            head = b""
            while b"\r\n\r\n" not in head:
                more = self.request.recv(65536)
                if not more:
                    return
                head += more
            head, body = head.split(b"\r\n\r\n", 1)
            own, theirs = b":%d" % self.server.server_address[1], b":%d" % port
            first, *lines = head.split(b"\r\n")
            lines = [line.replace(own, theirs) for line in lines if not line.lower().startswith(b"connection:")]
            lines += [b"Connection: close", b"Authorization: Bearer " + token.encode()]
            with socket.create_connection((host, port)) as server:
                server.sendall(b"\r\n".join([first, *lines]) + b"\r\n\r\n" + body)
                threading.Thread(target=pass_on, args=(self.request, server), daemon=True).start()
                pass_on(server, self.request)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def pass_on(source, target):
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


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
    with fixture() as url:
        for name, suite, args in (("2026-07-28", NEWEST, ["--requirements", "2026-07-28"]),
                                  ("2025-11-25", OLDER, ["--suite", "active"])):
            text = run(suite, url, *args)
            print(f"conformance {name}, fixture: {summary(text)}")
            wrong += failures(text)
    with real() as url:
        for name, suite, scenarios, args in (("2026-07-28", NEWEST, REAL_NEWEST, ["--spec-version", "2026-07-28"]),
                                             ("2025-11-25", OLDER, REAL_OLDER, [])):
            results = [single(suite, url, scenario, *args) for scenario in scenarios]
            passed = sum(1 for _, _, failed, _, _ in results if failed == 0)
            checks, skipped = sum(result[1] for result in results), sum(result[3] for result in results)
            print(f"conformance {name}, longhaul serve: {passed} of {len(results)} scenarios, {checks} checks passed, "
                  f"{skipped} need fixtures")
            wrong += [f"{name}: {scenario}\n{text}" for scenario, _, failed, _, text in results if failed]
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    sys.exit(main())
