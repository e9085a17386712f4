"""Real agents from npm as agents of a team, each with a scripted provider on loopback: a prompt, a permission, a stop, a letter in the middle
of a turn, a background agent of the team that the agent itself sends out, kill -9 of Longhaul in the middle of a turn with a resume after it, and all
of that in a sandbox.

    python3 crates/longhaul-cli/tests/clients/acp_agents.py [AGENT …]
"""

import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from provider import Provider
from scenario import LONGHAUL, MODULES, Scenario

GO_ON = "You were interrupted"
LINE = "echo ran > ran.txt"


def claude(scenario, url, package="@agentclientprotocol/claude-agent-acp", node=str(MODULES / "node/bin/node")):
    # The newest adapter needs Node 22.
    return {"type": "claude-code", "command": [node, str(MODULES / package / "dist/index.js")],
            "env": {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-test", "IS_SANDBOX": "1",
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false", "DISABLE_AUTOUPDATER": "1"}}


def claude_before(scenario, url):
    return claude(scenario, url, "claude-agent-acp-node20", shutil.which("node"))


def codex(scenario, url):
    # It refuses to work with a home below the directory for temporary files.
    home = MODULES.parent / f"codex-{os.getpid()}"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        'model = "gpt-5"\nmodel_provider = "x"\napproval_policy = "on-request"\n'
        f'[model_providers.x]\nname = "x"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "X_KEY"\n')
    return {"type": "codex", "command": [str(MODULES / ".bin/codex-acp")],
            "env": {"CODEX_HOME": str(home), "X_KEY": "sk-test", "OPENAI_API_KEY": "sk-test"}}


def opencode(scenario, url):
    config = scenario.dir / "opencode.json"
    model = {"name": "m", "tool_call": True, "limit": {"context": 100000, "output": 10000}}
    config.write_text(json.dumps({
        "model": "x/m", "small_model": "x/m", "autoupdate": False, "permission": {"bash": "ask"},
        "provider": {"x": {"npm": "@ai-sdk/openai-compatible", "name": "x",
                           "options": {"baseURL": f"{url}/v1", "apiKey": "sk-test"}, "models": {"m": model}}}}))
    found = [path for path in sorted(glob.glob(str(MODULES / "opencode-linux-x64*/bin/opencode")))]
    return {"type": "opencode", "command": [found[0], "acp"],
            "env": {"OPENCODE_CONFIG": str(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}}


def gemini(scenario, url):
    return {"type": "gemini", "command": [str(MODULES / ".bin/gemini"), "--acp"],
            "env": {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "sk-test", "GEMINI_CLI_TRUST_WORKSPACE": "true"}}


AGENTS = {"gemini": (gemini, "run_shell_command"), "claude-code": (claude, "Bash"), "claude-code-0.49": (claude_before, "Bash"), "codex": (codex, "shell exec_command shell_command local_shell"), "opencode": (opencode, "bash")}


STEPS = ("prompt", "permission", "background_agent", "letter", "stop", "kill_and_resume", "sandbox")


class Run:
    def __init__(self, name):
        self.scenario = Scenario(f"acp-{name}")
        self.name = name
        self.gate, self.asked = threading.Event(), threading.Event()
        self.requests = []
        self.line = LINE
        self.started = []
        self.provider = Provider(self.play, self.scenario.log)
        agent, self.shell = AGENTS[name]
        acp = agent(self.scenario, self.provider.url)
        script = "defaults: {delay: 0ms}\nagents: {scout: {turns: [{text: 'The scout has found a PAPAYA.'}]}}"
        self.team = {
            "agents": {"root": {"description": "It works.", "acp": acp, "sub_agents": ["scout"]},
                       "scout": {"description": "Looks around.", "model": "play"}},
            "models": {"play": {"provider": "scripted", "script": script}},
            "permissions": {"allow": ["read"]},
        }
        self.write()

    def write(self, **changed):
        """Writes the team, with some of its keys changed."""
        (self.scenario.project / "team.yaml").write_text(json.dumps({**self.team, **changed}))

    def play(self, request):
        self.requests.append(request)
        everything = request.all
        if "PINEAPPLE" in everything and not self.gate.is_set():
            self.asked.set()
            self.gate.wait(60)
        if "SEND-OUT" in everything and "PAPAYA" not in everything:
            task = re.search(r"\bt-[0-9a-z]{5,}\b", everything)
            if task is None:
                return ("call", [("run_background_agent", {"agent": "scout", "task": "look around"})])
            return ("call", [("wait_background_agents", {"task_ids": [task.group()]})])
        if "SEND-OUT" in everything:
            return ("say", "The scout said PAPAYA.")
        if "RUN-IT" in everything and not request.calls:
            names = [name[1] if isinstance(name, tuple) else name for name in request.tools]
            tool = next(name for name in self.shell.split() if name in names)
            argument = {"shell": ["bash", "-lc", self.line], "exec_command": self.line}
            key = {"exec_command": "cmd"}.get(tool, "command")
            more = {"justification": "runs", "sandbox_permissions": "require_escalated"} if tool == "exec_command" else {"description": "runs"}
            return ("call", [(tool, {key: argument.get(tool, self.line), **more})])
        return ("say", "The word is MANGO.")

    def start(self, *args):
        command = [LONGHAUL, "--data", str(self.scenario.data), *args]
        self.started.append(subprocess.Popen(command, cwd=self.scenario.project, env=self.scenario.env, text=True,
                                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        return self.started[-1]

    def end(self):
        """Ends what a step that failed has left."""
        self.gate.set()
        for process in self.started:
            process.kill()
        self.started.clear()

    def processes(self):
        """The processes of the agent: those that carry our mark and its variables."""
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                if str(self.scenario.data).encode() + b"/acp/" in pathlib.Path(path).read_bytes():
                    found.append(int(path.split("/")[2]))
            except OSError:
                pass
        return found

    def gone(self):
        end = time.time() + 10
        while self.processes() and time.time() < end:
            time.sleep(0.1)
        assert not self.processes(), f"left running: {self.processes()}"

    def prompt(self):
        self.gate.set()
        done = self.start("run", "team.yaml", "--trust", "Say the word APPLE.")
        out, _ = done.communicate(timeout=120)
        assert done.returncode == 0 and "MANGO" in out, f"{done.returncode}: {out}"
        self.gone()

    def permission(self):
        self.gate.set()
        file = self.scenario.project / "ran.txt"
        for rule, ran in (("allow", True), ("deny", False)):
            file.unlink(missing_ok=True)
            self.write(permissions={rule: ["execute"]})
            done = self.start("run", "team.yaml", "--trust", f"RUN-IT {rule}")
            out, _ = done.communicate(timeout=120)
            assert file.exists() == ran, f"{rule}: {out}"
        self.write()
        self.gone()

    def background_agent(self):
        """It sends out an agent of the team itself, through `longhaul mcp --task`, and nobody is asked."""
        self.gate.set()
        done = self.start("run", "team.yaml", "--trust", "SEND-OUT the scout, and say what it found.")
        out, _ = done.communicate(timeout=120)
        assert done.returncode == 0 and "PAPAYA" in out, f"{done.returncode}: {out}"
        scouts = [task for task in self.scenario.tasks() if task["agent"] == "scout"]
        assert len(scouts) == 1 and scouts[0]["status"] == "completed", scouts
        self.gone()

    def letter(self):
        """A letter while it works: in the middle of the turn, or else after it."""
        self.gate.clear()
        self.asked.clear()
        self.requests.clear()
        run = self.start("run", "team.yaml", "--trust", "Say the word PINEAPPLE-9.")
        assert self.asked.wait(120), "the provider was never asked"
        task = next(task for task in self.scenario.tasks() if task["status"] == "running")
        self.scenario.longhaul("send", task["id"], "Mind the LEMON.")
        time.sleep(1)
        self.gate.set()
        out, _ = run.communicate(timeout=120)
        assert run.returncode == 0, f"{run.returncode}: {out}"
        told = [request for request in self.requests if "Mind the LEMON." in request.all]
        assert told, f"the letter never came: {out}"
        times = told[-1].all.count("Mind the LEMON.")
        assert times == 1, f"the letter is there {times} times: {told[-1].all[-2000:]}"
        turns = next(now["turns"] for now in self.scenario.tasks() if now["id"] == task["id"])
        self.gone()
        return "in the middle of the turn" if turns == 1 else f"after the turn ({turns} turns)"

    def sandbox(self):
        """The same program in a sandbox: it works, and cannot write elsewhere."""
        self.gate.set()
        agents = json.loads(json.dumps(self.team["agents"]))
        # Codex has its own directory here, which is not below its home.
        own = agents["root"]["acp"]["env"].get("CODEX_HOME")
        agents["root"]["acp"]["sandbox"] = {"paths": [own]} if own else "on"
        self.write(agents=agents, permissions={"allow": ["execute"]})
        file, outside = self.scenario.project / "ran.txt", self.scenario.dir / "outside.txt"
        file.unlink(missing_ok=True)
        self.line = f"echo ran > ran.txt; echo ran > {outside}"
        done = self.start("run", "team.yaml", "--trust", "RUN-IT in the sandbox")
        out, _ = done.communicate(timeout=120)
        self.line = LINE
        self.write()
        assert done.returncode == 0 and file.exists(), f"{done.returncode}: {out}"
        assert not outside.exists(), "it wrote outside"
        self.gone()

    def stop(self):
        self.gate.clear()
        self.asked.clear()
        run = self.start("run", "team.yaml", "--trust", "Say the word PINEAPPLE.")
        assert self.asked.wait(120), "the provider was never asked"
        task = next(task for task in self.scenario.tasks() if task["status"] == "running")
        begun = time.time()
        self.scenario.longhaul("stop", task["id"])
        run.communicate(timeout=30)
        assert time.time() - begun < 10, f"a stop took {time.time() - begun:.1f} s"
        self.gate.set()
        self.gone()

    def kill_and_resume(self):
        self.gate.clear()
        self.asked.clear()
        self.requests.clear()
        run = self.start("run", "team.yaml", "--trust", "Say the word PINEAPPLE-7.")
        assert self.asked.wait(120), "the provider was never asked"
        run.send_signal(signal.SIGKILL)
        run.wait()
        self.gone()
        before = len(self.requests)
        self.gate.set()
        resumed = self.start("resume")
        out, _ = resumed.communicate(timeout=180)
        assert resumed.returncode == 0, f"{resumed.returncode}: {out}"
        last = [request for request in self.requests[before:] if "PINEAPPLE-7" in request.all or GO_ON in request.all]
        assert last, f"nothing was asked after the resume: {out}"
        words = last[-1].all
        times = words.count("Say the word PINEAPPLE-7.")
        lost = "in a session that is lost" in words
        assert times == 1, f"the prompt is there {times} times: {words[-2000:]}"
        return "a new session with our transcript" if lost else "loaded and continued" if GO_ON in words else "sent again: it had not arrived"


def main(names):
    failed = False
    for name in names or AGENTS:
        print(name, flush=True)
        run, broken = Run(name), False
        for step in STEPS:
            begun = time.time()
            try:
                said = getattr(run, step)()
                print(f"  {step}: ok ({time.time() - begun:.1f} s) {said or ''}", flush=True)
            except Exception as error:
                failed = broken = True
                run.end()
                print(f"  {step}: FAILED: {type(error).__name__} {str(error)[-1500:]} (in {run.scenario.dir})", flush=True)
        run.scenario.end(keep=broken)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
