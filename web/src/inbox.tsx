// What waits for a person, answered in place.
import { effect, signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { post, words } from "./api";
import { duration, ms, plural, ticking } from "./format";
import { draft, setDraft } from "./memory";
import { Lines, say, To } from "./parts";
import { canRun, now, questions, touch } from "./store";
import { taskPlace } from "./url";
import type { Question } from "./types";

export const keyOf = (question: Question) => `${question.task}/${question.question}/${question.since}`;

/** A tap or a key counts this long after its question appeared, or after cards have moved: it may be meant for another. */
const SETTLE = 400;
const appeared = new Map<string, number>();
let movedAt = 0;
effect(() => {
  const at = performance.now();
  const keys = new Set(questions.value.map(keyOf));
  for (const key of appeared.keys()) {
    if (keys.has(key)) continue;
    appeared.delete(key);
    movedAt = at;
  }
  for (const key of keys) if (!appeared.has(key)) appeared.set(key, at);
});
const isSettled = (key: string) => {
  const at = performance.now();
  return at - (appeared.get(key) ?? 0) > SETTLE && at - movedAt > SETTLE;
};

/** Questions that this page has answered and the server still lists. */
const answered = signal<ReadonlySet<string>>(new Set());

interface Answer {
  decision?: "approve" | "deny" | "always" | "decline";
  reason?: string;
  scope?: string;
  pattern?: string;
  text?: string;
}

async function answer(question: Question, with_: Answer): Promise<boolean> {
  const key = keyOf(question);
  answered.value = new Set([...answered.value, key].slice(-100));
  try {
    const body = { question: question.question, ...with_ };
    const receipt = await post<{ granted: string | null; also: unknown[] }>(`/tasks/${question.task}/answers`, body);
    if (receipt.granted) say(`Allowed in this tree from now on: ${receipt.granted}`);
    if (receipt.also.length > 0) say(`This also answered ${plural(receipt.also.length, "other question")}.`);
    touch(question.task);
    return true;
  } catch (error) {
    answered.value = new Set([...answered.value].filter((other) => other !== key));
    say(`The answer was not taken: ${words(error)}`, true);
    touch(question.task);
    return false;
  }
}

const SCOPE: Record<string, string> = {
  exact: "exactly this call",
  program: "this program with any arguments",
  tool: "every call of the tool",
};

type Mode = "choose" | "deny" | "always";

export function QuestionCard({ question, linked = true }: { question: Question; linked?: boolean }): JSX.Element {
  const key = keyOf(question);
  const [mode, setMode] = useState<Mode>("choose");
  const [typed, setTyped] = useState(() => draft(key));
  const [pattern, setPattern] = useState("");
  const field = useRef<HTMLTextAreaElement & HTMLInputElement>(null);
  const sent = answered.value.has(key);
  const write = (text: string) => {
    setTyped(text);
    setDraft(key, text);
  };
  const card = useRef<HTMLElement>(null);
  useEffect(() => {
    if (mode === "deny") field.current?.focus();
    else if (mode === "always") card.current?.focus();
  }, [mode]);
  const give = (with_: Answer) => {
    if (sent || !isSettled(key)) return;
    void answer(question, with_).then((taken) => {
      if (taken) setDraft(key, "");
    });
  };
  const jsonProblem = question.schema && typed.trim() ? problemOfJson(typed) : null;
  const choices = choicesOf(question.schema);
  const answerField = (
    <label>
      {question.schema ? "Your answer, as JSON" : "Your answer"}
      <textarea
        ref={field}
        rows={question.schema ? 4 : 2}
        value={typed}
        onInput={(event) => write(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit();
        }}
      />
    </label>
  );
  const decline = (
    <button type="button" title="Refuse to answer" onClick={() => give({ decision: "decline" })}>
      Decline
    </button>
  );
  const left = question.until ? ms(question.until) - now.value : null;
  const onKey = (event: KeyboardEvent) => {
    const at = event.target as HTMLElement;
    if (at.tagName === "TEXTAREA" || at.tagName === "INPUT") {
      if (event.key === "Escape") {
        event.stopPropagation();
        setMode("choose");
        (event.currentTarget as HTMLElement).focus();
      }
      return;
    }
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const grant = mode === "always" ? question.grants.find((grant) => grant.scope[0] === event.key) : undefined;
    if (event.key === "Escape" && mode !== "choose") setMode("choose");
    else if (grant) give({ decision: "always", scope: grant.scope });
    else if (question.kind === "approval" && event.key === "y") give({ decision: "approve" });
    else if (question.kind === "approval" && event.key === "n") setMode("deny");
    else if (question.kind === "approval" && event.key === "a" && mode !== "always") setMode("always");
    else if (question.kind === "text" && event.key === "Enter" && at === event.currentTarget) field.current?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <article
      ref={card}
      class={sent ? "card question sent" : "card question"}
      tabIndex={0}
      data-question={key}
      aria-label={`${question.agent} asks: ${question.text}`}
      onKeyDown={onKey}
    >
      <header>
        <span class="shape is-asks" aria-hidden="true">
          ?
        </span>
        {linked ? (
          <To place={taskPlace(question.task)} class="who">
            <b>{question.agent}</b> <span class="faint">{question.headline}</span>
          </To>
        ) : (
          <b class="who">{question.agent} asks</b>
        )}
        <span class="when">
          waits {ticking(now.value - ms(question.since))}
          {left !== null ? <span class={left < 60_000 ? "deadline soon" : "deadline"}> · {duration(left)} left</span> : null}
        </span>
      </header>
      <Lines lines={question.lines} />
      {sent ? (
        <p class="faint" role="status">
          Answered.
        </p>
      ) : !canRun.value ? (
        <p class="faint">Your token may only read. Someone with the scope run has to answer.</p>
      ) : question.kind === "approval" ? (
        <div class="answers">
          {mode === "choose" ? (
            <div class="buttons">
              <button type="button" class="yes" onClick={() => give({ decision: "approve" })}>
                Yes <kbd>y</kbd>
              </button>
              <button type="button" class="no" onClick={() => setMode("deny")}>
                No … <kbd>n</kbd>
              </button>
              <button type="button" onClick={() => setMode("always")} disabled={question.grants.length === 0}>
                Always … <kbd>a</kbd>
              </button>
            </div>
          ) : mode === "deny" ? (
            <form
              onSubmit={(event) => {
                event.preventDefault();
                give(typed.trim() ? { decision: "deny", reason: typed.trim() } : { decision: "deny" });
              }}
            >
              <label>
                Why not? The agent reads it.
                <input ref={field} value={typed} placeholder="optional" onInput={(event) => write(event.currentTarget.value)} />
              </label>
              <div class="buttons">
                <button type="submit" class="no">
                  No
                </button>
                <button type="button" onClick={() => setMode("choose")}>
                  Back
                </button>
              </div>
            </form>
          ) : (
            <form
              onSubmit={(event) => {
                event.preventDefault();
                if (pattern.trim()) give({ decision: "always", pattern: pattern.trim() });
              }}
            >
              <p class="ask">Allow in this whole tree, from now on:</p>
              <div class="grants">
                {question.grants.map((grant) => (
                  <button type="button" onClick={() => give({ decision: "always", scope: grant.scope })}>
                    <span>{SCOPE[grant.scope] ?? grant.scope}</span> <kbd>{grant.scope[0]}</kbd> <code>{grant.pattern}</code>
                  </button>
                ))}
              </div>
              <label>
                or a pattern of your own
                <input
                  ref={field}
                  value={pattern}
                  placeholder={question.grants[0]?.pattern ?? ""}
                  onInput={(event) => setPattern(event.currentTarget.value)}
                />
              </label>
              <div class="buttons">
                <button type="submit" disabled={!pattern.trim()}>
                  Allow the pattern
                </button>
                <button type="button" onClick={() => setMode("choose")}>
                  Back
                </button>
              </div>
            </form>
          )}
        </div>
      ) : (
        <form
          class="answers"
          onSubmit={(event) => {
            event.preventDefault();
            if (typed.trim() && !jsonProblem) give({ text: typed });
          }}
        >
          {choices.length > 0 ? (
            <div class="buttons">
              {choices.map((choice) => (
                <button type="button" onClick={() => give({ text: choice.json })}>
                  {choice.label}
                </button>
              ))}
              {typed ? null : decline}
            </div>
          ) : null}
          {choices.length > 0 && !typed ? (
            <details class="small">
              <summary class="faint">Answer with JSON instead</summary>
              {answerField}
            </details>
          ) : (
            answerField
          )}
          {jsonProblem ? <p class="problem">{jsonProblem}</p> : null}
          {question.schema && choices.length === 0 ? (
            <details>
              <summary>What the answer has to look like</summary>
              <pre tabIndex={0}>{JSON.stringify(question.schema, null, 2)}</pre>
            </details>
          ) : null}
          {choices.length === 0 || typed ? (
            <div class="buttons">
              <button type="submit" class="yes" disabled={!typed.trim() || jsonProblem !== null}>
                Send
              </button>
              {decline}
            </div>
          ) : null}
        </form>
      )}
    </article>
  );
}

function problemOfJson(text: string): string | null {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return `This is not JSON yet: ${(error as Error).message}`;
  }
}

