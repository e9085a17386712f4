// Everything that the page knows: the tasks, the open questions, and how old that is.
import { computed, effect, signal } from "@preact/signals";
import { get, Problem, serverNow, signedIn } from "./api";
import { EventStream, type Connection } from "./stream";
import type { Question, StreamEvent, Task, TaskPage, Team } from "./types";

export const tasks = new Map<string, Task>();
/** Increases with every change of `tasks`, at most once per frame. */
export const version = signal(0);
export const questions = signal<Question[]>([]);
export const teams = signal<Team[]>([]);
export const canRun = signal(true);
export const connection = signal<Connection>("connecting");
/** When the server was last heard. */
export const heardAt = signal(serverNow());
/** The time, in steps of a second, while the page is visible. */
export const now = signal(serverNow());
export const loaded = signal(false);
export const loadError = signal("");
/** Where older tasks begin; null if all are here. */
export const olderCursor = signal<string | null>(null);
/** How many events came, for tests and curious people. */
export const stats = { events: 0, refreshed: 0, frames: 0 };

const MOST_AT_ONCE = 200;
/** How long changes are collected before tasks are read again. */
const COLLECT = 400;
/** How often open tasks are read again without an event: a process that is gone writes none. */
const RECHECK = 15_000;

type Listener = (name: string, event: StreamEvent) => void;
const listeners = new Set<Listener>();
export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// --- Batches -------------------------------------------------------------------------------------------------

let framePending = false;
/** Shows changes with the next frame, or soon if nobody looks. */
export function changed(): void {
  if (framePending) return;
  framePending = true;
  const show = () => {
    framePending = false;
    stats.frames += 1;
    version.value += 1;
  };
  if (document.hidden) setTimeout(show, 100);
  else requestAnimationFrame(show);
}

/** More tasks than this are not kept: the oldest that have ended are dropped, and can be loaded again. */
const MOST_TASKS = 6_000;
function prune(): void {
  const ended = [...tasks.values()].filter((task) => task.ended !== null && tasks.get(task.root)?.ended !== null);
  ended.sort((a, b) => (a.created < b.created ? -1 : 1));
  for (const task of ended.slice(0, tasks.size - MOST_TASKS + 1_000)) tasks.delete(task.id);
  olderCursor.value = AGAIN;
}
/** Older tasks are to be found from the newest on. */
const AGAIN = "again";

export function put(list: Iterable<Task>): void {
  for (const task of list) {
    const known = tasks.get(task.id);
    // Answers may overtake each other.
    if (!known || known.seq <= task.seq) tasks.set(task.id, task);
  }
  if (tasks.size > MOST_TASKS) prune();
  changed();
}

const dirty = new Set<string>();
let questionsDirty = false;
let timer: ReturnType<typeof setTimeout> | null = null;
let busy = false;

function mark(task: string): void {
  dirty.add(task);
  plan();
}

function plan(soon = false): void {
  if (timer !== null || busy) return;
  timer = setTimeout(
    () => {
      timer = null;
      void refresh();
    },
    soon ? 30 : COLLECT,
  );
}

/** Reads what has changed. */
async function refresh(): Promise<void> {
  if (connection.value !== "live") return;
  busy = true;
  try {
    if (questionsDirty) {
      questionsDirty = false;
      await loadQuestions();
    }
    const some = [...dirty].slice(0, MOST_AT_ONCE);
    some.forEach((id) => dirty.delete(id));
    if (some.length > 0) {
      try {
        const page = await get<TaskPage>(`/tasks?ids=${some.join(",")}`);
        stats.refreshed += page.tasks.length;
        put(page.tasks);
        const found = new Set(page.tasks.map((task) => task.id));
        for (const id of some) if (!found.has(id)) tasks.delete(id);
        await loadAncestors(page.tasks);
      } catch (error) {
        some.forEach((id) => dirty.add(id));
        throw error;
      }
    }
  } catch {
    // The stream notices a server that is gone; what is marked is read when it is back.
  } finally {
    busy = false;
    if (dirty.size > 0 || questionsDirty) plan();
  }
}

/** Reads a task again soon: something was done to it. */
export function touch(task: string): void {
  dirty.add(task);
  questionsDirty = true;
  if (timer !== null) {
    clearTimeout(timer);
    timer = null;
  }
  plan(true);
}

// --- Loading -------------------------------------------------------------------------------------------------

async function loadQuestions(): Promise<void> {
  const page = await get<{ questions: Question[] }>("/questions");
  questions.value = page.questions;
}

/** The parents of tasks that are shown, so that trees are whole at the top. */
async function loadAncestors(of: Task[]): Promise<void> {
  let missing = of;
  for (let depth = 0; depth < 20; depth += 1) {
    const ids = new Set<string>();
    for (const task of missing) for (const id of [task.parent, task.root]) if (id && !tasks.has(id)) ids.add(id);
    if (ids.size === 0) return;
    const page = await get<TaskPage>(`/tasks?ids=${[...ids].slice(0, MOST_AT_ONCE).join(",")}`);
    if (page.tasks.length === 0) return;
    put(page.tasks);
    missing = page.tasks;
  }
}

