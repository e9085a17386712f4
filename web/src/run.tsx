// One run: the waterfall of its tree, and the selected task.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { canResume, canRetry, resume, retry, save, send, stop, stopTree } from "./actions";
import { get, words } from "./api";
import { index, isFinal, totals } from "./forest";
import { clock, count, dateTime, dollars, duration, plural, price, short } from "./format";
import { keyOf, QuestionCard } from "./inbox";
import { TranscriptFeed } from "./journal";
import { Markdown } from "./markdown";
import { draft, setDraft } from "./memory";
import { Copy, Elapsed, Linked, Safe, silentFor, State, To, tokens, tokensTitle } from "./parts";
import { canRun, loadTree, now, questions, stream, tasks, version } from "./store";
import { KINDS, TranscriptView } from "./transcript";
import { go, listPlace, place, taskPlace } from "./url";
import { Waterfall } from "./waterfall";
import type { Item, RecordView, Sums, Task, TaskDetail, TranscriptPage } from "./types";

const TABS: [string, string][] = [
  ["", "Transcript"],
  ["letters", "Letters"],
  ["output", "Output"],
  ["usage", "Usage"],
  ["journal", "Journal"],
];

export const showFall = signal(!matchMedia("(max-width: 900px)").matches);

/** Shows the next part of the task. */
export function nextTab(): void {
  const at = TABS.findIndex(([key]) => key === (place.value.tab ?? ""));
  go({ tab: TABS[(at + 1) % TABS.length]?.[0] ?? "", entry: "" }, true);
}

export function RunPage({ id }: { id: string }): JSX.Element {
  void version.value;
  const task = tasks.get(id);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    setProblem("");
    loadTree(id).catch((error: unknown) => setProblem(words(error)));
    stream.follow(id);
    return () => stream.follow(null);
  }, [tasks.get(id)?.root ?? id]);
  if (!task) {
    return (
      <main class="page">
        <p class="empty">{problem ? <span class="problem">{problem}</span> : "Loading the task …"}</p>
        <p class="empty">
          <To place={listPlace}>All tasks</To>
        </p>
      </main>
    );
  }
  const root = tasks.get(task.root) ?? task;
  const sum = totals(root, index(tasks).children, now.value);
  const cost = price(sum.cost, sum.unpriced);
  return (
    <main class="run">
      <div class="run-head">
        <To place={listPlace} class="back" title="All tasks (Esc)">
          ← Tasks
        </To>
        <h1 title={root.headline}>{root.headline}</h1>
        <span class="faint sums">
          {plural(sum.tasks, "task")}{sum.tasks > 1 ? ` · ${sum.ended} ended` : ""}{sum.failed ? ` · ${sum.failed} failed` : ""} · <Elapsed task={root} />{sum.tokens ? ` · ${short(sum.tokens)} tok` : ""}{cost ? ` · ${cost}` : ""}
        </span>
        <button type="button" class="small fall-toggle" aria-expanded={showFall.value} onClick={() => (showFall.value = !showFall.value)}>
          {showFall.value ? "Hide waterfall" : "Waterfall"}
        </button>
      </div>
      <div class={showFall.value ? "split" : "split alone"}>
        {showFall.value ? (
          <Safe name="the waterfall">
            <Waterfall root={root.id} selected={task.id} />
          </Safe>
        ) : null}
        <Safe name="the task" key={task.id}>
          <Inspector task={task} />
        </Safe>
      </div>
    </main>
  );
}

function useDetail(task: Task): TaskDetail | null {
  const [detail, setDetail] = useState<TaskDetail | null>(null);
  // Its output and what it is retried as change when it ends or is continued.
  const key = `${task.id} ${isFinal(task)} ${task.turns}`;
  useEffect(() => {
    let closed = false;
    get<TaskDetail>(`/tasks/${task.id}`).then((next) => !closed && setDetail(next), () => {});
    return () => {
      closed = true;
    };
  }, [key]);
  return detail?.task.id === task.id ? detail : null;
}