interface Choice {
  label: string;
  json: string;
}

/** The answers, where there are few: a choice, or yes and no. */
function choicesOf(schema: Question["schema"]): Choice[] {
  if (!schema) return [];
  const properties = Object.entries((schema["properties"] ?? {}) as Record<string, Record<string, unknown>>);
  const [name, only] = properties.length === 1 ? (properties[0] ?? [null, null]) : [null, properties.length === 0 ? schema : null];
  const values: unknown[] = only ? (Array.isArray(only["enum"]) ? only["enum"] : only["type"] === "boolean" ? [true, false] : []) : [];
  if (values.length > 12) return [];
  return values.map((value) => ({
    label: value === true ? "Yes" : value === false ? "No" : String(value),
    json: JSON.stringify(name === null ? value : { [name]: value }),
  }));
}

export function Inbox(): JSX.Element | null {
  const open = questions.value;
  if (open.length === 0) return null;
  return (
    <section class="inbox" aria-label={`Needs you: ${plural(open.length, "question")}`}>
      <h2>
        Needs you <span class="count">{open.length}</span>
      </h2>
      <div class="cards">
        {open.slice(0, 30).map((question) => (
          <QuestionCard key={keyOf(question)} question={question} />
        ))}
      </div>
      {open.length > 30 ? <p class="faint">{plural(open.length - 30, "more question")} below these.</p> : null}
    </section>
  );
}

/** Puts the keyboard on the next question. */
export function focusQuestion(): void {
  const cards = [...document.querySelectorAll<HTMLElement>("[data-question]")];
  const at = cards.findIndex((card) => card.contains(document.activeElement));
  const next = cards[(at + 1) % Math.max(1, cards.length)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
