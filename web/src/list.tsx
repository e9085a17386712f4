// The first page: what needs you, then all tasks in groups.
import { computed, signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { canRetry, retryAll, stopAll } from "./actions";
import { forest, GROUP_TITLE, GROUPS, isFinal, type Forest, type Row } from "./forest";
import { ms, plural, price, short, ticking } from "./format";
import { folds, setFold } from "./memory";
import { Inbox } from "./inbox";
import { Elapsed, say, silentFor, State, To, tokensTitle } from "./parts";
import { canRun, loaded, loadError, loadOlder, now, olderCursor, searchOlder, tasks, version } from "./store";
import { go, place, taskPlace } from "./url";
import { words } from "./api";
import type { Task } from "./types";

// --- What is shown, and when it may change -------------------------------------------------------------------

/** Whether the pointer is on the list: rows keep their place as long as it is. */
const pointed = signal(false);
/** Rows keep their place for a while after a key or a touch, too: until this time. */
const held = signal(0);
const HOLD = 8_000;
export const hold = () => {
  const until = Date.now() + HOLD;
  if (until - held.value > 500) held.value = until;
};
const letGo = () => {
  if (pointed.value) held.value = 0;
  pointed.value = false;
};

let shown: { key: string; forest: Forest } | null = null;
// Waits that run out change groups without an event; every ten seconds is soon enough.
const tens = computed(() => Math.floor(now.value / 10_000) * 10_000);
const fresh = computed(() => {
  void version.value;
  return forest(tasks, place.value, folds.value, tens.value);
});
const order = (rows: Row[]) => rows.map((row) => row.key).join(" ");
/** The rows as they are shown: new order only when no hand is on the list, or when the person asked for it. */
export const view = computed<{ forest: Forest; waiting: boolean }>(() => {
  const next = fresh.value;
  const { q, group, agent, ids } = place.value;
  const key = JSON.stringify([q, group, agent, ids, folds.value, loaded.value]);
  // The clock, too: a hold runs out.
  const isHeld = pointed.value || (held.value > 0 && now.value > 0 && Date.now() < held.value);
  // Rows that come after all others move none.
  if (isHeld && shown && shown.key === key && !`${order(next.rows)} `.startsWith(`${order(shown.forest.rows)} `)) {
    // Content is current, places are not.
    const fresher = new Map(next.rows.map((row) => [row.key, row]));
    const rows = shown.forest.rows.map((row) => fresher.get(row.key) ?? row);
    return { forest: { ...next, rows }, waiting: true };
  }
  shown = { key, forest: next };
  return { forest: next, waiting: false };
});

/** The row that the keyboard is on. */
export const cursor = signal<string | null>(null);
export const selected = signal<ReadonlySet<string>>(new Set());

export function moveCursor(by: number): void {
  const rows = view.value.forest.rows.filter((row) => row.kind === "task");
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row.key === cursor.value);
  const to = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  cursor.value = rows[to]?.key ?? null;
  hold();
  scrollTo.value = cursor.value;
}
const scrollTo = signal<string | null>(null);

export function toggleFold(): void {
  const row = view.value.forest.rows.find((row) => row.key === cursor.value);
  if (row?.kind === "task" && row.below > 0) setFold(row.task, !row.folded);
}

export function toggleSelected(id: string): void {
  const next = new Set(selected.value);
  if (!next.delete(id)) next.add(id);
  selected.value = next;
}

// --- The page ------------------------------------------------------------------------------------------------

const phone = signal(false);
const media = matchMedia("(max-width: 700px)");
phone.value = media.matches;
media.addEventListener("change", () => (phone.value = media.matches));

const heights = () => (phone.value ? { group: 40, task: 70 } : { group: 38, task: 46 });

/** Where the list was when another page was opened. */
let leftAt = 0;

export function ListPage(): JSX.Element {
  const { forest: shown, waiting } = view.value;
  useLayoutEffect(() => {
    window.scrollTo(0, leftAt);
    const note = () => (leftAt = scrollY);
    addEventListener("scroll", note, { passive: true });
    return () => removeEventListener("scroll", note);
  }, []);
  return (
    <main class="page">
      <Inbox />
      <Filters forest={shown} />
      <Bulk />
      <div class="notice-line" role="status">
        {waiting ? "The order has changed; rows move when your pointer leaves the list." : ""}
      </div>
      {shown.rows.length === 0 ? <Nothing /> : <Rows rows={shown.rows} />}
      <Older />
    </main>
  );
}

