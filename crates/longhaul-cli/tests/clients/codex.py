"""Codex: `codex exec` with our server. Its time limit for a call is 300 s, and progress does not extend it.

With --default-limit it is left at that, and the call takes six minutes and waits as long as it may; else it is a minute.
"""

import pathlib
import sys

from collect import PlayLong, run_scenarios
from scenario import MODULES, Scenario

(CODEX,) = list((MODULES / "@openai").glob("codex-linux-*/vendor/*/*/codex"))[:1] or [pathlib.Path("codex")]


DEFAULT_LIMIT = "--default-limit" in sys.argv


def make_scenario(name):
    scenario = Scenario(name)
    home = scenario.home / ".codex"
    home.mkdir()
    if DEFAULT_LIMIT:
        scenario.install("codex")
        assert "timeout" not in (home / "config.toml").read_text()
        return scenario
    (home / "config.toml").write_text("[mcp_servers.longhaul]\ntool_timeout_sec = 60\n")
    scenario.install("codex")
    assert "tool_timeout_sec = 60" in (home / "config.toml").read_text()
    return scenario


def run_client(scenario, provider, prompt):
    config = scenario.home / ".codex/config.toml"
    config.write_text(f"""\
model = "played"
model_provider = "played"
{config.read_text()}
[model_providers.played]
name = "played"
base_url = "{provider.url}/v1"
wire_api = "responses"
env_key = "PLAYED_KEY"
""")
    args = [str(CODEX), "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt]
    return scenario.client(args, 600, {"PLAYED_KEY": "x", "CODEX_HOME": str(scenario.home / ".codex")})


def main(keep=False):
    long = PlayLong("six minutes", wait=240) if DEFAULT_LIMIT else PlayLong("seventy seconds")
    run_scenarios("codex", make_scenario, run_client, keep, long)


if __name__ == "__main__":
    main("--keep" in sys.argv)