function Inspector({ task }: { task: Task }): JSX.Element {
  const feed = useMemo(() => new TranscriptFeed(task.id), [task.id]);
  useEffect(() => () => feed.close(), [feed]);
  const detail = useDetail(task);
  const tab = place.value.tab ?? "";
  const silent = silentFor(task, now.value);
  const cost = price(task.cost, task.unpriced);
  const open = questions.value.filter((question) => question.task === task.id);
  const below = questions.value.filter((question) => question.root === task.root && question.task !== task.id);
  return (
    <section class="inspector" aria-label={`Task ${task.id}`}>
      <header class="task-head">
        <div class="title-line">
          <State task={task} />
          <b>{task.agent}</b>
          <code class="id">{task.id}</code>
          <Copy text={task.id} label="Copy id" />
          <span class="faint">
            <Elapsed task={task} />
            {silent ? ` · ${silent}` : ""}
            {tokens(task) ? <span title={tokensTitle(task)}> · {short(tokens(task))} tok</span> : null}
            {cost ? ` · ${cost}` : ""}
            {task.attempt > 1 ? ` · attempt ${task.attempt}` : ""}
            {task.team ? ` · team ${task.team}` : ""}
          </span>
        </div>
        <Actions task={task} />
        {task.activity && !isFinal(task) && open.length === 0 ? <p class="activity"><Linked text={task.activity} /></p> : null}
        {task.error ? <Cause task={task} /> : null}
        <Links task={task} detail={detail} />
        {below.length > 0 && open.length === 0 ? (
          <p class="attention">
            {below[0]?.agent} asks something:{" "}
            <To place={taskPlace(below[0]?.task ?? task.id)}>answer it</To>
            {below.length > 1 ? ` and ${below.length - 1} more` : ""}
          </p>
        ) : null}
      </header>
      {open.length > 0 ? (
        <div class="cards">
          {open.map((question) => (
            <QuestionCard key={keyOf(question)} question={question} linked={false} />
          ))}
        </div>
      ) : null}
      <OrderBlock order={detail?.order ?? null} task={task} />
      <div class="tabs">
       <div role="tablist" aria-label="Parts of the task">
        {TABS.map(([key, name]) => (
          <button type="button" role="tab" aria-selected={tab === key} aria-controls="tab-panel" onClick={() => go({ tab: key, entry: "" }, true)}>
            {name}
          </button>
        ))}
       </div>
        {tab === "" ? (
          <select class="small" aria-label="Kind of entries" value={place.value.kind ?? ""} onChange={(event) => go({ kind: event.currentTarget.value }, true)}>
            {KINDS.map(([key, name]) => (
              <option value={key}>{name}</option>
            ))}
          </select>
        ) : null}
      </div>
      <div class="panel" id="tab-panel" role="tabpanel" aria-label={TABS.find(([key]) => key === tab)?.[1] ?? "Transcript"}>
        {tab === "letters" ? (
          <Letters feed={feed} task={task} />
        ) : tab === "output" ? (
          <Output detail={detail} />
        ) : tab === "usage" ? (
          <UsageTab task={task} detail={detail} />
        ) : tab === "journal" ? (
          <Journal task={task} />
        ) : (
          <TranscriptView feed={feed} />
        )}
      </div>
      {canRun.value ? <Message task={task} /> : null}
    </section>
  );
}

/** Why a task ended without an answer, and the failed task below that may be the reason. */
function Cause({ task }: { task: Task }): JSX.Element {
  const { children } = index(tasks);
  const failed = totals(task, children, now.value).firstFailed;
  const below = failed && failed !== task.id ? tasks.get(failed) : null;
  return (
    <div class="cause" role="note">
      <p>
        <b>{task.standing}:</b> {task.error}
      </p>
      {below ? (
        <p>
          Below it, <To place={taskPlace(below.id)}>{below.agent} {below.id}</To> failed: {below.error}
        </p>
      ) : null}
    </div>
  );
}

function Links({ task, detail }: { task: Task; detail: TaskDetail | null }): JSX.Element | null {
  const link = (label: string, id: string | null | undefined) =>
    id ? (
      <span>
        {label} <To place={taskPlace(id)}>{id}</To>
      </span>
    ) : null;
  const links = [
    link("part of", task.parent),
    link("retries", task.retries),
    link("retried as", detail?.retried_as[0]),
    link("continues", task.continues),
    link("continued by", task.continued_by),
  ].filter(Boolean);
  return links.length > 0 ? <p class="links faint">{links}</p> : null;
}

