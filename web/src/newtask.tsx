// The form for a new task. What was typed survives a reload.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, words } from "./api";
import { remembered } from "./memory";
import { Dialog, say } from "./parts";
import { put, teams } from "./store";
import { go, taskPlace } from "./url";
import type { Task } from "./types";

export const newTaskOpen = signal(false);

interface Draft {
  team: string;
  agent: string;
  task: string;
  tokens: string;
  dollars: string;
  minutes: string;
  worktree: boolean;
  /** The same draft is the same task, also if it is sent twice. */
  key: string;
}
// Not `randomUUID`: browsers have it only where there is TLS, or on this machine.
const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
const blank = (): Draft => ({ team: "", agent: "", task: "", tokens: "", dollars: "", minutes: "", worktree: false, key: newKey() });
const kept = remembered<Draft>(
  "new-task",
  blank(),
  (value) => typeof value === "object" && value !== null && "task" in value && "key" in value,
);

export function NewTask(): JSX.Element | null {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  if (!newTaskOpen.value) return null;
  const form = kept.value;
  const set = (patch: Partial<Draft>) => (kept.value = { ...kept.value, ...patch });
  const team = teams.value.find((team) => team.name === form.team) ?? teams.value[0];
  const close = () => (newTaskOpen.value = false);
  const number = (text: string, times = 1) => {
    const value = Math.round(Number(text) * times);
    return text.trim() && Number.isFinite(value) && value > 0 ? value : undefined;
  };
  const submit = async () => {
    if (!form.task.trim() || busy) return;
    setBusy(true);
    setProblem("");
    try {
      const budget = { tokens: number(form.tokens), cost: number(form.dollars, 1e6), time: number(form.minutes, 60) };
      const body = {
        task: form.task,
        team: team?.name,
        agent: team?.agents.some((agent) => agent.name === form.agent) ? form.agent : undefined,
        budget,
        isolation: form.worktree ? "worktree" : undefined,
      };
      const task = await post<Task>("/tasks", body, form.key);
      put([task]);
      kept.value = { ...blank(), team: form.team, agent: form.agent };
      close();
      say(`Started ${task.id}.`);
      go(taskPlace(task.id));
    } catch (error) {
      setProblem(words(error));
    } finally {
      setBusy(false);
    }
  };
  // Another text is another task.
  const change = (patch: Partial<Draft>) => set({ ...patch, key: newKey() });
  return (
    <Dialog title="New task" close={close} wide>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <div class="fields">
          <label>
            Team
            <select value={team?.name ?? ""} onChange={(event) => change({ team: event.currentTarget.value, agent: "" })}>
              {teams.value.map((team) => (
                <option value={team.name}>{team.name}</option>
              ))}
            </select>
          </label>
          <label>
            Agent
            <select value={form.agent} onChange={(event) => change({ agent: event.currentTarget.value })}>
              <option value="">{team ? `${team.root} (root)` : "root"}</option>
              {team?.agents
                .filter((agent) => agent.name !== team.root)
                .map((agent) => (
                  <option value={agent.name} title={agent.description}>
                    {agent.name}
                  </option>
                ))}
            </select>
          </label>
        </div>
        <label>
          What should it do?
          <textarea
            rows={8}
            autofocus
            value={form.task}
            onInput={(event) => change({ task: event.currentTarget.value })}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
                event.preventDefault();
                void submit();
              }
            }}
          />
        </label>
        <fieldset class="fields">
          <legend>At most (empty: what the team allows)</legend>
          <label>
            Tokens
            <input inputMode="numeric" value={form.tokens} onInput={(event) => change({ tokens: event.currentTarget.value })} />
          </label>
          <label>
            Dollars
            <input inputMode="decimal" value={form.dollars} onInput={(event) => change({ dollars: event.currentTarget.value })} />
          </label>
          <label>
            Minutes of work
            <input inputMode="numeric" value={form.minutes} onInput={(event) => change({ minutes: event.currentTarget.value })} />
          </label>
        </fieldset>
        <label class="check">
          <input type="checkbox" checked={form.worktree} onChange={(event) => change({ worktree: event.currentTarget.checked })} /> in its
          own git worktree
        </label>
        {problem ? (
          <p class="problem" role="alert">
            {problem}
          </p>
        ) : null}
        <div class="buttons">
          <button type="button" onClick={close}>
            Close <span class="faint">(the draft stays)</span>
          </button>
          <button type="submit" class="yes" disabled={busy || !form.task.trim()} title="Ctrl-Enter">
            Start
          </button>
        </div>
      </form>
    </Dialog>
  );
}