async function loadAll(): Promise<void> {
  try {
    const [first, waiting] = await Promise.all([
      get<TaskPage>(`/tasks?limit=${MOST_AT_ONCE}`),
      get<{ questions: Question[] }>("/questions"),
    ]);
    // What was known may be gone: it is looked up again, and stays on the page meanwhile.
    for (const id of tasks.keys()) dirty.add(id);
    questions.value = waiting.questions;
    put(first.tasks);
    for (const task of first.tasks) dirty.delete(task.id);
    if (dirty.size > 0) plan();
    loaded.value = true;
    loadError.value = "";
    olderCursor.value = first.next_cursor;
    let cursor = first.next_cursor;
    // Everything that has not ended, and one more page of what has.
    for (let page = 0; cursor && page < 25; page += 1) {
      const open: TaskPage = await get<TaskPage>(`/tasks?limit=${MOST_AT_ONCE}&status=open&cursor=${cursor}`);
      put(open.tasks);
      cursor = open.next_cursor;
    }
    if (olderCursor.value) await loadOlder();
    await loadAncestors([...tasks.values()]);
  } catch (error) {
    if (error instanceof Problem) loadError.value = error.words;
    // The position of the stream is kept, but nothing was loaded: try again.
    setTimeout(() => {
      if (connection.value === "live") void loadAll();
    }, 1_500);
  }
}

export async function loadOlder(): Promise<void> {
  // Past what is here already.
  for (let pages = 0; pages < 40; pages += 1) {
    const cursor = olderCursor.value;
    if (!cursor) return;
    const page = await get<TaskPage>(`/tasks?limit=${MOST_AT_ONCE}${cursor === AGAIN ? "" : `&cursor=${cursor}`}`);
    const news = page.tasks.some((task) => !tasks.has(task.id));
    olderCursor.value = page.next_cursor;
    put(page.tasks);
    await loadAncestors(page.tasks);
    if (news) return;
  }
}

/** Searches what is not loaded, too. */
export async function searchOlder(text: string): Promise<void> {
  // The server looks for words, not for regular expressions.
  if (!olderCursor.value || !text.trim() || /^\/.+\/$/.test(text.trim())) return;
  const page = await get<TaskPage>(`/tasks?limit=100&q=${encodeURIComponent(text.trim())}`);
  put(page.tasks);
  await loadAncestors(page.tasks);
}

export async function loadTree(task: string): Promise<void> {
  const known = tasks.get(task) ?? (await get<TaskPage>(`/tasks?ids=${task}`)).tasks[0];
  if (!known) throw new Problem(404, "unknown_task", `there is no task ${task}`, null);
  const tree = await get<{ tasks: Task[] }>(`/tasks/${known.root}/tree`);
  put(tree.tasks);
}

// --- The stream ----------------------------------------------------------------------------------------------

/** Events after which the list of open questions is another. */
const ABOUT_QUESTIONS = new Set(["asked", "answered", "finished", "granted", "released", "started", "result", "stopping"]);

export const stream = new EventStream({
  opened(fresh) {
    if (fresh || !loaded.value) void loadAll();
    else plan(true);
    if (teams.value.length === 0) {
      get<{ teams: Team[] }>("/teams").then(
        (page) => (teams.value = page.teams),
        () => {},
      );
      get<{ scope: string }>("/session").then(
        (who) => (canRun.value = who.scope !== "read"),
        () => {},
      );
    }
  },
  event(name, event) {
    stats.events += 1;
    if (name === "reset") {
      void loadAll();
    } else if (event.task) {
      mark(event.task);
      if (ABOUT_QUESTIONS.has(name)) questionsDirty = true;
    }
    for (const listener of listeners) listener(name, event);
  },
  state(state) {
    connection.value = state;
  },
  heard() {
    const at = serverNow();
    if (at - heardAt.value > 500) heardAt.value = at;
  },
});

export function begin(): void {
  setInterval(() => {
    if (!document.hidden) now.value = serverNow();
  }, 1_000);
  setInterval(() => {
    if (document.hidden || connection.value !== "live") return;
    let left = 400;
    for (const task of tasks.values()) {
      if (task.status !== "running" && task.status !== "pending") continue;
      dirty.add(task.id);
      if ((left -= 1) === 0) break;
    }
    if (dirty.size > 0) plan();
  }, RECHECK);
  window.addEventListener("online", () => stream.hurry());
  document.addEventListener("visibilitychange", visibility);
  visibility();
}

/** A browser allows few connections to one server: of the tabs that nobody looks at, one stays connected, and notifies. */
let release: (() => void) | null = null;
let wanted: AbortController | null = null;
function visibility(): void {
  now.value = serverNow();
  if (!document.hidden) {
    wanted?.abort();
    release?.();
    wanted = release = null;
    stream.start();
    stream.hurry();
    return;
  }
  if (!navigator.locks) return;
  wanted = new AbortController();
  const mine = wanted;
  void navigator.locks
    .request("longhaul-hidden", { ifAvailable: true }, (lock) => {
      if (mine.signal.aborted) return;
      if (lock) return new Promise<void>((resolve) => (release = resolve));
      stream.stop();
      // Takes over when the other tab is closed or shown.
      void navigator.locks
        .request("longhaul-hidden", { signal: mine.signal }, () => {
          stream.start();
          return new Promise<void>((resolve) => (release = resolve));
        })
        .catch(() => {});
      return;
    })
    .catch(() => {});
}

/** How old the shown data is, in milliseconds; 0 while it is current. */
export const age = computed(() => (connection.value === "live" ? 0 : Math.max(0, now.value - heardAt.value)));

effect(() => {
  if (signedIn.value === false) connection.value = "lost";
});
