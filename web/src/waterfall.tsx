// When each task of a tree worked and waited.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "./api";
import { axis, type Axis } from "./axis";
import { index, isFinal } from "./forest";
import { clock, duration, ms } from "./format";
import { State, To } from "./parts";
import { listen, now, tasks, version } from "./store";
import { taskPlace } from "./url";
import type { Span, Task, TimelinePage } from "./types";

const ROW = 38;
/** What counts as idle, if a whole tree does it. */
const IDLE = new Set<Span["kind"]>(["queued", "waits_for_person", "waits_for_letter", "waits_for_provider", "waits_for_tasks"]);
const NAMES: Record<Span["kind"], string> = {
  queued: "queued",
  working: "works",
  call: "call",
  waits_for_tasks: "waits for tasks",
  waits_for_person: "waits for a person",
  waits_for_provider: "retries its provider",
  waits_for_letter: "waits for a letter",
};

/** The tasks of a tree with their depths, parents first. */
export function treeRows(root: string): { task: Task; depth: number }[] {
  const top = tasks.get(root);
  if (!top) return [];
  const { children } = index(tasks);
  const rows: { task: Task; depth: number }[] = [];
  const add = (task: Task, depth: number) => {
    rows.push({ task, depth });
    for (const child of children.get(task.id) ?? []) add(child, depth + 1);
  };
  add(top, 0);
  return rows;
}

/** The part of the time that is shown. */
const zoomed = signal<[number, number]>([0, 1]);
const setZoom = (from: number, to: number) => {
  zoomed.value = [Math.max(0, from), Math.min(1, to)];
};
/** Zooms in (2) or out (0.5), around the middle; moves by a part of what is shown. */
export function zoomBy(factor: number, move = 0): void {
  const [from, to] = zoomed.value;
  const half = Math.min(0.5, (to - from) / factor / 2);
  const middle = Math.min(1 - half, Math.max(half, (from + to) / 2 + move * (to - from)));
  if (half > 0.002) setZoom(middle - half, middle + half);
}

function useTimelines(root: string): Map<string, Span[]> {
  const [spans, setSpans] = useState<Map<string, Span[]>>(new Map());
  useEffect(() => {
    let closed = false;
    let timer: ReturnType<typeof setTimeout> | null = null;
    let pause = 1_200;
    const read = () => {
      timer = null;
      const begun = performance.now();
      get<TimelinePage>(`/tasks/${root}/tree/timeline`).then(
        (page) => {
          // A large tree is read less often.
          pause = Math.max(1_200, (performance.now() - begun) * 20);
          if (!closed) setSpans(new Map(page.tasks.map((one) => [one.task, one.spans])));
        },
        () => {},
      );
    };
    read();
    const stop = listen((name, event) => {
      if (name === "reset" || (event.root === root && name !== "text" && name !== "reasoning")) timer ??= setTimeout(read, pause);
    });
    return () => {
      closed = true;
      stop();
      if (timer) clearTimeout(timer);
    };
  }, [root]);
  return spans;
}

