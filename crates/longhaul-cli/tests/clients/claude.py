"""Claude Code in a terminal: starts a task, shows its question, is killed with its server, and goes on where it was."""

import json
import re

from provider import Provider
from scenario import MODULES, Scenario, Terminal, alive, children, kill_and_see_dead, task_ids

CLAUDE = str(MODULES / "@anthropic-ai/claude-code-linux-x64/claude")
PROMPT = "Use the longhaul agent to find out the colour."
QUESTION = "Which colour shall it be?"
KEY = "sk-ant-played-0000000000000000000000000000"


class Played:
    """The model. It knows what has reached it: the screen alone does not tell whether a key was taken."""

    def __init__(self):
        self.prompts = 0  # how many prompts it has got
        self.too_early = 0  # how many of them came before our server had started

    def __call__(self, request):
        prompts = request.all.count(PROMPT)
        early = not any(name.endswith("run_background_agent") for name in request.tools)
        self.too_early += early and prompts > self.prompts
        self.prompts = max(prompts, self.prompts)
        if early:
            return "say", "Too early."
        if "run_background_agent" not in request.calls:
            return "call", [("run_background_agent", {"agent": "root", "task": "Find out the colour."})]
        found = re.search(r"The colour is (\w+), as they wish", request.all)
        if found:
            return "say", f"FINAL ANSWER: {found.group(1)}"
        return "say", "The task is under way."


def asks(screen):
    """Whether the form with our question is open and empty."""
    return "requests your input" in screen and QUESTION in screen and "Type something" in screen


def prompt_until_asked(terminal, played):
    """Prompts until our question is shown. A prompt that comes before our server has started has to be repeated."""
    for attempt in range(1, 40):
        terminal.type(PROMPT)
        terminal.until("the prompt in its line", lambda screen: PROMPT in screen.rsplit("❯", 1)[-1])
        # A key that comes right after others counts as pasted, so it may take two. No form can be open before the model replies.
        terminal.press_until("Enter", "the model to get it", lambda _: played.prompts >= attempt)
        if played.too_early < attempt:
            return terminal.until("our question", asks)
        terminal.until("the end of the turn", lambda screen: screen.count("Too early.") >= attempt)
    raise AssertionError("our server did not start")


def main(keep=False):
    scenario = Scenario("claude")
    played = Played()
    provider = Provider(played, scenario.log)
    settings = {"hasCompletedOnboarding": True, "theme": "dark", "bypassPermissionsModeAccepted": True,
                "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                "projects": {str(scenario.project): {"hasTrustDialogAccepted": True, "allowedTools": []}}}
    (scenario.home / ".claude.json").write_text(json.dumps(settings))
    scenario.install("claude")
    env = {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": KEY, "IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1",
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false"}
    args = [CLAUDE, "--permission-mode", "default", "--allowedTools", "mcp__longhaul"]
    terminal = None
    try:
        terminal = Terminal(scenario, "first", args, env)
        terminal.until("the prompt", lambda screen: "❯" in screen or "> " in screen)
        prompt_until_asked(terminal, played)
        (task,) = [task for task in scenario.tasks()]
        doors = [pid for pid, line in children(terminal.pid) if " mcp --team " in line]
        assert doors, f"there is no server below {terminal.pid}: {children(terminal.pid)}"
        carrier = [int(path.read_text()) for path in (scenario.data / "carriers").glob("served-*.pid")]
        kill_and_see_dead([terminal.pid, *doors])
        assert carrier and all(alive(pid) for pid in carrier), "the process that runs the task lives on"
        print(f"claude: asked; killed client {terminal.pid} and server {doors}")

        terminal.close()
        terminal = Terminal(scenario, "second", [*args, "--continue"], env)
        terminal.until("our question again", asks)
        terminal.type("vermilion")
        terminal.until("the answer in its line", lambda screen: "Answer: vermilion" in screen)
        # One more Enter than needed is lost in an empty prompt.
        closed = lambda screen: "requests your input" not in screen
        terminal.press_until("Enter", "the form's button", lambda screen: "❯ Accept" in screen or closed(screen))
        terminal.press_until("Enter", "the end of the form", closed)
        terminal.until("the result", lambda screen: "FINAL ANSWER: vermilion" in screen)
        (after,) = scenario.tasks()
        assert (after["id"], after["status"]) == (task["id"], "completed"), (task, after)
        assert task_ids(json.dumps(after)), after
        assert not provider.errors, provider.errors
        print(f"claude: the same task {after['id']} was picked up, answered and delivered")
    except BaseException:
        print(f"claude: see {scenario.dir}")
        keep = True
        raise
    finally:
        if terminal:
            terminal.close()
        scenario.end(keep)


if __name__ == "__main__":
    import sys

    main("--keep" in sys.argv)
