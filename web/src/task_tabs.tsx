// The parts of a task besides its transcript: letters, output, usage, journal.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "./api";
import { index, isFinal } from "./forest";
import { clock, count, dateTime, dollars, duration, plural, price } from "./format";
import type { TranscriptFeed } from "./journal";
import { Markdown } from "./markdown";
import { Copy, Linked, To } from "./parts";
import { now, tasks } from "./store";
import { place, taskPlace } from "./url";
import type { Item, RecordView, Sums, Task, TaskDetail, TranscriptPage } from "./types";

interface Letter {
  item: Item;
  from: string;
  to: Task;
}

/** Letters that this task has sent: they are in the journals of its parent and its children. */
function useSent(task: Task): Letter[] {
  const [sent, setSent] = useState<Letter[]>([]);
  const near = [...(index(tasks).children.get(task.id) ?? []), ...(task.parent ? [tasks.get(task.parent)] : [])]
    .filter((other): other is Task => other !== undefined)
    .slice(-30);
  const key = near.map((other) => other.id).join(" ");
  const turns = task.calls;
  useEffect(() => {
    let closed = false;
    void Promise.all(
      near.map((other) =>
        get<TranscriptPage>(`/tasks/${other.id}/transcript?limit=200`).then(
          (page) =>
            page.items
              .filter((item) => item.kind === "letter" && item.from?.includes(task.id))
              .map((item) => ({ item, from: task.agent, to: other })),
          () => [],
        ),
      ),
    ).then((found) => !closed && setSent(found.flat()));
    return () => {
      closed = true;
    };
  }, [key, turns, isFinal(task)]);
  return sent;
}

/** Letters of this task and of those next to it, as one thread. */
export function Letters({ feed, task }: { feed: TranscriptFeed; task: Task }): JSX.Element {
  const shown = feed.shown.value;
  const sent = useSent(task);
  const received: Letter[] = (shown?.items ?? [])
    .filter((item) => item.kind === "letter")
    .map((item) => ({ item, from: item.from ?? "", to: task }));
  const thread = [...received, ...sent].sort((a, b) => (a.item.at < b.item.at ? -1 : 1));
  return (
    <div class="scroll" tabIndex={0}>
      {shown?.before != null ? (
        <button type="button" class="small" onClick={() => void feed.older()}>
          Look for older letters
        </button>
      ) : null}
      {thread.length === 0 ? <p class="faint">No letters in what is loaded.</p> : null}
      {thread.map(({ item, from, to }) => (
        <div class={to === task ? "letter-box" : "letter-box mine"}>
          <div class="letter-head">
            <b>
              <Linked text={from} /> → {to === task ? task.agent : <To place={taskPlace(to.id)}>{`${to.agent} ${to.id}`}</To>}
            </b>
            <span class="faint">
              {clock(item.at)} · {item.read ? `read ${clock(item.read)}` : "not read yet"}
            </span>
          </div>
          <Markdown text={item.text ?? ""} />
        </div>
      ))}
    </div>
  );
}

export function Output({ detail }: { detail: TaskDetail | null }): JSX.Element {
  const [whole, setWhole] = useState<string | null>(null);
  if (!detail) return <p class="faint">Loading …</p>;
  const text = whole ?? detail.output;
  return (
    <div class="scroll" tabIndex={0}>
      <div class="buttons tight">
        <Copy text={text} label="Copy" />
        {detail.output_shortened && whole === null ? (
          <button
            type="button"
            class="small"
            onClick={() =>
              void get<{ output: string }>(`/tasks/${detail.task.id}/result`).then(
                (result) => setWhole(result.output),
                () => {},
              )
            }
          >
            Show all of it
          </button>
        ) : null}
      </div>
      {text ? <Markdown text={text} /> : <p class="faint">There is no output yet.</p>}
    </div>
  );
}

function UsageTable({ title, path }: { title: string; path: string }): JSX.Element {
  const [page, setPage] = useState<{ rows: (Sums & { key: string })[]; total: Sums } | null>(null);
  useEffect(() => {
    let closed = false;
    get<{ rows: (Sums & { key: string })[]; total: Sums }>(path).then(
      (next) => !closed && setPage(next),
      () => {},
    );
    return () => {
      closed = true;
    };
  }, [path]);
  const row = (name: string, sums: Sums) => (
    <tr>
      <th scope="row">{name}</th>
      <td>{count(sums.tasks)}</td>
      <td>{count(sums.turns)}</td>
      <td>{count(sums.calls)}</td>
      <td>{count(sums.usage.input)}</td>
      <td>{count(sums.usage.cached)}</td>
      <td>{count(sums.usage.output)}</td>
      <td>{price(sums.cost, sums.unpriced) || dollars(0)}</td>
    </tr>
  );
  return (
    <table class="usage">
      <caption>{title}</caption>
      <thead>
        <tr>
          <th scope="col">{title.split(" ").pop()}</th>
          <th scope="col">tasks</th>
          <th scope="col">replies</th>
          <th scope="col">calls</th>
          <th scope="col">tokens in</th>
          <th scope="col">from cache</th>
          <th scope="col">tokens out</th>
          <th scope="col">cost</th>
        </tr>
      </thead>
      <tbody>{page?.rows.map((sums) => row(sums.key, sums))}</tbody>
      {page && page.rows.length > 1 ? <tfoot>{row("all", page.total)}</tfoot> : null}
    </table>
  );
}

