// Keys for everything.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { canResume, canRetry, resume, retry, stop, stopTree } from "./actions";
import { index, isFinal } from "./forest";
import { cursor, moveCursor, toggleFold, toggleSelected, view } from "./list";
import { focusQuestion } from "./inbox";
import { newTaskOpen } from "./newtask";
import { Dialog, say } from "./parts";
import { canRun, tasks } from "./store";
import { following } from "./journal";
import { nextError, setKind } from "./transcript";
import { go, listPlace, place, taskPlace } from "./url";
import { treeRows, zoomBy } from "./waterfall";
import { nextTab, showChanges, showFall } from "./run";
import type { Task } from "./types";

export const helpOpen = signal(false);

const KEYS: [string, string][] = [
  ["j k, ↓ ↑", "move"],
  ["Enter", "open the task"],
  ["Esc", "back one level"],
  ["← →, Space", "fold and unfold a tree"],
  ["/", "search tasks; in a run, find in the transcript"],
  ["a", "go to the next question"],
  ["y n a", "on a question: yes, no, always …; then e p t: exactly this call, this program, every call of the tool"],
  ["N", "new task"],
  ["m", "write to the task; Ctrl-Enter sends"],
  ["s, S", "stop the task; stop its whole tree (both ask)"],
  ["r, R", "resume a task that no process runs; retry a failed or stopped one"],
  ["v", "choose the task, to stop or retry several"],
  [".", "next error: in the transcript, then in the tasks of the run"],
  ["[ ]", "previous, next task of the run"],
  ["1 … 5", "kinds: all, texts, calls, letters, errors"],
  ["t", "next part: transcript, letters, output, changes, usage, journal"],
  ["d", "what the task has changed in its git worktree"],
  ["w, + − < >", "waterfall on and off; zoom in and out, move"],
  ["f, G", "follow the end of the transcript"],
  ["c", "copy the id of the task"],
  ["?", "these keys"],
];

export function Help(): JSX.Element | null {
  if (!helpOpen.value) return null;
  return (
    <Dialog title="Keys" close={() => (helpOpen.value = false)} wide>
      <dl class="keys">
        {KEYS.map(([keys, what]) => (
          <div>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p class="faint">● runs · ◌ waits · ○ queued · ? asks · ◇ interrupted · ✓ completed · ✗ failed · ⊘ cancelled</p>
      <div class="buttons">
        <button type="button" autofocus onClick={() => (helpOpen.value = false)}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

/** The task that a key is for: the open one, or the one that the keyboard is on. */
function current(): Task | undefined {
  const id = place.value.task ?? cursor.value;
  return id ? tasks.get(id) : undefined;
}

function sibling(by: number): void {
  const task = current();
  if (!task) return;
  const rows = treeRows(task.root).map((row) => row.task);
  const at = rows.findIndex((other) => other.id === task.id);
  const next = rows[at + by];
  if (next) go(taskPlace(next.id));
}

function toNextError(): void {
  if (!place.value.task) {
    const row = view.value.forest.rows.find((row) => row.kind === "task" && row.totals.firstFailed);
    if (row?.kind === "task" && row.totals.firstFailed) go(taskPlace(row.totals.firstFailed));
    return;
  }
  const task = current();
  if (!task) return;
  const rows = treeRows(task.root).map((row) => row.task);
  const at = rows.findIndex((other) => other.id === task.id);
  const around = [...rows.slice(at + 1), ...rows.slice(0, at)];
  // The deepest failed task is the cause.
  const { children } = index(tasks);
  const isCause = (other: Task) => other.status === "failed" && !(children.get(other.id) ?? []).some((child) => child.status === "failed");
  const next = around.find(isCause);
  if (nextError() && !next) return;
  if (next) go(taskPlace(next.id));
}

export function listenToKeys(): void {
  document.addEventListener("keydown", (event) => {
    const at = event.target as HTMLElement;
    const typing = at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName);
    if (event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (typing && (at as HTMLInputElement).type !== "checkbox") {
      if (event.key === "Escape" && (at.id === "search" || at.id === "find")) {
        at.blur();
        go(at.id === "find" ? { find: "" } : { q: "" }, true);
      }
      if (event.key === "Enter" && at.id === "find") at.blur();
      if (event.key === "Enter" && at.id === "search") {
        at.blur();
        cursor.value = null;
        moveCursor(1);
      }
      return;
    }
    const inRun = Boolean(place.value.task);
    const task = current();
    const run = (act: (task: Task) => void, allowed: (task: Task) => boolean) => {
      if (task && canRun.value && allowed(task)) act(task);
    };
    const onControl = ["BUTTON", "A", "SUMMARY"].includes(at.tagName);
    switch (event.key) {
      case "j":
      case "ArrowDown":
        if (event.key === "ArrowDown" && (inRun || at.closest(".question"))) return;
        if (inRun) sibling(1);
        else moveCursor(1);
        break;
      case "k":
      case "ArrowUp":
        if (event.key === "ArrowUp" && (inRun || at.closest(".question"))) return;
        if (inRun) sibling(-1);
        else moveCursor(-1);
        break;
      case "]":
        sibling(1);
        break;
      case "[":
        sibling(-1);
        break;
      case "Enter":
        if (inRun || onControl || !task) return;
        go(taskPlace(task.id));
        break;
      case "ArrowLeft":
      case "ArrowRight":
      case " ":
        if (inRun || onControl || !cursor.value) return;
        toggleFold();
        break;
      case "Escape":
        if (inRun) go(listPlace);
        else if (place.value.q || place.value.group || place.value.agent || place.value.ids) go({ q: "", group: "", agent: "", ids: "" });
        else cursor.value = null;
        break;
      case "/": {
        const focus = () => document.getElementById(inRun ? "find" : "search")?.focus();
        if (inRun && place.value.tab) {
          go({ tab: "", entry: "" }, true);
          setTimeout(focus);
        } else focus();
        break;
      }
      case "?":
        helpOpen.value = true;
        break;
      case "a":
        focusQuestion();
        break;
      case "N":
        if (canRun.value) newTaskOpen.value = true;
        break;
      case "m":
        if (!inRun) return;
        document.getElementById("message")?.focus();
        break;
      case "s":
      case "x":
        run(stop, (task) => !isFinal(task));
        break;
      case "S":
        run(stopTree, (task) => !isFinal(tasks.get(task.root) ?? task));
        break;
      case "r":
        run((task) => void resume(task), canResume);
        break;
      case "R":
        run((task) => void retry(task), canRetry);
        break;
      case "v":
        if (!inRun && task) toggleSelected(task.id);
        break;
      case ".":
        toNextError();
        break;
      case "f":
      case "l":
      case "G":
        if (!inRun) return;
        following.value = event.key === "G" ? true : !following.value;
        break;
      case "t":
        if (!inRun) return;
        nextTab();
        break;
      case "d":
        if (!inRun) return;
        showChanges();
        break;
      case "w":
        if (!inRun) return;
        showFall.value = !showFall.value;
        break;
      case "+":
      case "=":
      case "-":
        if (!inRun) return;
        zoomBy(event.key === "-" ? 0.5 : 2);
        break;
      case "<":
      case ">":
        if (!inRun) return;
        zoomBy(1, event.key === "<" ? -0.5 : 0.5);
        break;
      case "c":
        if (task) void navigator.clipboard?.writeText(task.id).then(() => say(`Copied ${task.id}.`));
        break;
      case "1":
      case "2":
      case "3":
      case "4":
      case "5":
        if (!inRun) return;
        setKind(Number(event.key));
        break;
      default:
        return;
    }
    event.preventDefault();
  });
}
