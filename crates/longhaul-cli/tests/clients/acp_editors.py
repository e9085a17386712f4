"""Editors drive `longhaul acp`: the official Python SDK and acpx from npm. A prompt that streams, a permission, a cancel, and a load after kill -9.

    python3 crates/longhaul-cli/tests/clients/acp_editors.py
"""

import asyncio
import json
import pathlib
import signal
import subprocess
import sys
import time

from scenario import LONGHAUL, MODULES, Scenario, kill_and_see_dead

sys.path.insert(0, str(MODULES.parent / "py"))
import acp  # noqa: E402
from acp import schema  # noqa: E402
from acp.stdio import spawn_agent_process  # noqa: E402

TEAM = """\
agents:
  root:
    model: play
    description: Leads.
    sub_agents: [scout]
    toolsets: [{ type: background_agents }, { type: shell }]
  scout:
    model: play
    description: Looks.
models:
  play:
    provider: scripted
    script: |
      agents:
        root:
          cases:
            - when: run it
              turns:
                - calls: [{ tool: shell, arguments: { cmd: "echo ran > ran.txt" } }]
                - text: "It ran."
            - when: send someone
              turns:
                - calls: [{ tool: run_background_agent, arguments: { agent: scout, task: "look around" } }]
                - text: "Someone is on the way."
            - when: one
              turns: [{ text: "You said: one" }, { delay: 30s, text: "That took a while." }, { text: "And now {{ task }}, two." }]
            - turns: [{ text: "You said: {{ task }}" }]
        scout:
          turns: [{ delay: 20s, text: "Nothing there." }]
"""


class Editor:
    def __init__(self):
        self.updates, self.asked, self.on_update = [], [], None

    def on_connect(self, conn):
        pass

    async def request_permission(self, session_id=None, tool_call=None, options=None, **kwargs):
        self.asked.append(tool_call)
        option = next(option for option in options if option.kind == "allow_once")
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=option.option_id))

    async def session_update(self, session_id, update, **kwargs):
        self.updates.append(update)
        if self.on_update:
            await self.on_update(update)

    def text(self, kind="agent_message_chunk"):
        return "".join(update.content.text for update in self.updates if update.session_update == kind)


def agent(scenario):
    return [LONGHAUL, "--data", str(scenario.data), "acp", "--team", str(scenario.project / "team.yaml"), "--trust"]


async def sdk(scenario):
    editor = Editor()
    command = agent(scenario)
    async with spawn_agent_process(editor, command[0], *command[1:], env=scenario.env, cwd=scenario.project) as (conn, process):
        hello = await conn.initialize(protocol_version=1)
        assert hello.agent_capabilities.load_session, hello
        session = (await conn.new_session(cwd=str(scenario.project), mcp_servers=[])).session_id
        done = await conn.prompt(session_id=session, prompt=[acp.text_block("hello")])
        assert done.stop_reason == "end_turn" and "You said: hello" in editor.text(), editor.text()
        print("  prompt and stream: ok", flush=True)
        # The script looks at the first prompt of a session.
        other = (await conn.new_session(cwd=str(scenario.project), mcp_servers=[])).session_id
        await conn.prompt(session_id=other, prompt=[acp.text_block("run it")])
        assert editor.asked and (scenario.project / "ran.txt").exists(), "nobody was asked, or nothing ran"
        print("  permission: ok", flush=True)
        editor.updates.clear()
        third = (await conn.new_session(cwd=str(scenario.project), mcp_servers=[])).session_id

        async def cancel(update):
            if update.session_update == "agent_message_chunk" and "on the way" in editor.text():
                editor.on_update = None
                await conn.cancel(session_id=third)

        editor.on_update = cancel
        done = await conn.prompt(session_id=third, prompt=[acp.text_block("send someone")])
        assert done.stop_reason == "cancelled" and "look around" in editor.text(), (done, editor.text())
        live = [task for task in scenario.tasks() if task["agent"] == "scout" and task["status"] == "running"]
        assert live, "the background task was stopped"
        print("  cancel spares the background task and says so: ok", flush=True)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    editor = Editor()
    async with spawn_agent_process(editor, command[0], *command[1:], env=scenario.env, cwd=scenario.project) as (conn, process):
        await conn.initialize(protocol_version=1)
        await conn.load_session(cwd=str(scenario.project), session_id=session, mcp_servers=[])
        await asyncio.sleep(0.5)
        said = editor.text("user_message_chunk")
        assert said == "hello", said
        listed = (await conn.list_sessions()).sessions
        assert {session, other, third} <= {listed.session_id for listed in listed}, listed
        assert "You said: hello" in editor.text(), editor.text()
        editor.updates.clear()
        await conn.prompt(session_id=session, prompt=[acp.text_block("still there?")])
        assert editor.text(), "no answer"
        print("  load after kill -9, and go on: ok", flush=True)