export function UsageTab({ task, detail }: { task: Task; detail: TaskDetail | null }): JSX.Element {
  const stamp = Math.floor(now.value / 10_000);
  const root = tasks.get(task.root) ?? task;
  const again = isFinal(root) ? "" : `#${stamp}`;
  return (
    <div class="scroll" tabIndex={0}>
      <p>
        This task: {count(task.usage.input)} tokens in ({count(task.usage.cached)} from the cache), {count(task.usage.output)} out (
        {count(task.usage.reasoning)} reasoning), {task.turns === 1 ? "1 reply" : `${count(task.turns)} replies`},{" "}
        {plural(task.calls, "call")}
        {price(task.cost, task.unpriced) ? `, ${price(task.cost, task.unpriced)}` : ""}; worked {duration(task.worked_ms)}.
      </p>
      <Budget detail={detail} />
      <UsageTable key={`a${again}`} title="The whole run by agent" path={`/usage?by=agent&root=${task.root}`} />
      <UsageTable key={`m${again}`} title="The whole run by model" path={`/usage?by=model&root=${task.root}`} />
    </div>
  );
}

function Budget({ detail }: { detail: TaskDetail | null }): JSX.Element | null {
  const budget = (detail?.order["tree_budget"] ?? null) as { tokens?: number; cost?: number } | null;
  if (!detail || !budget) return null;
  const used = detail.tree.usage.input + detail.tree.usage.output;
  const bar = (name: string, value: number, most: number | undefined, text: (n: number) => string) =>
    most ? (
      <p class="budget">
        <label>
          {name}: {text(value)} of {text(most)} <meter min={0} max={most} high={most * 0.8} value={Math.min(value, most)} />
        </label>
      </p>
    ) : null;
  return (
    <>
      {bar("Tokens", used, budget.tokens, count)}
      {bar("Cost", detail.tree.cost, budget.cost, dollars)}
    </>
  );
}

const PAGE = 200;
export function Journal({ task }: { task: Task }): JSX.Element {
  const wanted = Number(place.value.entry ?? 0);
  const [records, setRecords] = useState<RecordView[]>([]);
  const first = records[0]?.seq ?? task.seq + 1;
  const at = useRef<HTMLDivElement>(null);
  const load = async (after: number, upTo: number) => {
    const page = await get<{ records: RecordView[] }>(`/tasks/${task.id}/journal?limit=${Math.min(1000, upTo - after)}&after=${after}`);
    setRecords((had) => {
      const all = new Map(had.map((record) => [record.seq, record]));
      for (const record of page.records) all.set(record.seq, record);
      return [...all.values()].sort((a, b) => a.seq - b.seq);
    });
  };
  useEffect(() => {
    const last = records[records.length - 1]?.seq ?? 0;
    if (last >= task.seq) return;
    const after = last || Math.max(0, Math.min(task.seq - PAGE, wanted ? wanted - 20 : Infinity));
    void load(after, task.seq).catch(() => {});
  }, [task.seq, wanted]);
  useEffect(() => {
    if (wanted) at.current?.querySelector(`[data-entry="${wanted}"]`)?.scrollIntoView({ block: "center" });
  }, [wanted, records.length > 0]);
  return (
    <div class="scroll journal" ref={at} tabIndex={0}>
      {[...records].reverse().map((record) => {
        const kind = Object.keys(record.entry)[0] ?? "";
        const text = JSON.stringify(record.entry[kind]);
        return (
          <div class={record.seq === wanted ? "entry target" : "entry"} data-entry={record.seq}>
            <To place={{ task: task.id, tab: "journal", entry: String(record.seq) }} class="seq" title="Link to this entry">
              {record.seq}
            </To>
            <details>
              <summary>
                <time title={dateTime(record.at)}>{clock(record.at)}</time> <b>{kind}</b> <span class="faint">{text?.slice(0, 160)}</span>
              </summary>
              <pre tabIndex={0}>{JSON.stringify(record.entry, null, 2)}</pre>
            </details>
          </div>
        );
      })}
      {first > 1 && records.length > 0 ? (
        <button type="button" onClick={() => void load(Math.max(0, first - 1 - PAGE), first - 1).catch(() => {})}>
          Older entries
        </button>
      ) : null}
    </div>
  );
}
