#!/usr/bin/env python3
"""Three `longhaul serve` in three network namespaces share 300 tasks in one PostgreSQL database, over TLS.

Each of them is killed once, and one is cut off from the database for three leases in the middle of tools that must not be repeated, and
healed. Then every task has ended once, every parent has one letter about each child, no tool ran twice, no tool of the process that was cut off acted
after its lease, and what that process wrote late was refused.

    cargo build -p longhaul-cli --features postgres
    sudo python3 bench/tests/fleet_netns.py [path of longhaul]

Needs root (namespaces, and PostgreSQL runs as `nobody`), `ip`, `openssl`, and PostgreSQL's server programs. Says `skipped: why` otherwise.
"""

import concurrent.futures
import glob
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOTS, CHILDREN = 100, 2
LEASE = 5.0
NAMES = ["a", "b", "c"]
NET = f"lh{os.getpid() % 10000}"
SUBNET = "10.213.77"
PORT = 55432

TEAM = """
permissions: {allow: [shell]}
agents:
  root:
    model: play
    description: Sends out workers.
    instruction: Send them.
    sub_agents: [worker]
    toolsets: [{type: background_agents}]
  worker:
    model: play
    description: Works.
    instruction: Work.
    toolsets: [{type: shell}]
models:
  play:
    provider: scripted
    script: |
      agents:
        root:
          turns:
            - calls:
                - { tool: run_background_agent, arguments: { agent: worker, task: "{{ task }}-0" } }
                - { tool: run_background_agent, arguments: { agent: worker, task: "{{ task }}-1" } }
            - text: waiting
          otherwise: { text: "all: {{ find_all('DID (\\\\S+)') | length }}" }
        worker:
          turns:
            - calls: [{ tool: shell, arguments: { cmd: "sh TOOL {{ task }}", timeout: 60 } }]
            - text: "DID {{ task }}"
"""

TOOL = """
log() { echo "$1 $2 $$ $(date +%s.%N)" >> LEDGER; }
log start "$1"
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.4; log tick "$1"; done
log end "$1"
"""


def skip(why):
    print(f"skipped: fleet_netns: {why}")
    sys.exit(0)


def sh(*args, **kw):
    return subprocess.run(args, check=True, text=True, capture_output=True, **kw).stdout


