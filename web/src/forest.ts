// The tasks as rows: trees in groups, folded, filtered, with their sums. No DOM here.
import { ms } from "./format";
import { matcher } from "./match";
import type { Place } from "./url";
import type { Task } from "./types";

export type Group = "needs" | "working" | "waiting" | "finished";
export const GROUPS: Group[] = ["needs", "working", "waiting", "finished"];
export const GROUP_TITLE: Record<Group, string> = {
  needs: "Needs you",
  working: "Working",
  waiting: "Waiting",
  finished: "Finished",
};

export interface Totals {
  tasks: number;
  ended: number;
  failed: number;
  /** The first task that failed: in the order of the tree, the deepest cause. */
  firstFailed: string | null;
  tokens: number;
  cost: number;
  unpriced: number;
  group: Group;
}

export type Row =
  | { kind: "group"; key: string; group: Group; trees: number }
  | { kind: "task"; key: string; task: string; depth: number; folded: boolean; below: number; totals: Totals };

export interface Forest {
  rows: Row[];
  counts: Record<Group, number>;
  failed: number;
  agents: string[];
}

export const isFinal = (task: Task) => task.status !== "pending" && task.status !== "running";

export function groupOf(task: Task, at: number): Group {
  if (isFinal(task)) return "finished";
  if (task.needs_you || task.standing === "interrupted") return "needs";
  const waits = task.waiting && !(task.waiting.until && ms(task.waiting.until) < at);
  return task.status === "running" && !waits ? "working" : "waiting";
}

export interface Index {
  children: Map<string, Task[]>;
  tops: Task[];
}

const byAge = (a: Task, b: Task) => (a.created < b.created ? -1 : a.created > b.created ? 1 : a.id < b.id ? -1 : 1);

export function index(tasks: Map<string, Task>): Index {
  const children = new Map<string, Task[]>();
  const tops: Task[] = [];
  for (const task of tasks.values()) {
    if (task.parent && tasks.has(task.parent)) {
      const list = children.get(task.parent);
      if (list) list.push(task);
      else children.set(task.parent, [task]);
    } else tops.push(task);
  }
  for (const list of children.values()) list.sort(byAge);
  tops.sort((a, b) => byAge(b, a));
  return { children, tops };
}

export function totals(task: Task, children: Map<string, Task[]>, at: number, into?: Map<string, Totals>): Totals {
  const sum: Totals = {
    tasks: 1,
    ended: isFinal(task) ? 1 : 0,
    failed: task.status === "failed" ? 1 : 0,
    firstFailed: null,
    tokens: task.usage.input + task.usage.output,
    cost: task.cost,
    unpriced: task.unpriced,
    group: groupOf(task, at),
  };
  for (const child of children.get(task.id) ?? []) {
    const below = totals(child, children, at, into);
    sum.tasks += below.tasks;
    sum.ended += below.ended;
    sum.failed += below.failed;
    sum.firstFailed ??= below.firstFailed;
    sum.tokens += below.tokens;
    sum.cost += below.cost;
    sum.unpriced += below.unpriced;
    if (GROUPS.indexOf(below.group) < GROUPS.indexOf(sum.group)) sum.group = below.group;
  }
  if (sum.firstFailed === null && task.status === "failed") sum.firstFailed = task.id;
  into?.set(task.id, sum);
  return sum;
}

const told = (task: Task) =>
  `${task.headline}\n${task.agent}\n${task.id}\n${task.standing}\n${task.team ?? ""}\n${task.error ?? ""}`;

export function forest(tasks: Map<string, Task>, place: Place, folds: Record<string, 0 | 1>, at: number): Forest {
  const { children, tops } = index(tasks);
  const matches = matcher(place.q ?? "");
  const only = place.ids ? new Set(place.ids.split(",")) : null;
  const picky = matches !== null || Boolean(place.agent) || only !== null || place.group === "failed";
  const hits = new Set<string>();
  if (picky) {
    for (const task of tasks.values()) {
      const fits =
        (!matches || matches(told(task))) &&
        (!place.agent || task.agent === place.agent) &&
        (!only || only.has(task.id)) &&
        (place.group !== "failed" || task.status === "failed");
      for (let up: Task | undefined = fits ? task : undefined; up && !hits.has(up.id);) {
        hits.add(up.id);
        up = up.parent ? tasks.get(up.parent) : undefined;
      }
    }
  }
  const sums = new Map<string, Totals>();
  const counts: Record<Group, number> = { needs: 0, working: 0, waiting: 0, finished: 0 };
  const inGroup: Record<Group, Task[]> = { needs: [], working: [], waiting: [], finished: [] };
  let failed = 0;
  for (const top of tops) {
    const sum = totals(top, children, at, sums);
    counts[sum.group] += 1;
    if (sum.failed > 0) failed += 1;
    if (picky && !hits.has(top.id)) continue;
    if (place.group && place.group !== "failed" && place.group !== sum.group) continue;
    inGroup[sum.group].push(top);
  }
  const rows: Row[] = [];
  const add = (task: Task, depth: number) => {
    const sum = sums.get(task.id);
    if (!sum) return;
    const below = sum.tasks - 1;
    // A search shows what is folded. Trees that have ended are folded, unless somebody opened them.
    const folded = below > 0 && !picky && (folds[task.id] ?? (sum.group === "finished" || below > 50 ? 1 : 0)) === 1;
    rows.push({ kind: "task", key: task.id, task: task.id, depth, folded, below, totals: sum });
    if (folded) return;
    for (const child of children.get(task.id) ?? []) if (!picky || hits.has(child.id)) add(child, depth + 1);
  };
  for (const group of GROUPS) {
    const trees = inGroup[group];
    if (trees.length === 0) continue;
    rows.push({ kind: "group", key: `group-${group}`, group, trees: trees.length });
    for (const top of trees) add(top, 0);
  }
  const agents = [...new Set([...tasks.values()].map((task) => task.agent))].sort();
  return { rows, counts, failed, agents };
}
