// The transcript of a task, as the terminal tells it.
import type { JSX } from "preact";
import { memo } from "./memo";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { clock, dateTime, duration, ms, plural } from "./format";
import { keyOf, QuestionCard } from "./inbox";
import { following, type TranscriptFeed } from "./journal";
import { Markdown } from "./markdown";
import { matcher } from "./match";
import { Copy, Lines, Linked, Safe, To } from "./parts";
import { questions } from "./store";
import { go, place } from "./url";
import type { Item, Line } from "./types";

export const KINDS: [string, string][] = [
  ["", "All"],
  ["text", "Texts"],
  ["call", "Calls"],
  ["letter", "Letters"],
  ["error", "Errors"],
];

const isError = (item: Item) => item.is_error === true || (item.kind === "end" && item.status === "failed");

function fits(item: Item, kind: string): boolean {
  if (item.kind === "order") return false;
  switch (kind) {
    case "text":
      return item.kind === "said" || item.kind === "thought" || item.kind === "end";
    case "call":
      return item.kind === "call" || item.kind === "asked";
    case "letter":
      return item.kind === "letter";
    case "error":
      return isError(item) || item.tone === "attention" || item.tone === "failed";
    default:
      return item.level !== "trace";
  }
}

/** Everything that an entry says. */
const told = (item: Item) => `${item.gist}\n${item.text ?? ""}\n${item.arguments ?? ""}\n${item.output ?? ""}\n${item.from ?? ""}`;

export function TranscriptView({ feed }: { feed: TranscriptFeed }): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const top = useRef<HTMLDivElement>(null);
  const [unseen, setUnseen] = useState(0);
  const lastSeen = useRef(0);
  const transcript = feed.shown.value;
  const kind = place.value.kind ?? "";
  const find = place.value.find ?? "";
  const matches = useMemo(() => matcher(find), [find]);
  const items = (transcript?.items ?? []).filter((item) => fits(item, kind) && (!matches || matches(told(item))));
  const end = items[items.length - 1];

  useLayoutEffect(() => {
    following.value = !place.value.entry;
    lastSeen.current = 0;
    setUnseen(0);
  }, [feed]);

  useLayoutEffect(() => {
    const at = scroller.current;
    if (!at || !transcript) return;
    if (following.value) {
      at.scrollTop = at.scrollHeight;
      lastSeen.current = end?.seq ?? 0;
      if (unseen) setUnseen(0);
    } else {
      const fresh = items.filter((item) => item.seq > lastSeen.current).length;
      if (fresh !== unseen) setUnseen(fresh);
    }
  }, [transcript, kind, find, following.value]);

  // A permalink: the entry, once it is here.
  const wanted = Number(place.value.entry ?? 0);
  const found = useRef(0);
  useLayoutEffect(() => {
    if (!wanted || !transcript || found.current === wanted) return;
    const first = transcript.items[0]?.seq ?? 0;
    if (first > wanted && transcript.before !== null) {
      void feed.older(500);
      return;
    }
    const near = [...transcript.items].reverse().find((item) => item.seq <= wanted);
    const element = near && scroller.current?.querySelector<HTMLElement>(`[data-seq="${near.seq}"]`);
    if (element) {
      found.current = wanted;
      element.scrollIntoView({ block: "center" });
      element.classList.add("target");
    }
  }, [transcript, wanted]);

  useEffect(() => {
    const at = top.current;
    const root = scroller.current;
    if (!at || !root) return;
    const watch = new IntersectionObserver(
      (seen) => {
        if (!seen.some((entry) => entry.isIntersecting) || following.value) return;
        const height = root.scrollHeight;
        const from = root.scrollTop;
        void feed.older().then((more) => {
          if (more) requestAnimationFrame(() => (root.scrollTop = from + root.scrollHeight - height));
        });
      },
      { root, rootMargin: "600px 0px 0px 0px" },
    );
    watch.observe(at);
    return () => watch.disconnect();
  }, [feed, transcript?.before]);

  // Entries get their height when they are first drawn: the end moves without new ones.
  const content = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const at = scroller.current;
    if (!at || !content.current) return;
    const watch = new ResizeObserver(() => {
      if (following.value) at.scrollTop = at.scrollHeight;
    });
    watch.observe(content.current);
    watch.observe(at);
    return () => watch.disconnect();
  }, [feed]);

  const lastTop = useRef(0);
  const onScroll = () => {
    const at = scroller.current;
    if (!at) return;
    const isUp = at.scrollTop < lastTop.current - 1;
    lastTop.current = at.scrollTop;
    const isEnd = at.scrollHeight - at.scrollTop - at.clientHeight < 48;
    if (isEnd && !following.value && !isUp) following.value = true;
    else if (isUp && !isEnd && following.value) {
      following.value = false;
      lastSeen.current = end?.seq ?? 0;
    }
  };
  return (
    <div class="transcript-frame">
      <div class="transcript" ref={scroller} onScroll={onScroll} tabIndex={0} role="log" aria-label="Transcript" aria-live="off">
        <div ref={content}>
          <div ref={top} class="older-mark faint">
            {!transcript
              ? feed.problem.value || "Loading …"
              : transcript.before !== null
                ? "Older entries load as you scroll up."
                : "The transcript begins here."}
          </div>
          {items.map((item, index) => (
            <Safe key={`${item.kind}${item.seq}.${item.call ?? item.question ?? ""}`} name="an entry">
              <ItemView item={item} task={feed.task} again={items[index - 1]?.at.slice(0, 16) === item.at.slice(0, 16)} />
            </Safe>
          ))}
          {transcript && items.length === 0 ? (
            <p class="faint">{kind || find ? "Nothing like this in what is loaded." : "Nothing has happened yet."}</p>
          ) : null}
          {find && transcript?.before != null ? (
            <button type="button" class="small" onClick={() => void feed.older(500)}>
              Look in older entries
            </button>
          ) : null}
        </div>
      </div>
      {!following.value && transcript ? (
        <button
          type="button"
          class="pill"
          onClick={() => {
            following.value = true;
          }}
        >
          {unseen > 0 ? `${unseen} new ↓` : "To the end ↓"}
        </button>
      ) : null}
    </div>
  );
}

