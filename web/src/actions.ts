// What people do to tasks.
import { post, request, words } from "./api";
import { index, isFinal, totals } from "./forest";
import { count, plural, price } from "./format";
import { confirm, say } from "./parts";
import { now, put, tasks, touch } from "./store";
import { go, taskPlace } from "./url";
import type { RecordView, Task } from "./types";

async function attempt(what: string, act: () => Promise<void>): Promise<boolean> {
  try {
    await act();
    return true;
  } catch (error) {
    say(`${what}: ${words(error)}`, true);
    return false;
  }
}

/** What stopping a task loses, in words. */
function loss(top: Task): string[] {
  const sum = totals(top, index(tasks).children, now.value);
  const open = sum.tasks - sum.ended;
  const cost = price(sum.cost, sum.unpriced);
  const spent = `${count(sum.tokens)} tokens${cost ? ` (${cost})` : ""}`;
  return [
    open > 1
      ? `${plural(open, "task")} will end: this one and ${count(open - 1)} below it. They have used ${spent} so far.`
      : `The task will end. It has used ${spent} so far.`,
    "Replies that are being written and commands that run are lost. The journal and all files stay as they are. A stopped task can be retried from the start, or continued with a message.",
  ];
}

export function stop(task: Task): void {
  confirm({
    title: `Stop ${task.id} (${task.agent})?`,
    lines: loss(task),
    verb: "Stop",
    act: async () => {
      await attempt("Stop", async () => put([await post<Task>(`/tasks/${task.id}/stop`)]));
      touch(task.id);
    },
  });
}

export function stopTree(task: Task): void {
  const root = tasks.get(task.root) ?? task;
  confirm({
    title: `Stop the whole tree of ${root.id} (${root.agent})?`,
    lines: loss(root),
    verb: "Stop all",
    act: async () => {
      await attempt("Stop", async () => put([await post<Task>(`/tasks/${task.id}/tree/stop`)]));
      touch(root.id);
    },
  });
}

/** How a task is resumed whose team is not served here: nobody but its own team file can run it. */
export const resumeCommand = (task: Task) => `longhaul resume ${task.root}`;

export async function resume(task: Task): Promise<void> {
  if (task.team === null) return say(`The team of ${task.id} is not served here. Run \`${resumeCommand(task)}\` in a terminal.`, true);
  await attempt("Resume", async () => {
    put([await post<Task>(`/tasks/${task.id}/resume`)]);
    touch(task.id);
  });
}

export async function retry(task: Task): Promise<void> {
  await attempt("Retry", async () => {
    const again = await post<Task>(`/tasks/${task.id}/retry`);
    put([again]);
    say(`Retried as ${again.id}.`);
    go(taskPlace(again.id));
  });
}

/** Stops or retries several. Then the list shows just those. */
export function stopAll(list: Task[], done: (ids: string[]) => void): void {
  const open = list.filter((task) => !isFinal(task));
  confirm({
    title: `Stop ${plural(open.length, "task")}?`,
    lines: [
      `${open
        .map((task) => `${task.agent} ${task.id}`)
        .slice(0, 8)
        .join(", ")}${open.length > 8 ? " …" : ""}, and everything below.`,
      "Replies that are being written and commands that run are lost. The journals and all files stay as they are.",
    ],
    verb: "Stop all",
    act: async () => {
      for (const task of open) await attempt(`Stop ${task.id}`, async () => put([await post<Task>(`/tasks/${task.id}/stop`)]));
      done(open.map((task) => task.id));
    },
  });
}

export async function retryAll(list: Task[], done: (ids: string[]) => void): Promise<void> {
  const made: string[] = [];
  for (const task of list) {
    await attempt(`Retry ${task.id}`, async () => {
      const again = await post<Task>(`/tasks/${task.id}/retry`);
      put([again]);
      made.push(again.id);
    });
  }
  if (made.length > 0) done(made);
}

export const canRetry = (task: Task) => task.status === "failed" || task.status === "cancelled";
export const canResume = (task: Task) => !isFinal(task) && task.standing === "interrupted";

export async function send(task: string, text: string): Promise<boolean> {
  return attempt("Message", async () => {
    const sent = await post<{ task: string; continued: boolean }>(`/tasks/${task}/letters`, { text });
    touch(sent.task);
    if (sent.continued) {
      say(`The task had ended: ${sent.task} continues it.`);
      go(taskPlace(sent.task));
    }
  });
}

/** Saves the whole journal of a task as JSON Lines. */
export async function save(task: Task): Promise<void> {
  await attempt("Export", async () => {
    const parts: string[] = [];
    let after = 0;
    for (;;) {
      const response = await request(`/tasks/${task.id}/journal?limit=1000&after=${after}`);
      const page = (await response.json()) as { records: RecordView[]; next_after: number | null };
      for (const record of page.records) parts.push(`${JSON.stringify(record)}\n`);
      if (page.next_after === null) break;
      after = page.next_after;
    }
    const url = URL.createObjectURL(new Blob(parts, { type: "application/jsonl" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = `${task.id}.jsonl`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  });
}
