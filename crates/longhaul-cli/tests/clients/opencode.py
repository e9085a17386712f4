"""opencode: `opencode run` with our server. Its time limit for a call is 60 s without progress."""

import json
import sys

from collect import run_scenarios
from scenario import MODULES, Scenario

OPENCODE = str(MODULES / "opencode-linux-x64/bin/opencode")


def make_scenario(name):
    scenario = Scenario(name)
    scenario.install("opencode")
    return scenario


def run_client(scenario, provider, prompt):
    config = scenario.home / ".config/opencode/opencode.json"
    settings = json.loads(config.read_text())
    settings["provider"] = {"played": {"npm": "@ai-sdk/openai-compatible", "name": "played", "models": {"m": {"name": "m"}},
                                       "options": {"baseURL": f"{provider.url}/v1", "apiKey": "x"}}}
    settings["model"] = settings["small_model"] = "played/m"
    config.write_text(json.dumps(settings))
    env = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return scenario.client([OPENCODE, "run", prompt], 600, env)


def main(keep=False):
    run_scenarios("opencode", make_scenario, run_client, keep)


if __name__ == "__main__":
    main("--keep" in sys.argv)