function Stamp({ item, task }: { item: Item; task: string }): JSX.Element {
  return (
    <To
      place={{ task, entry: String(item.seq), tab: "" }}
      class="stamp"
      title={`${dateTime(item.at)} · entry ${item.seq} · link to this entry`}
    >
      {clock(item.at)}
    </To>
  );
}

const ItemView = memo(
  function ItemView({ item, task, again }: { item: Item; task: string; again: boolean }): JSX.Element {
    return (
      <div
        class={`item ${item.kind} tone-${item.tone}${isError(item) ? " error" : ""}${again ? " again" : ""}`}
        data-seq={item.seq}
        data-error={isError(item) ? "1" : undefined}
      >
        <Stamp item={item} task={task} />
        <div class="body">{body(item, task)}</div>
      </div>
    );
  },
  (a, b) => a.again === b.again && (a.item === b.item || (!a.item.live && JSON.stringify(a.item) === JSON.stringify(b.item))),
);

function body(item: Item, task: string): JSX.Element {
  switch (item.kind) {
    case "said":
      return <Markdown text={item.text ?? ""} live={item.live} />;
    case "thought":
      return item.live ? (
        <div class="thinking pre">{item.text}</div>
      ) : (
        <details>
          <summary>
            <span class="faint">~ {item.gist}</span>
          </summary>
          <div class="thinking pre">{item.text}</div>
        </details>
      );
    case "call":
      return <Call item={item} />;
    case "letter":
      return (
        <div class="letter-box">
          <div class="letter-head">
            <b>
              » <Linked text={item.from ?? ""} />
            </b>
            <span class="faint">{item.read ? `read ${clock(item.read)}` : "not read yet"}</span>
          </div>
          <Markdown text={item.text ?? ""} />
        </div>
      );
    case "asked":
      return <Asked item={item} task={task} />;
    case "end":
      return <strong class={`end is-${item.status}`}>{item.gist}</strong>;
    default:
      return (
        <span class="note">
          <Linked text={item.text ?? item.gist} />
        </span>
      );
  }
}

function Asked({ item, task }: { item: Item; task: string }): JSX.Element {
  const open = questions.value.find((question) => question.task === task && question.question === item.question);
  if (!item.answer && open) return <QuestionCard key={keyOf(open)} question={open} linked={false} />;
  return (
    <details>
      <summary>
        <span class="faint">? {item.gist}</span> {item.answer ? <b>{item.answer}</b> : null}
      </summary>
      <Lines lines={Array.isArray(item.lines) ? (item.lines as Line[]) : []} />
    </details>
  );
}

/** JSON laid out, or the text as it is. */
function laidOut(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function Call({ item }: { item: Item }): JSX.Element {
  const [open, setOpen] = useState(false);
  const took = item.returned ? duration(ms(item.returned) - ms(item.at)) : "";
  const lines = typeof item.lines === "number" ? plural(item.lines, "line") : "";
  const what = item.returned ? [item.is_error ? "error" : "", lines, took].filter(Boolean).join(" · ") : (item.progress ?? "runs");
  return (
    <details class="call-box" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <code class="gist">{item.gist}</code>
        <span class={item.is_error ? "outcome bad" : "outcome"}>{what}</span>
      </summary>
      {open ? (
        <div class="two">
          <div>
            <div class="label">
              Arguments <Copy text={item.arguments ?? ""} label="Copy" />
            </div>
            <pre tabIndex={0}>{laidOut(item.arguments ?? "")}</pre>
          </div>
          <div>
            <div class="label">Result {item.output ? <Copy text={item.output} label="Copy" /> : null}</div>
            <pre tabIndex={0} class={item.is_error ? "bad" : undefined}>
              {item.output ?? item.progress ?? "It has not returned yet."}
            </pre>
          </div>
        </div>
      ) : null}
    </details>
  );
}

/** Scrolls to the next error in what is loaded. Says whether there was one. */
export function nextError(): boolean {
  const scroller = document.querySelector(".transcript");
  if (!scroller) return false;
  const top = scroller.getBoundingClientRect().top;
  const errors = [...scroller.querySelectorAll<HTMLElement>("[data-error]")];
  const next = errors.find((error) => error.getBoundingClientRect().top > top + 60) ?? errors[0];
  if (!next) return false;
  following.value = false;
  next.scrollIntoView({ block: "start" });
  scroller.scrollTop -= 40;
  next.classList.add("target");
  return true;
}

export const setKind = (index: number) => {
  const kind = KINDS[index - 1];
  if (kind) go({ kind: kind[0] }, true);
};