function Actions({ task }: { task: Task }): JSX.Element | null {
  const more = index(tasks).children.has(task.id) || task.parent !== null;
  const rootOpen = !isFinal(tasks.get(task.root) ?? task);
  return (
    <div class="buttons tight">
      {canRun.value ? (
        <>
          {!isFinal(task) ? (
            <button type="button" class="danger" onClick={() => stop(task)}>
              Stop
            </button>
          ) : null}
          {more && rootOpen ? (
            <button type="button" class="danger" onClick={() => stopTree(task)}>
              Stop tree
            </button>
          ) : null}
          {canResume(task) ? (
            <button type="button" onClick={() => void resume(task)}>
              Resume
            </button>
          ) : null}
          {canRetry(task) ? (
            <button type="button" onClick={() => void retry(task)}>
              Retry
            </button>
          ) : null}
        </>
      ) : null}
      <button type="button" onClick={() => void save(task)} title="Save the whole journal as JSON Lines">
        Export
      </button>
    </div>
  );
}

function OrderBlock({ order, task }: { order: Record<string, unknown> | null; task: Task }): JSX.Element {
  const text = (key: string) => (order && typeof order[key] === "string" ? (order[key] as string) : "");
  const body = text("task") || task.headline;
  const rest = Object.entries(order ?? {}).filter(
    ([key, value]) => !["task", "agent", "expected_output", "context", "title", "working_dir"].includes(key) && value !== null && JSON.stringify(value) !== "{}" && value !== false,
  );
  const long = body.length > 400 || body.split("\n").length > 8;
  const content = (
    <>
      <Markdown text={body} />
      {text("expected_output") ? (
        <p>
          <b>Expected output:</b> {text("expected_output")}
        </p>
      ) : null}
      {text("context") ? (
        <p>
          <b>Context:</b> {text("context")}
        </p>
      ) : null}
      {rest.length > 0 ? <p class="faint small">{rest.map(([key, value]) => `${key}: ${JSON.stringify(value)}`).join(" · ")}</p> : null}
    </>
  );
  return (
    <details class="order" open={!long}>
      <summary>
        <b>Order</b> {long ? <span class="faint">{task.headline}</span> : null}
      </summary>
      <div class="order-text" tabIndex={0} role="group" aria-label="The order">{content}</div>
    </details>
  );
}

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
          (page) => page.items.filter((item) => item.kind === "letter" && item.from?.includes(task.id)).map((item) => ({ item, from: task.agent, to: other })),
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
function Letters({ feed, task }: { feed: TranscriptFeed; task: Task }): JSX.Element {
  const shown = feed.shown.value;
  const sent = useSent(task);
  const received: Letter[] = (shown?.items ?? []).filter((item) => item.kind === "letter").map((item) => ({ item, from: item.from ?? "", to: task }));
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

function Output({ detail }: { detail: TaskDetail | null }): JSX.Element {
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
            onClick={() => void get<{ output: string }>(`/tasks/${detail.task.id}/result`).then((result) => setWhole(result.output), () => {})}
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
    get<{ rows: (Sums & { key: string })[]; total: Sums }>(path).then((next) => !closed && setPage(next), () => {});
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

function UsageTab({ task, detail }: { task: Task; detail: TaskDetail | null }): JSX.Element {
  const stamp = Math.floor(now.value / 10_000);
  const root = tasks.get(task.root) ?? task;
  const again = isFinal(root) ? "" : `#${stamp}`;
  return (
    <div class="scroll" tabIndex={0}>
      <p>
        This task: {count(task.usage.input)} tokens in ({count(task.usage.cached)} from the cache), {count(task.usage.output)} out ({count(task.usage.reasoning)} reasoning), {task.turns === 1 ? "1 reply" : `${count(task.turns)} replies`}, {plural(task.calls, "call")}
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
function Journal({ task }: { task: Task }): JSX.Element {
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

function Message({ task }: { task: Task }): JSX.Element {
  const name = `message ${task.id}`;
  const [text, setText] = useState(() => draft(name));
  const [busy, setBusy] = useState(false);
  const write = (next: string) => {
    setText(next);
    setDraft(name, next);
  };
  const submit = async () => {
    if (!text.trim() || busy) return;
    setBusy(true);
    const sent = text;
    if (await send(task.id, text.trim())) {
      setDraft(name, "");
      setText((now) => (now === sent ? "" : now));
    }
    setBusy(false);
  };
  const ended = isFinal(task);
  return (
    <form
      class="message"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <textarea
        id="message"
        rows={1}
        value={text}
        aria-label={ended ? `Continue ${task.id} with a message` : `Message to ${task.agent}`}
        placeholder={ended ? "It has ended. A message continues it …   m" : `Message to ${task.agent} …   m`}
        onInput={(event) => write(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            void submit();
          } else if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
      <button type="submit" disabled={!text.trim() || busy} title="Ctrl-Enter">
        {ended ? "Continue" : "Send"}
      </button>
    </form>
  );
}
