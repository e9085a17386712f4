"""Editors drive `longhaul acp`: the official Python SDK and acpx from npm. A prompt that streams, a permission, a cancel, and a load after kill -9.

    python3 -m pip install --target target/clients/py agent-client-protocol==0.12.1
    npm i --prefix target/clients acpx node@22
    python3 crates/longhaul-cli/tests/clients/acp_editors.py
"""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys

from scenario import LONGHAUL, MODULES, Scenario

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


def acpx(scenario):
    node = MODULES / "node/bin/node"
    entry = next(iter((MODULES / ".bin").glob("acpx"))).resolve()
    env = {**scenario.env, "PATH": f"{node.parent}:{scenario.env['PATH']}"}
    done = subprocess.run([str(node), str(entry), "--approve-all", "--agent", " ".join(agent(scenario)), "exec", "hello from acpx"],
                          cwd=scenario.project, env=env, capture_output=True, text=True, timeout=120)
    assert "You said: hello from acpx" in done.stdout, done.stdout + done.stderr
    print("  acpx exec: ok", flush=True)


def main():
    scenario = Scenario("acp-editors")
    (scenario.project / "team.yaml").write_text(TEAM)
    try:
        asyncio.run(sdk(scenario))
        acpx(scenario)
    finally:
        scenario.end(keep=True)


if __name__ == "__main__":
    main()