class Acpx:
    """acpx with a home of its own. It keeps a process for its session, which drives `longhaul acp`."""

    def __init__(self, scenario):
        self.scenario = scenario
        node = MODULES / "node/bin/node"
        self.command = [str(node), str((MODULES / ".bin/acpx").resolve()), "--agent", " ".join(agent(scenario))]
        self.env = {**scenario.env, "PATH": f"{node.parent}:{scenario.env['PATH']}"}

    def start(self, *args):
        return subprocess.Popen([*self.command, *args], cwd=self.scenario.project, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __call__(self, *args):
        out, _ = self.start(*args).communicate(timeout=120)
        return out

    def processes(self):
        """Those of `longhaul acp` for this scenario, and the processes of acpx that keep its sessions."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                line = (path.parent / "cmdline").read_bytes()
                if str(self.scenario.home).encode() in path.read_bytes() and (b"acpx" in line or b"\0acp\0" in line):
                    found.append(int(path.parent.name))
            except OSError:
                pass
        return found


def acpx(scenario):
    run = Acpx(scenario)
    out = run("exec", "hello from acpx")
    assert "You said: hello from acpx" in out, out
    out = run("--format", "json", "--json-strict", "exec", "hello in pieces")
    updates = [json.loads(line) for line in out.splitlines() if line.strip()]
    chunks = [update for update in updates if "agent_message_chunk" in json.dumps(update)]
    assert chunks, out
    print(f"  acpx: prompt and stream ({len(chunks)} pieces): ok", flush=True)
    ran = scenario.project / "ran.txt"
    for flag, there in (("--deny-all", False), ("--approve-all", True)):
        ran.unlink(missing_ok=True)
        out = run(flag, "exec", "run it")
        assert ran.exists() == there, f"{flag}: {out}"
    print("  acpx: permission, denied and allowed: ok", flush=True)
    print("  " + run("sessions", "new").strip().splitlines()[0], flush=True)
    assert "You said: one" in run("prompt", "one")
    asked = run.start("prompt", "wait a while")
    mine = [task for task in scenario.tasks() if task["headline"] == "one"]
    assert len(mine) == 1, mine
    task = mine[0].get("id") or mine[0]["task"]
    deadline = time.monotonic() + 60
    while scenario.longhaul("logs", task).count("  read ") == 0:
        assert time.monotonic() < deadline, "the prompt never came"
        time.sleep(0.2)
    begun = time.monotonic()
    said = run("cancel")
    assert "nothing" not in said, said
    out, _ = asked.communicate(timeout=60)
    assert time.monotonic() - begun < 20 and "That took a while" not in out, f"{time.monotonic() - begun:.0f} s: {out}"
    print("  acpx: cancel: ok", flush=True)
    killed = run.processes()
    assert killed, "there is nothing to kill"
    kill_and_see_dead(killed)
    out = run("prompt", "two")
    assert "end_turn" in out, out
    # A cancelled turn is continued by a new task, which has the conversation before it.
    journals = [scenario.longhaul("logs", task.get("id") or task["task"]) for task in scenario.tasks() if task["agent"] == "root"]
    assert any("two" in journal for journal in journals), f"the session was not loaded: {out}"
    print("  acpx: loaded after kill -9, and went on: ok", flush=True)
    kill_and_see_dead(run.processes())


def nothing_but_the_protocol(scenario):
    """Whatever is sent, each line of stdout is a message."""
    session = {"cwd": str(scenario.project), "mcpServers": []}
    messages = [{"id": 1, "method": "initialize", "params": {"protocolVersion": 1}}, {"id": 2, "method": "session/new", "params": session},
                {"id": 3, "method": "no/such"}, {"id": 4, "method": "session/prompt", "params": {"sessionId": "none", "prompt": []}}]
    sent = "not json\n\n[]\n" + "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    process = subprocess.Popen(agent(scenario), cwd=scenario.project, env={**scenario.env, "RUST_LOG": "trace"}, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    process.stdin.write(sent)
    process.stdin.flush()
    lines = []
    while not {line.get("id") for line in lines} >= {1, 2, 3, 4}:
        lines.append(json.loads(process.stdout.readline()))
    rest, _ = process.communicate(timeout=60)
    lines += [json.loads(line) for line in rest.splitlines()]
    assert process.returncode == 0, process.returncode
    assert all(line["jsonrpc"] == "2.0" for line in lines), lines
    print("  stdout has nothing but the protocol: ok", flush=True)


def main():
    scenario = Scenario("acp-editors")
    (scenario.project / "team.yaml").write_text(TEAM)
    passed = False
    try:
        nothing_but_the_protocol(scenario)
        asyncio.run(sdk(scenario))
        acpx(scenario)
        passed = True
    finally:
        scenario.end(keep=not passed)


if __name__ == "__main__":
    main()