export function Waterfall({ root, selected }: { root: string; selected: string }): JSX.Element {
  void version.value;
  const spans = useTimelines(root);
  const rows = treeRows(root);
  const live = rows.some((row) => !isFinal(row.task));
  const zoom = zoomed.value;
  const [brush, setBrush] = useState<[number, number] | null>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  useEffect(() => setZoom(0, 1), [root]);
  const at = live ? now.value : 0;
  const line: Axis = useMemo(() => {
    const busy: [number, number][] = [];
    let start = Infinity;
    let end = 0;
    for (const { task } of rows) {
      start = Math.min(start, ms(task.created));
      end = Math.max(end, task.ended ? ms(task.ended) : at);
      for (const span of spans.get(task.id) ?? []) {
        if (!IDLE.has(span.kind) && span.kind !== "call") busy.push([ms(span.from), span.to ? ms(span.to) : at]);
      }
    }
    if (!Number.isFinite(start)) start = end = Date.now();
    return axis(busy, start, Math.max(end, start + 100));
  }, [spans, rows.length, at, root]);
  const width = zoom[1] - zoom[0];
  const x = (time: number) => (line.x(time) - zoom[0]) / width;
  const ticks = [0.02, 0.26, 0.5, 0.74].map((place) => ({ place, time: line.time(zoom[0] + place * width) }));
  // Times that would look the same get a digit more.
  const fine = (ticks[3]?.time ?? 0) - (ticks[0]?.time ?? 0) < 4_000;
  const first = Math.max(0, Math.floor(top / ROW) - 10);
  const shown = rows.slice(first, first + 80);

  const track = useRef<HTMLDivElement>(null);
  const placeOf = (event: PointerEvent) => {
    const box = track.current?.getBoundingClientRect();
    return box ? Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) : 0;
  };
  return (
    <section class="waterfall" aria-label="Waterfall">
      <div class="fall-head">
        <div class="fall-label faint">
          {zoom[0] > 0 || zoom[1] < 1 ? (
            <button type="button" class="small" onClick={() => setZoom(0, 1)}>
              Show all
            </button>
          ) : (
            "drag to zoom"
          )}
        </div>
        <div
          class="fall-axis"
          ref={track}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            setBrush([placeOf(event), placeOf(event)]);
          }}
          onPointerMove={(event) => brush && setBrush([brush[0], placeOf(event)])}
          onPointerUp={() => {
            if (brush) {
              const [a, b] = [Math.min(...brush), Math.max(...brush)];
              if (b - a > 0.01) setZoom(zoom[0] + a * width, zoom[0] + b * width);
            }
            setBrush(null);
          }}
          onDblClick={() => setZoom(0, 1)}
        >
          {ticks.map((tick) => (
            <span class="tick" style={{ left: `${tick.place * 100}%` }}>
              {clock(tick.time)}
              {fine ? `.${Math.floor((tick.time % 1_000) / 100)}` : ""}
            </span>
          ))}
          {line.breaks.map((gap) => {
            const place = (gap.x - zoom[0]) / width;
            return place > 0 && place < 1 ? (
              <span class="gap" style={{ left: `${place * 100}%` }} title={`nothing happened for ${duration(gap.ms)}`}>
                ⫽ {duration(gap.ms)}
              </span>
            ) : null;
          })}
          {brush ? (
            <span class="brush" style={{ left: `${Math.min(...brush) * 100}%`, width: `${Math.abs(brush[1] - brush[0]) * 100}%` }} />
          ) : null}
        </div>
      </div>
      <div
        class="fall-rows"
        ref={scroller}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        role="list"
        aria-label="Tasks of this run"
        tabIndex={0}
      >
        <div style={{ height: `${first * ROW}px` }} role="presentation" />
        {shown.map(({ task, depth }) => (
          <div key={task.id} role="listitem" class={task.id === selected ? "fall-row selected" : "fall-row"} data-fall={task.id}>
            <To place={taskPlace(task.id)} class="fall-label" title={`${task.agent} ${task.id}: ${task.headline}`}>
              <span style={{ width: `${Math.min(depth, 8) * 12}px` }} class="indent" />
              <State task={task} />
              <span class="fall-text">
                <b>{task.agent}</b> {task.headline}
              </span>
            </To>
            <div class="fall-track">
              <Bars spans={spans.get(task.id) ?? []} x={x} at={at || (task.ended ? ms(task.ended) : 0)} task={task} />
            </div>
          </div>
        ))}
        <div style={{ height: `${Math.max(0, rows.length - first - shown.length) * ROW}px` }} role="presentation" />
      </div>
      <div class="legend faint" aria-hidden="true">
        {(["queued", "working", "waits_for_tasks", "waits_for_person", "waits_for_provider", "call"] as const).map((kind) => (
          <span>
            <i class={`bar is-${kind}`} /> {NAMES[kind]}
          </span>
        ))}
      </div>
    </section>
  );
}

function Bars({ spans, x, at, task }: { spans: Span[]; x: (time: number) => number; at: number; task: Task }): JSX.Element {
  const bars: JSX.Element[] = [];
  const drawn = { phase: -1, call: -1 };
  for (const span of spans) {
    const from = x(ms(span.from));
    const to = x(span.to ? ms(span.to) : Math.max(at, ms(span.from)));
    if (to < 0 || from > 1) continue;
    const lane = span.kind === "call" ? "call" : "phase";
    // What is too narrow to see is not drawn.
    if (to - drawn[lane] < 0.002 && from - drawn[lane] < 0.002) continue;
    drawn[lane] = to;
    const left = Math.max(0, from);
    const wide = Math.min(1, to) - left;
    const took = (span.to ? ms(span.to) : Math.max(at, ms(span.from))) - ms(span.from);
    const attempt = span.attempt > 1 ? ` · attempt ${span.attempt}` : "";
    const waits = span.kind.startsWith("waits_for") && span.text;
    const text = waits ? `waits for ${span.text}` : span.text || (span.kind === "working" ? "" : NAMES[span.kind]);
    const name = waits ? text : `${NAMES[span.kind]}${span.text ? `: ${span.text}` : ""}`;
    bars.push(
      <To
        place={{ ...taskPlace(task.id), entry: String(span.seq) }}
        class={`bar is-${span.kind}${span.is_error ? " bad" : ""}${span.attempt > 1 ? " again" : ""}`}
        title={`${name} · ${clock(span.from)} · ${duration(took)}${attempt}`}
        label={`${name}, ${duration(took)}`}
        style={{ left: `${left * 100}%`, width: `${wide * 100}%` }}
      >
        {wide > 0.14 ? text : ""}
      </To>,
    );
  }
  return <>{bars}</>;
}
