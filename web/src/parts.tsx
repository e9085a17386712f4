// Small parts that several pages use.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { count, dateTime, ms, ticking } from "./format";
import { now, tasks } from "./store";
import { go, href, taskPlace, type Place } from "./url";
import type { Line, Task } from "./types";

const SHAPES: Record<string, string> = {
  running: "●",
  waiting: "◌",
  pending: "○",
  asks: "?",
  interrupted: "◇",
  stopping: "◐",
  completed: "✓",
  failed: "✗",
  cancelled: "⊘",
};

/** The state of a task as a shape and a word. */
export function State({ task }: { task: Task }): JSX.Element {
  const word = task.needs_you ? "asks" : task.standing;
  return (
    <span class={`state is-${word}`}>
      <span class="shape" aria-hidden="true">
        {SHAPES[word] ?? "·"}
      </span>
      <span class="word">{word}</span>
    </span>
  );
}

/** How long a task has taken, ticking while it runs. */
export function Elapsed({ task }: { task: Task }): JSX.Element {
  const from = ms(task.started ?? task.created);
  const to = task.ended ? ms(task.ended) : now.value;
  return <time title={`submitted ${dateTime(task.created)}`}>{ticking(to - from)}</time>;
}

/** Half a minute without output is worth a word. */
export function silentFor(task: Task, at: number): string {
  if (task.status !== "running" || task.needs_you) return "";
  const silent = at - ms(task.active);
  return silent > 30_000 ? `silent for ${ticking(silent)}` : "";
}

/** A link inside the page. */
export function To(props: {
  place: Place;
  class?: string | undefined;
  children: ComponentChildren;
  title?: string;
  label?: string;
  style?: Record<string, string>;
}): JSX.Element {
  return (
    <a
      class={props.class}
      href={href(props.place)}
      title={props.title}
      aria-label={props.label}
      style={props.style}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
        event.preventDefault();
        go(props.place);
      }}
    >
      {props.children}
    </a>
  );
}

/** Text in which the ids of known tasks are links. */
export function Linked({ text }: { text: string }): JSX.Element {
  const parts = text.split(/(\bt-[0-9a-hjkmnp-tv-z]{5,15}\b)/);
  return <>{parts.map((part, index) => (index % 2 === 1 && tasks.has(part) ? <To place={taskPlace(part)}>{part}</To> : part))}</>;
}

/** A question laid out for reading, as the server sends it. */
export function Lines({ lines }: { lines: Line[] }): JSX.Element {
  return (
    <div class="lines" tabIndex={0} role="group" aria-label="What is asked, in full">
      {lines.map((line) => (
        <div class={`line ${line.kind}`}>{line.text || "\u00a0"}</div>
      ))}
    </div>
  );
}

export function Copy({ text, label }: { text: string; label: string }): JSX.Element {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      class="quiet small"
      onClick={() => {
        void navigator.clipboard?.writeText(text).then(() => {
          setDone(true);
          setTimeout(() => setDone(false), 1_200);
        });
      }}
    >
      {done ? "Copied" : label}
    </button>
  );
}

/** Shows why a part of the page cannot be shown, and keeps the rest. */
export class Safe extends Component<{ children: ComponentChildren; name: string }, { broken: boolean }> {
  override state = { broken: false };
  override componentDidCatch(): void {
    this.setState({ broken: true });
  }
  override render(): ComponentChildren {
    if (!this.state.broken) return this.props.children;
    return <p class="problem">This part of the page ({this.props.name}) cannot be shown. Reload the page, or use the terminal.</p>;
  }
}

// --- Messages ------------------------------------------------------------------------------------------------

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}
export const toasts = signal<Toast[]>([]);
let next = 1;
export function say(text: string, bad = false): void {
  const toast = { id: next, text, bad };
  next += 1;
  toasts.value = [...toasts.value.slice(-3), toast];
  setTimeout(() => dismiss(toast.id), bad ? 12_000 : 5_000);
}
const dismiss = (id: number) => (toasts.value = toasts.value.filter((toast) => toast.id !== id));

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={toast.bad ? "toast bad" : "toast"}>
          {toast.text}
          <button type="button" class="quiet" aria-label="Dismiss" onClick={() => dismiss(toast.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}

// --- Dialogs -------------------------------------------------------------------------------------------------

interface Ask {
  title: string;
  lines: string[];
  verb: string;
  act: () => Promise<void>;
}
const asking = signal<Ask | null>(null);
/** Asks before something is lost. */
export const confirm = (ask: Ask) => (asking.value = ask);

export function Dialog(props: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }): JSX.Element {
  const at = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = at.current;
    const before = document.activeElement as HTMLElement | null;
    if (dialog && !dialog.open) dialog.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog
      ref={at}
      class={props.wide ? "wide" : undefined}
      aria-label={props.title}
      onCancel={(event) => {
        event.preventDefault();
        props.close();
      }}
      onClick={(event) => {
        if (event.target === at.current) props.close();
      }}
    >
      <div class="dialog">
        <h2>{props.title}</h2>
        {props.children}
      </div>
    </dialog>
  );
}

export function Confirm(): JSX.Element | null {
  const ask = asking.value;
  const [busy, setBusy] = useState(false);
  if (!ask) return null;
  const close = () => (asking.value = null);
  return (
    <Dialog title={ask.title} close={close}>
      {ask.lines.map((line) => (
        <p>{line}</p>
      ))}
      <div class="buttons">
        <button type="button" onClick={close}>
          Cancel
        </button>
        <button
          type="button"
          class="danger"
          autofocus
          disabled={busy}
          onClick={() => {
            setBusy(true);
            void ask.act().finally(() => {
              setBusy(false);
              close();
            });
          }}
        >
          {ask.verb}
        </button>
      </div>
    </Dialog>
  );
}

export const tokens = (task: Task) => task.usage.input + task.usage.output;
export const tokensTitle = (task: Task) =>
  `${count(task.usage.input)} tokens in (${count(task.usage.cached)} from the cache), ${count(task.usage.output)} out`;
