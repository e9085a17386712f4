"""What every scenario needs: a place of its own, the team, the command, a terminal, and processes that are really dead."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[4]
LONGHAUL = os.environ.get("LONGHAUL_BIN", str(ROOT / "target/debug/longhaul"))
MODULES = pathlib.Path(os.environ.get("LONGHAUL_CLIENTS", ROOT / "target/clients")) / "node_modules"

TEAM = """\
agents:
  root:
    model: play
    description: Answers everything.
    toolsets: [{ type: user_prompt }, { type: think }]
models:
  play:
    provider: scripted
    script: |
      agents:
        root:
          cases:
            - when: colour
              turns:
                - calls: [{ tool: user_prompt, arguments: { message: "Which colour shall it be?" } }]
                - text: "The colour is {{ (result | from_json).content.response }}, as they wish."
            - when: seventy seconds
              turns: [{ delay: 70s, text: "That time is over." }]
            - when: six minutes
              # A model that is silent for five minutes counts as gone.
              turns:
                - { delay: 3m, calls: [{ tool: think, arguments: { thought: Half of it is over. } }] }
                - { delay: 3m, text: "That time is over." }
            - turns: [{ delay: 1s, text: "Found: {{ task }}" }]
"""


class Scenario:
    """A home, a project and a database of its own."""

    def __init__(self, name):
        self.name = name
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"longhaul-{name}-"))
        self.home, self.project, self.data = self.dir / "home", self.dir / "project", self.dir / "data"
        for made in (self.home, self.project, self.data):
            made.mkdir()
        (self.project / "team.yaml").write_text(TEAM)
        self.log = self.dir / "provider.log"
        keep = {key: os.environ[key] for key in ("PATH", "LANG", "TERM") if key in os.environ}
        self.env = {**keep, "HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / ".config"),
                    "XDG_DATA_HOME": str(self.home / ".local/share"), "NO_PROXY": "127.0.0.1,localhost",
                    "no_proxy": "127.0.0.1,localhost", "TERM": "xterm-256color", "LANG": "C.UTF-8"}

    def longhaul(self, *args):
        command = [LONGHAUL, "--data", str(self.data), *args]
        done = subprocess.run(command, cwd=self.project, env=self.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def install(self, client):
        self.longhaul("mcp", "install", client, "--team", "team.yaml")

    def tasks(self):
        """The tasks in the database, as `longhaul tasks --json` tells them."""
        return [json.loads(line) for line in self.longhaul("tasks", "--all", "--json").splitlines()]

    def client(self, args, timeout, env):
        """Runs a client that needs no terminal to its end."""
        done = subprocess.run(args, cwd=self.project, env={**self.env, **env}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout)
        (self.dir / "client.log").write_text(done.stdout + "\n---\n" + done.stderr)
        return done

    def end(self, keep=False):
        """Ends the background processes of this scenario, and removes its files."""
        for pid_file in (self.data / "carriers").glob("served-*.pid"):
            try:
                os.kill(int(pid_file.read_text()), signal.SIGTERM)
            except (ValueError, ProcessLookupError):
                pass
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)


class Terminal:
    """A program in a terminal of tmux, with a socket of its own."""

    def __init__(self, scenario, name, args, env):
        self.socket = scenario.dir / f"tmux-{name}"
        self.name = name
        exports = [f"{key}={value}" for key, value in {**scenario.env, **env}.items()]
        self.tmux("new-session", "-d", "-s", name, "-x", "150", "-y", "50", "-c", str(scenario.project),
                  "env", "-i", *exports, *args)
        self.tmux("set-option", "-t", name, "remain-on-exit", "on")
        self.pid = int(self.tmux("display-message", "-p", "-t", name, "#{pane_pid}"))

    def tmux(self, *args):
        done = subprocess.run(["tmux", "-S", str(self.socket), "-f", "/dev/null", *args], capture_output=True, text=True)
        assert done.returncode == 0, f"tmux {args}: {done.stderr}"
        return done.stdout

    def screen(self):
        return self.tmux("capture-pane", "-p", "-S", "-200", "-t", self.name)

    def until(self, what, fits, timeout=180):
        deadline = time.monotonic() + timeout
        while True:
            screen = self.screen()
            if fits(screen):
                return screen
            assert time.monotonic() < deadline, f"waited in vain for {what}:\n{screen}"
            time.sleep(0.2)

    def press_until(self, key, what, fits, timeout=180):
        """Presses a key, and again every five seconds: a client that is still starting may lose it."""
        deadline = time.monotonic() + timeout
        while True:
            self.keys(key)
            try:
                return self.until(what, fits, 5)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise

    def keys(self, *keys):
        self.tmux("send-keys", "-t", self.name, *keys)

    def type(self, text):
        self.tmux("send-keys", "-t", self.name, "-l", text)

    def close(self):
        subprocess.run(["tmux", "-S", str(self.socket), "kill-server"], capture_output=True)


def children(pid):
    """All processes below one, with their command lines."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (OSError, IndexError, ValueError):
                continue
            if parent == pid:
                found.append((int(entry.name), line))
                found += children(int(entry.name))
    return found


def kill_and_see_dead(pids):
    """SIGKILL, and then makes sure that each is gone (or a zombie that only waits to be reaped)."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still alive: {[pid for pid in pids if alive(pid)]}"
        time.sleep(0.05)


def alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in ("Z", "X")


def task_ids(text):
    return sorted(set(re.findall(r"\bt-[0-9a-z]{5,}\b", text)))