function Nothing(): JSX.Element {
  if (!loaded.value) return <p class="empty faint">{loadError.value || "Loading the tasks …"}</p>;
  const { q, group, agent, ids } = place.value;
  if (q || group || agent || ids) {
    return (
      <p class="empty">
        No task matches.{" "}
        <button type="button" onClick={() => go({ q: "", group: "", agent: "", ids: "" })}>
          Show all
        </button>
      </p>
    );
  }
  return (
    <p class="empty">
      There are no tasks yet. <kbd>N</kbd> starts one.
    </p>
  );
}

function Older(): JSX.Element | null {
  const [busy, setBusy] = useState(false);
  if (!olderCursor.value) return null;
  return (
    <p class="older">
      <button
        type="button"
        disabled={busy}
        onClick={() => {
          setBusy(true);
          loadOlder()
            .catch((error: unknown) => say(words(error), true))
            .finally(() => setBusy(false));
        }}
      >
        {busy ? "Loading …" : "Load older tasks"}
      </button>
    </p>
  );
}

function Filters({ forest }: { forest: Forest }): JSX.Element {
  const at = place.value;
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  const search = (text: string) => {
    go({ q: text }, true);
    if (timer.current) clearTimeout(timer.current);
    timer.current = setTimeout(() => void searchOlder(text).catch(() => {}), 400);
  };
  const chip = (value: string, label: string, many: number) => (
    <button
      type="button"
      class="chip"
      aria-pressed={(at.group ?? "") === value}
      onClick={() => go({ group: (at.group ?? "") === value ? "" : value }, true)}
    >
      {label} <span class="count">{many}</span>
    </button>
  );
  return (
    <div class="filters" role="search">
      <input
        id="search"
        type="search"
        placeholder="Search   /"
        aria-label="Search tasks by text, agent, id, state or error"
        title="Words, or a regular expression between slashes"
        value={at.q ?? ""}
        onInput={(event) => search(event.currentTarget.value)}
      />
      <div class="chips">
        {GROUPS.map((group) => chip(group, GROUP_TITLE[group], forest.counts[group]))}
        {chip("failed", "Failed", forest.failed)}
        {forest.agents.length > 1 ? (
          <select
            class="chip"
            aria-label="Agent"
            value={at.agent ?? ""}
            onChange={(event) => go({ agent: event.currentTarget.value }, true)}
          >
            <option value="">All agents</option>
            {forest.agents.map((agent) => (
              <option value={agent}>{agent}</option>
            ))}
          </select>
        ) : null}
        {at.ids ? (
          <button type="button" class="chip" onClick={() => go({ ids: "" })}>
            {plural(at.ids.split(",").length, "chosen task")} ×
          </button>
        ) : null}
      </div>
      <Today />
    </div>
  );
}

/** What today's tasks have used. */
function Today(): JSX.Element | null {
  void version.value;
  const midnight = new Date(tens.value).setHours(0, 0, 0, 0);
  let many = 0;
  let used = 0;
  let cost = 0;
  let unpriced = 0;
  for (const task of tasks.values()) {
    if (ms(task.created) < midnight) continue;
    many += 1;
    used += task.usage.input + task.usage.output;
    cost += task.cost;
    unpriced += task.unpriced;
  }
  if (many === 0) return null;
  const spent = price(cost, unpriced);
  return (
    <span class="today faint">
      today: {plural(many, "task")} · {short(used)} tok{spent ? ` · ${spent}` : ""}
    </span>
  );
}

function Bulk(): JSX.Element | null {
  void version.value;
  const chosen = [...selected.value].map((id) => tasks.get(id)).filter((task): task is Task => task !== undefined);
  if (chosen.length === 0 || !canRun.value) return null;
  const open = chosen.filter((task) => !isFinal(task));
  const ended = chosen.filter(canRetry);
  const done = (ids: string[]) => {
    selected.value = new Set();
    go({ ids: ids.join(","), group: "", q: "", agent: "" });
  };
  return (
    <div class="bulk" role="region" aria-label="Chosen tasks">
      <b>{plural(chosen.length, "task")} chosen</b>
      <button type="button" class="danger" disabled={open.length === 0} onClick={() => stopAll(open, done)}>
        Stop {open.length || ""}
      </button>
      <button type="button" disabled={ended.length === 0} onClick={() => void retryAll(ended, done)}>
        Retry {ended.length || ""}
      </button>
      <button type="button" onClick={() => done(chosen.map((task) => task.id))}>
        Show only these
      </button>
      <button type="button" class="quiet" onClick={() => (selected.value = new Set())}>
        Clear
      </button>
    </div>
  );
}

