"""The example team `coding-agents.yaml`, for real: a scripted lead sends Claude Code and Codex from npm into worktrees of one repository, and merges
what they report. Only the models are played, on loopback.

    python3 crates/longhaul-cli/tests/clients/acp_example.py
"""

import json
import subprocess

import acp_agents
from provider import Provider
from scenario import LONGHAUL, ROOT, Scenario

SCRIPT = r"""
agents:
  root:
    turns:
      - calls:
          - { tool: run_background_agent, arguments: { agent: claude, task: "Write the change." } }
          - { tool: run_background_agent, arguments: { agent: codex, task: "Write the tests." } }
      - until: find_all('; branch (\S+);') | length >= 2
        text: Waiting for both.
      - calls:
          - { tool: shell, arguments: { cmd: "git log --oneline --all" } }
      - calls:
          - { tool: shell, arguments: { cmd: "git merge --no-edit {{ find_all('; branch (\\S+);') | join(' ') }}" } }
      - text: "Merged: {{ find_all('; branch (\\S+);') | join(' and ') }}"
"""


def player(tool, file):
    """A model that writes a file, commits it, and reports."""
    line = f"echo by-{file} > {file} && git add {file} && git commit -q -m 'Add {file}'"

    def play(request):
        if request.calls:
            return ("say", f"I have added {file} and committed it.")
        names = [name[1] if isinstance(name, tuple) else name for name in request.tools]
        shell = next(name for name in tool.split() if name in names)
        if shell == "exec_command":
            return ("call", [(shell, {"cmd": line, "justification": "commits", "sandbox_permissions": "require_escalated"})])
        return ("call", [(shell, {"command": ["bash", "-lc", line] if shell == "shell" else line, "description": "commits"})])

    return play


def main():
    scenario = Scenario("acp-example")
    git = lambda *args: subprocess.run(["git", *args], cwd=scenario.project, env=scenario.env, check=True,
                                       capture_output=True, text=True).stdout
    (scenario.project / "team.yaml").unlink()
    git("init", "-q", "-b", "main")
    git("config", "user.name", "Lead")
    git("config", "user.email", "lead@example.com")
    (scenario.project / "README.md").write_text("A project.\n")
    git("add", "-A")
    git("commit", "-q", "-m", "First")

    text = (ROOT / "examples/teams/coding-agents.yaml").read_text()
    who = {"GIT_AUTHOR_NAME": "Coder", "GIT_AUTHOR_EMAIL": "coder@example.com",
           "GIT_COMMITTER_NAME": "Coder", "GIT_COMMITTER_EMAIL": "coder@example.com"}
    for name, tool, file, old in (
            ("claude", "Bash", "change.txt", 'env: { ANTHROPIC_API_KEY: "${ANTHROPIC_API_KEY}" }'),
            ("codex", acp_agents.AGENTS["codex"][1], "tests.txt", 'env: { OPENAI_API_KEY: "${OPENAI_API_KEY}" }')):
        provider = Provider(player(tool, file), scenario.log)
        acp = getattr(acp_agents, name)(scenario, provider.url)
        assert old in text, f"the example has changed: {old}"
        text = text.replace(old, f"command: {json.dumps(acp['command'])}\n      env: {json.dumps({**acp['env'], **who})}")
    assert "model: auto" in text
    text = text.replace("model: auto", "model: play") + f"\nmodels: {json.dumps({'play': {'provider': 'scripted', 'script': SCRIPT}})}\n"
    team = scenario.dir / "coding-agents.yaml"
    team.write_text(text)

    done = subprocess.run([LONGHAUL, "--data", str(scenario.data), "run", str(team), "--trust", "--yolo", "Do it, with tests."],
                          cwd=scenario.project, env=scenario.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "Merged:" in said, f"{done.returncode} in {scenario.dir}: {said}"
    for file in ("change.txt", "tests.txt"):
        assert (scenario.project / file).read_text() == f"by-{file}\n", f"{file} is not merged: {said}"
    authors = git("log", "--format=%an %s", "main").splitlines()
    assert {"Coder Add change.txt", "Coder Add tests.txt"} <= set(authors), authors
    print("  both agents worked in worktrees of their own, and their branches are merged: ok", flush=True)
    scenario.end()


if __name__ == "__main__":
    main()
