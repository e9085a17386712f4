"""What Codex and opencode have to show: start three tasks, wait, collect; and a call that is longer than their time-outs."""

import re
import time

from scenario import task_ids

THREE = ["apples", "pears", "plums"]


def play_three(request):
    """Starts three tasks, waits for all of them, and tells what they found."""
    if "run_background_agent" not in request.calls:
        return "call", [("run_background_agent", {"agent": "root", "task": f"Count the {what}."}) for what in THREE]
    found = [what for what in THREE if f"Found: Count the {what}." in request.all]
    if len(found) == 3 and "wait_background_agents" in request.calls:
        return "say", "FINAL ANSWER: " + ", ".join(found)
    return "call", [("wait_background_agents", {"task_ids": task_ids(request.all)})]


class PlayLong:
    """Asks for something that takes longer than the client waits, and collects it by its id."""

    def __init__(self, time, **wait):
        self.order = {"task": f"Wait for {time}.", **wait}

    def __call__(self, request):
        if "ask_root" not in request.calls:
            return "call", [("ask_root", self.order)]
        if "That time is over." in request.all:
            waits = request.calls.count("wait_background_agents")
            return "say", f"FINAL ANSWER: over after {waits} waits"
        assert task_ids(request.all), f"the call came back without an id: {request.texts[-1]}"
        return "call", [("wait_background_agents", {"task_ids": task_ids(request.all)})]


def check_three(name, scenario, run):
    done = run("Count apples, pears and plums with the longhaul agents.")
    text = done.stdout + done.stderr
    assert "FINAL ANSWER: apples, pears, plums" in text, text
    tasks = scenario.tasks()
    assert [task["status"] for task in tasks] == ["completed"] * 3, tasks
    print(f"{name}: three tasks were started, waited for and collected")


def check_long(name, scenario, run):
    begun = time.monotonic()
    done = run("Have the longhaul agent wait.")
    text = done.stdout + done.stderr
    waits = re.search(r"FINAL ANSWER: over after (\d+) waits", text)
    assert waits and int(waits.group(1)) >= 1, text
    assert time.monotonic() - begun > 65, "it was too fast to show anything"
    (task,) = scenario.tasks()
    assert task["status"] == "completed", task
    took = time.monotonic() - begun
    print(f"{name}: a call longer than its time-out came back with {task['id']} and was collected after {took:.0f} s")


def run_scenarios(name, make_scenario, run_client, keep=False, long=PlayLong("seventy seconds")):
    """Runs both scenarios, each in a place of its own."""
    from provider import Provider

    for what, play, check in (("three", play_three, check_three), ("long", long, check_long)):
        scenario = make_scenario(f"{name}-{what}")
        provider = Provider(play, scenario.log)
        failed = True
        try:
            check(name, scenario, lambda prompt: run_client(scenario, provider, prompt))
            assert not provider.errors, provider.errors
            failed = False
        finally:
            if failed:
                print(f"{name}: see {scenario.dir}")
            scenario.end(keep or failed)