/**
 * Notices whether the pointer is on the list, and keeps the list where it is on the screen meanwhile, whatever comes and
 * goes above: cards, the line about the connection, the buttons for chosen tasks.
 */
function keepInPlace(list: HTMLElement): () => void {
  const place = () => list.getBoundingClientRect().top;
  /** Where it is on the screen. Only a person who scrolls changes that. */
  let top = place();
  let scrolled = scrollY;
  const note = () => {
    top = place();
    scrolled = scrollY;
  };
  let above = 0;
  const space = (pixels: number) => {
    above = pixels;
    list.style.marginTop = pixels > 0 ? `${pixels}px` : "";
  };
  const keep = () => {
    // A person may have scrolled, and the event for it is still to come: that counts for nothing. A page that became
    // shorter has scrolled by itself.
    const clamped = scrollY < scrolled && scrollY + innerHeight >= document.documentElement.scrollHeight - 1;
    const by = place() - top + (clamped ? 0 : scrollY - scrolled);
    if (pointed.peek() && by >= 1) {
      const back = Math.min(above, by);
      space(above - back);
      // There has to be something to scroll to.
      const missing = scrollY + by - back + innerHeight - document.documentElement.scrollHeight;
      if (missing > 0) list.style.marginBottom = `${missing}px`;
      scrollBy(0, by - back);
    } else if (pointed.peek() && by <= -1) {
      const up = Math.min(scrollY, -by);
      space(above - by - up);
      scrollBy(0, -up);
    }
    note();
  };
  // By its coordinates: a browser also tells of pointers that leave when it is the page that moves.
  let at: [number, number] | null = null;
  const point = () => {
    const box = list.getBoundingClientRect();
    if (at && at[0] >= box.left && at[0] <= box.right && at[1] >= box.top && at[1] <= box.bottom) pointed.value = true;
    else letGo();
  };
  const onMove = (event: PointerEvent) => {
    if (event.pointerType === "touch") return;
    at = [event.clientX, event.clientY];
    keep();
    point();
  };
  const onLeave = () => {
    at = null;
    letGo();
  };
  const onScroll = () => {
    note();
    point();
  };
  // As soon as something changes: before the next event, and before the next frame.
  const changes = new MutationObserver(() => pointed.peek() && keep());
  changes.observe(document.body, { childList: true, subtree: true });
  const sizes = new ResizeObserver(keep);
  sizes.observe(document.body);
  document.addEventListener("pointermove", onMove, { passive: true });
  document.documentElement.addEventListener("pointerleave", onLeave);
  addEventListener("scroll", onScroll, { passive: true });
  const stop = pointed.subscribe((isOn) => {
    // The browser would do the same, but only on a page that is scrolled.
    document.documentElement.style.overflowAnchor = isOn ? "none" : "";
    if (!isOn) {
      space(0);
      list.style.marginBottom = "";
    }
    note();
  });
  return () => {
    stop();
    changes.disconnect();
    sizes.disconnect();
    document.removeEventListener("pointermove", onMove);
    document.documentElement.removeEventListener("pointerleave", onLeave);
    removeEventListener("scroll", onScroll);
    letGo();
    document.documentElement.style.overflowAnchor = "";
  };
}

