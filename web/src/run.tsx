// One run: the waterfall of its tree, and the selected task.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { canResume, canRetry, resume, resumeCommand, retry, save, send, stop, stopTree } from "./actions";
import { get, words } from "./api";
import { Changes } from "./changes";
import { index, isFinal, totals } from "./forest";
import { plural, price, short } from "./format";
import { keyOf, QuestionCard } from "./inbox";
import { TranscriptFeed } from "./journal";
import { Markdown } from "./markdown";
import { draft, setDraft } from "./memory";
import { Copy, Elapsed, Linked, Safe, silentFor, State, To, tokens, tokensTitle } from "./parts";
import { canRun, loadTree, now, questions, stream, tasks, version } from "./store";
import { Journal, Letters, Output, UsageTab } from "./task_tabs";
import { KINDS, TranscriptView } from "./transcript";
import { go, listPlace, place, taskPlace } from "./url";
import { Waterfall } from "./waterfall";
import type { Task, TaskDetail } from "./types";

const TABS: [string, string][] = [
  ["", "Transcript"],
  ["letters", "Letters"],
  ["output", "Output"],
  ["changes", "Changes"],
  ["usage", "Usage"],
  ["journal", "Journal"],
];
/** Whether the open task has a git worktree, so that there are changes to show. */
const hasWorktree = signal(false);
const tabs = () => TABS.filter(([key]) => key !== "changes" || hasWorktree.value || place.value.tab === "changes");

/** A touch screen alone has no keys to hint at. */
const hasKeys = !matchMedia("(hover: none)").matches;

export const showFall = signal(!matchMedia("(max-width: 900px)").matches);

/** Shows the next part of the task. */
export function nextTab(): void {
  const all = tabs();
  const at = all.findIndex(([key]) => key === (place.value.tab ?? ""));
  go({ tab: all[(at + 1) % all.length]?.[0] ?? "", entry: "" }, true);
}
/** Shows what the task has changed. */
export const showChanges = () => {
  if (hasWorktree.value) go({ tab: place.value.tab === "changes" ? "" : "changes", entry: "" }, true);
};

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
          {plural(sum.tasks, "task")}
          {sum.tasks > 1 ? ` · ${sum.ended} ended` : ""}
          {sum.failed ? ` · ${sum.failed} failed` : ""} · <Elapsed task={root} />
          {sum.tokens ? ` · ${short(sum.tokens)} tok` : ""}
          {cost ? ` · ${cost}` : ""}
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
    get<TaskDetail>(`/tasks/${task.id}`).then(
      (next) => !closed && setDetail(next),
      () => {},
    );
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
  useEffect(() => {
    hasWorktree.value = detail?.worktree != null;
  }, [detail]);
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
        {task.activity && !isFinal(task) && open.length === 0 ? (
          <p class="activity">
            <Linked text={task.activity} />
          </p>
        ) : null}
        {canResume(task) && task.team === null ? (
          <p class="attention">
            No process runs it, and its team is not served here. Resume it in a terminal: <code>{resumeCommand(task)}</code>{" "}
            <Copy text={resumeCommand(task)} label="Copy" />
          </p>
        ) : null}
        {task.error ? <Cause task={task} /> : null}
        <Links task={task} detail={detail} />
        {below.length > 0 && open.length === 0 ? (
          <p class="attention">
            {below[0]?.agent} asks something: <To place={taskPlace(below[0]?.task ?? task.id)}>answer it</To>
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
          {tabs().map(([key, name]) => (
            <button
              type="button"
              role="tab"
              aria-selected={tab === key}
              aria-controls="tab-panel"
              onClick={() => go({ tab: key, entry: "" }, true)}
            >
              {name}
            </button>
          ))}
        </div>
        {tab === "" ? (
          <span class="only">
            <input
              id="find"
              type="search"
              class="small"
              placeholder="Find"
              aria-label="Show only entries with this text"
              title="Words, or a regular expression between slashes"
              value={place.value.find ?? ""}
              onInput={(event) => go({ find: event.currentTarget.value, entry: "" }, true)}
            />
            <select
              class="small"
              aria-label="Kind of entries"
              value={place.value.kind ?? ""}
              onChange={(event) => go({ kind: event.currentTarget.value }, true)}
            >
              {KINDS.map(([key, name]) => (
                <option value={key}>{name}</option>
              ))}
            </select>
          </span>
        ) : null}
      </div>
      <div class="panel" id="tab-panel" role="tabpanel" aria-label={TABS.find(([key]) => key === tab)?.[1] ?? "Transcript"}>
        {tab === "letters" ? (
          <Letters feed={feed} task={task} />
        ) : tab === "output" ? (
          <Output detail={detail} />
        ) : tab === "changes" ? (
          <Changes task={task} />
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
          Below it,{" "}
          <To place={taskPlace(below.id)}>
            {below.agent} {below.id}
          </To>{" "}
          failed: {below.error}
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
            <button type="button" class="danger" title="s" onClick={() => stop(task)}>
              Stop
            </button>
          ) : null}
          {more && rootOpen ? (
            <button type="button" class="danger" title="S" onClick={() => stopTree(task)}>
              Stop tree
            </button>
          ) : null}
          {canResume(task) && task.team !== null ? (
            <button type="button" title="r" onClick={() => void resume(task)}>
              Resume
            </button>
          ) : null}
          {canRetry(task) ? (
            <button type="button" title="R" onClick={() => void retry(task)}>
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
    ([key, value]) =>
      !["task", "agent", "expected_output", "context", "title", "working_dir"].includes(key) &&
      value !== null &&
      JSON.stringify(value) !== "{}" &&
      value !== false,
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
      <div class="order-text" tabIndex={0} role="group" aria-label="The order">
        {content}
      </div>
    </details>
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
        placeholder={`${ended ? "It has ended. A message continues it …" : `Message to ${task.agent} …`}${hasKeys ? "   m" : ""}`}
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