class Fleet:
    def __init__(self, longhaul, work):
        self.longhaul, self.work = longhaul, work
        self.postgres, self.servers = None, {}
        self.ledger = work / "ledger"

    def network(self):
        bridge = f"{NET}br"
        sh("ip", "link", "add", bridge, "type", "bridge")
        sh("ip", "addr", "add", f"{SUBNET}.1/24", "dev", bridge)
        sh("ip", "link", "set", bridge, "up")
        for number, name in enumerate(NAMES, 2):
            space = f"{NET}{name}"
            sh("ip", "netns", "add", space)
            sh("ip", "link", "add", f"{NET}v{name}", "type", "veth", "peer", "name", "eth0", "netns", space)
            sh("ip", "link", "set", f"{NET}v{name}", "master", bridge, "up")
            for args in (["link", "set", "lo", "up"], ["addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0"],
                         ["link", "set", "eth0", "up"]):
                sh("ip", "-n", space, *args)

    def cut(self, name, off):
        sh("ip", "link", "set", f"{NET}v{name}", "down" if off else "up")

    def certificates(self):
        def run(*args):
            sh("openssl", *args, cwd=self.work)
        run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test ca",
            "-addext", "basicConstraints=critical,CA:TRUE")
        run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=db")
        (self.work / "ext").write_text(f"subjectAltName=IP:{SUBNET}.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n")
        run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext",
            "-out", "server.pem")

    def database(self, programs):
        nobody = pwd.getpwnam("nobody")
        data = self.work / "pg"
        data.mkdir(mode=0o700)
        os.chown(data, nobody.pw_uid, nobody.pw_gid)
        as_nobody = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": "/"}
        (self.work / "password").write_text("hush")
        os.chmod(self.work / "password", 0o644)
        sh(f"{programs}/initdb", "-D", str(data), "-U", "longhaul", "-A", "scram-sha-256", "--pwfile", str(self.work / "password"), **as_nobody)
        for name in ("server.key", "server.pem"):
            shutil.copy(self.work / name, data / name)
            os.chown(data / name, nobody.pw_uid, nobody.pw_gid)
            os.chmod(data / name, 0o600)
        (data / "pg_hba.conf").write_text("hostssl all all 0.0.0.0/0 scram-sha-256\n")
        (data / "postgresql.auto.conf").write_text(
            f"listen_addresses = '{SUBNET}.1'\nport = {PORT}\nunix_socket_directories = ''\nssl = on\nssl_cert_file = 'server.pem'\n"
            "ssl_key_file = 'server.key'\nfsync = on\nmax_connections = 80\n")
        log = open(self.work / "pg.log", "w")
        self.postgres = subprocess.Popen([f"{programs}/postgres", "-D", str(data)], stdout=log, stderr=log, **as_nobody)
        self.url = f"postgres://longhaul:hush@{SUBNET}.1:{PORT}/postgres?sslrootcert={self.work}/ca.pem"
        for _ in range(100):
            done = subprocess.run([self.longhaul, "--data", str(self.work / "client"), "store", "migrate"], env=self.env(), text=True,
                                  capture_output=True)
            if done.returncode == 0:
                return
            time.sleep(0.2)
        sys.exit(f"the database does not start: {done.stderr}\n{(self.work / 'pg.log').read_text()}")

    def env(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": str(self.work), "LONGHAUL_STORE": self.url, "LONGHAUL_LEASE": str(LEASE), **more}

    def serve(self, name):
        data = self.work / name
        out = open(self.work / f"{name}.out", "a+")
        begin = out.seek(0, 2)
        err = open(self.work / f"{name}.err", "a")
        process = subprocess.Popen(
            ["ip", "netns", "exec", f"{NET}{name}", self.longhaul, "--data", str(data), "serve", "--json", "--trust", "--team",
             str(self.work / "team.yaml"), "--dir", str(self.work / "dir"), "--listen", "127.0.0.1:0"],
            stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=self.env(RUST_LOG="warn", LONGHAUL_HOST=name), cwd=self.work)
        deadline = time.time() + 60
        while time.time() < deadline:
            text = (self.work / f"{name}.out").read_text()[begin:]
            if "\n" in text:
                self.servers[name] = (process, json.loads(text.splitlines()[0])["url"])
                return
            if process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"{name} does not start: {(self.work / f'{name}.err').read_text()[-3000:]}")

    def kill(self, name):
        process, _ = self.servers[name]
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=10) == -signal.SIGKILL, "it was dead already"

    def submit(self, name, texts):
        token = next(iter(glob.glob(str(self.work / name / "access" / "token"))))
        config = self.work / f"{name}.curl"
        lines = [f'url = "{self.servers[name][1]}/api/v1/tasks"\nheader = "Authorization: Bearer {pathlib.Path(token).read_text().strip()}"\n'
                 f'header = "Content-Type: application/json"\nheader = "Idempotency-Key: {text}"\n'
                 f'data = "{{\\"task\\": \\"{text}\\"}}"\nfail-with-body\nsilent\nshow-error\noutput = "/dev/null"\n' for text in texts]
        config.write_text("next\n".join(lines))
        sh("ip", "netns", "exec", f"{NET}{name}", "curl", "-K", str(config), env={"PATH": os.environ["PATH"], "NO_PROXY": "*"})

    def ask(self, *args):
        out = sh(self.longhaul, "--data", str(self.work / "client"), *args, env=self.env())
        return [json.loads(line) for line in out.splitlines() if line.strip()]

    def runs(self):
        """The lines of the ledger: word, task, process, time."""
        text = self.ledger.read_text() if self.ledger.exists() else ""
        return [(word, task, pid, float(at)) for word, task, pid, at in (line.split() for line in text.splitlines())]

    def close(self):
        for process, _ in self.servers.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        if self.postgres is not None:
            self.postgres.send_signal(signal.SIGINT)
            self.postgres.wait(timeout=30)
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", f"{NET}{name}"], capture_output=True)
        subprocess.run(["ip", "link", "del", f"{NET}br"], capture_output=True)


def wait_for(what, holds, seconds=120):
    deadline = time.time() + seconds
    while not holds():
        if time.time() > deadline:
            raise AssertionError(f"waited in vain for: {what}")
        time.sleep(0.2)


def main():
    if os.geteuid() != 0:
        skip("it needs root for network namespaces")
    for program in ("ip", "openssl", "curl"):
        if shutil.which(program) is None:
            skip(f"there is no {program}")
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not programs:
        skip("there is no PostgreSQL server below /usr/lib/postgresql")
    longhaul = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/debug/longhaul")
    work = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-fleet-"))
    os.chmod(work, 0o755)
    fleet = Fleet(longhaul, work)
    try:
        run(fleet, programs[-1], work)
    finally:
        fleet.close()
    shutil.rmtree(work)