/** Only the rows in view are in the document. */
function Rows({ rows }: { rows: Row[] }): JSX.Element {
  const at = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState<[number, number]>([0, 60]);
  const high = heights();
  const tops: number[] = [];
  let total = 0;
  for (const row of rows) {
    tops.push(total);
    total += high[row.kind];
  }
  const measure = () => {
    const box = at.current?.getBoundingClientRect();
    if (!box) return;
    const from = -box.top - 400;
    const to = -box.top + innerHeight + 400;
    let first = tops.findIndex((top) => top + 70 > from);
    if (first < 0) first = Math.max(0, rows.length - 1);
    let last = first;
    while (last < rows.length && (tops[last] ?? 0) < to) last += 1;
    setRange((was) => (was[0] === first && was[1] === last ? was : [first, last]));
  };
  useLayoutEffect(measure, [rows, phone.value]);
  useEffect(() => {
    let pending = 0;
    const later = () => {
      if (!pending) pending = requestAnimationFrame(() => ((pending = 0), measure()));
    };
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    return () => {
      removeEventListener("scroll", later);
      removeEventListener("resize", later);
      cancelAnimationFrame(pending);
    };
  });
  useEffect(() => (at.current ? keepInPlace(at.current) : undefined), []);
  const wanted = scrollTo.value;
  useLayoutEffect(() => {
    if (!wanted) return;
    scrollTo.value = null;
    const index = rows.findIndex((row) => row.key === wanted);
    const box = at.current?.getBoundingClientRect();
    if (index < 0 || !box) return;
    const top = box.top + (tops[index] ?? 0);
    if (top < 110) scrollBy(0, top - 110);
    else if (top > innerHeight - 90) scrollBy(0, top - innerHeight + 90);
  }, [wanted]);
  return (
    <div
      class="rows"
      role="list"
      aria-label="Tasks"
      ref={at}
      style={{ height: `${total}px` }}
      onPointerDown={hold}
      onFocusIn={hold}
    >
      {rows.slice(range[0], range[1]).map((row, index) => {
        const top = tops[range[0] + index] ?? 0;
        return row.kind === "group" ? (
          <div key={row.key} role="listitem" class="row group" style={{ transform: `translateY(${top}px)` }}>
            <h2>
              {GROUP_TITLE[row.group]} <span class="count">{row.trees}</span>
            </h2>
          </div>
        ) : (
          <TaskRow key={row.key} row={row} top={top} />
        );
      })}
    </div>
  );
}

function TaskRow({ row, top }: { row: Row & { kind: "task" }; top: number }): JSX.Element | null {
  const task = tasks.get(row.task);
  if (!task) return null;
  const { totals, folded, below } = row;
  const silent = silentFor(task, now.value);
  const many = totals.tasks - 1;
  const endedBelow = totals.ended - (isFinal(task) ? 1 : 0);
  const failedBelow = totals.failed - (task.status === "failed" ? 1 : 0);
  const isChosen = selected.value.has(task.id);
  const used = folded ? totals.tokens : task.usage.input + task.usage.output;
  const cost = folded ? price(totals.cost, totals.unpriced) : price(task.cost, task.unpriced);
  const activity = task.activity || (task.status === "pending" ? "queued" : (task.cut_short ?? ""));
  return (
    <div
      role="listitem"
      class={`row task${cursor.value === task.id ? " cursor" : ""}${isChosen ? " chosen" : ""}`}
      data-task={task.id}
      style={{ transform: `translateY(${top}px)` }}
    >
      <span class="pick">
        <input type="checkbox" checked={isChosen} aria-label={`Choose ${task.id}`} onChange={() => toggleSelected(task.id)} />
      </span>
      <span class="fold" style={{ marginInlineStart: `${Math.min(row.depth, 8) * (phone.value ? 8 : 16)}px` }}>
        {below > 0 ? (
          <button
            type="button"
            class="quiet"
            aria-expanded={!folded}
            aria-label={`${folded ? "Unfold" : "Fold"} ${plural(below, "task")} below ${task.id}`}
            onClick={() => setFold(task.id, !folded)}
          >
            {folded ? "▸" : "▾"}
          </button>
        ) : null}
      </span>
      <State task={task} />
      <To place={taskPlace(task.id)} class="what">
        <span class="line1">
          <b class="agent">{task.agent}</b> <span class="headline">{task.headline}</span>
        </span>
        <span class={task.status === "failed" ? "line2 bad" : "line2"}>
          {activity}
          {silent ? (
            <span class="silent">
              {activity ? " · " : ""}
              {silent}
            </span>
          ) : null}
          {activity || silent || !task.ended ? "" : `ended ${ticking(now.value - ms(task.ended))} ago`}
        </span>
      </To>
      <span class="num kids">
        {many > 0 ? (
          <span title={`${endedBelow} of ${plural(many, "task")} below have ended`}>
            {folded ? "+" : ""}
            {endedBelow}/{many}
          </span>
        ) : null}
        {failedBelow > 0 && totals.firstFailed ? (
          <To place={taskPlace(totals.firstFailed)} class="failed-below" title="Open the first task that failed">
            ✗ {failedBelow} failed
          </To>
        ) : null}
      </span>
      <span class="num tok" title={tokensTitle(task)}>
        {used > 0 ? `${short(used)} tok` : ""}
      </span>
      <span class="num cost">{cost}</span>
      <span class="num time">
        <Elapsed task={task} />
      </span>
    </div>
  );
}
