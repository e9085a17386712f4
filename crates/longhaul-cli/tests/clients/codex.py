"""Codex: `codex exec` with our server. Its time limit for a call is 300 s, and progress does not extend it."""

import pathlib
import sys

from collect import run_scenarios
from scenario import MODULES, Scenario

(CODEX,) = list((MODULES / "@openai").glob("codex-linux-*/vendor/*/*/codex"))[:1] or [pathlib.Path("codex")]


def make_scenario(name):
    scenario = Scenario(name)
    home = scenario.home / ".codex"
    home.mkdir()
    # A limit of a minute, so that the call that is longer does not take five.
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
    return scenario.client(args, 240, {"PLAYED_KEY": "x", "CODEX_HOME": str(scenario.home / ".codex")})


def main(keep=False):
    run_scenarios("codex", make_scenario, run_client, keep)


if __name__ == "__main__":
    main("--keep" in sys.argv)