def run(fleet, programs, work):
    (work / "dir").mkdir()
    (work / "tool.sh").write_text(TOOL.replace("LEDGER", str(fleet.ledger)))
    (work / "team.yaml").write_text(TEAM.replace("TOOL", str(work / "tool.sh")))
    fleet.network()
    fleet.certificates()
    fleet.database(programs)
    for name in NAMES:
        fleet.serve(name)
    begun = time.time()
    for index, name in enumerate(NAMES):
        fleet.submit(name, [f"r{number}" for number in range(ROOTS) if number % 3 == index])
    print(f"{ROOTS} roots submitted in {time.time() - begun:.1f} s")

    started = lambda: sum(word == "start" for word, *_ in fleet.runs())
    wait_for("tools that run", lambda: started() >= 30)
    for name in ("a", "b"):
        fleet.kill(name)
        print(f"{time.time() - begun:5.1f} s: {name} killed after {started()} tools, and started again")
        fleet.serve(name)
        before = started()
        wait_for("more tools", lambda: started() >= min(before + 20, ROOTS * CHILDREN))

    # The tools of c that run at this moment are those of its process's tree.
    fleet.cut("c", True)
    cut = time.time()
    process = fleet.servers["c"][0]
    theirs = tree(process.pid)
    print(f"{cut - begun:5.1f} s: c cut off from the database, with {len(theirs)} processes below it")
    time.sleep(3 * LEASE)
    late = [at - cut for _, _, pid, at in fleet.runs() if int(pid) in theirs and at > cut]
    assert late, "c had no tool under way"
    print(f"        the last act of its tools came {max(late):.2f} s after the cut (lease: {LEASE} s)")
    assert max(late) < LEASE, "a tool of a process that was cut off went on after its lease"
    assert process.poll() is None, "it ended instead of waiting for the database"
    fleet.cut("c", False)
    print(f"{time.time() - begun:5.1f} s: c healed")

    def count(state):
        return sum(state(task) for task in fleet.ask("tasks", "--all", "--json"))
    wait_for("c at work again", lambda: count(lambda task: task["status"] == "running") > 0 or
             count(lambda task: task["status"] == "completed") == ROOTS * 3)
    time.sleep(LEASE)
    fleet.kill("c")
    print(f"{time.time() - begun:5.1f} s: c killed, and started again")
    fleet.serve("c")
    all_ended = lambda: count(lambda task: task["status"] in ("completed", "failed", "cancelled")) == ROOTS * (1 + CHILDREN)
    wait_for("the end of all tasks", all_ended, 300)
    print(f"{time.time() - begun:5.1f} s: all have ended")
    audit(fleet, cut)


def audit(fleet, cut):
    tasks = fleet.ask("tasks", "--all", "--json")
    assert len(tasks) == ROOTS * (1 + CHILDREN), f"{len(tasks)} tasks"
    assert all(task["status"] == "completed" for task in tasks), [task for task in tasks if task["status"] != "completed"][:3]
    attempts = sum(task["attempt"] for task in tasks)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        journals = list(pool.map(lambda task: fleet.ask("logs", task["id"], "--json"), tasks))
    for task, events in zip(tasks, journals):
        ends = sum(event["event"] == "finished" for event in events)
        assert ends == 1, f"{task['id']} has {ends} ends: {[event['event'] for event in events]}"
        if task.get("parent") is None:
            told = [event["ended"]["task"] for event in events if event["event"] == "letter" and event.get("ended")]
            assert len(told) == len(set(told)) == CHILDREN, f"{task['id']} has letters about {told}"
    runs = fleet.runs()
    starts = {}
    for word, task, pid, _ in runs:
        if word == "start":
            starts.setdefault(task, []).append(pid)
    twice = {task: pids for task, pids in starts.items() if len(pids) > 1}
    assert not twice, f"these tools ran twice: {twice}"
    ended = sum(word == "end" for word, *_ in runs)
    taken = (fleet.work / "c.err").read_text().count("another process has taken this task")
    print(f"{len(tasks)} tasks, {attempts} attempts, {len(starts)} tools begun, {ended} ended, none twice; "
          f"{taken} late writes of c refused; one end and one letter each")
    assert taken > 0, "nothing of c was refused, so nothing was shown"


def tree(pid):
    """The processes below one."""
    below = {}
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            text = pathlib.Path(stat).read_text()
        except OSError:
            continue
        parent = int(text.rsplit(")", 1)[1].split()[1])
        below.setdefault(parent, []).append(int(text.split()[0]))
    found, open_ = set(), [pid]
    while open_:
        for child in below.get(open_.pop(), []):
            found.add(child)
            open_.append(child)
    return found


if __name__ == "__main__":
    main()
