// What a task has changed in its git worktree: files, folded, each with its difference.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, words } from "./api";
import { isFinal } from "./forest";
import { plural } from "./format";
import { Copy } from "./parts";
import type { Diff, FileDiff, Task } from "./types";

const SHAPES: Record<string, string> = { added: "+", removed: "−", changed: "~", renamed: "→", repository: "▣" };
/** A difference of this many lines is shown unfolded. */
const SHORT = 60;
/** Git is not asked more often than this while the task works, in milliseconds. */
const PAUSE = 3_000;

/** Reads the difference again after each step of the task, but not too often. */
function useDiff(task: Task): { diff: Diff | null; problem: string; busy: boolean; again: () => void } {
  const [diff, setDiff] = useState<Diff | null>(null);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const state = useRef({ readAt: 0, closed: false, abort: null as AbortController | null });
  const read = () => {
    const at = state.current;
    at.abort?.abort();
    const abort = (at.abort = new AbortController());
    at.readAt = Date.now();
    setBusy(true);
    get<Diff>(`/tasks/${task.id}/diff`, abort.signal).then(
      (next) => {
        if (abort.signal.aborted) return;
        setDiff(next);
        setProblem("");
        setBusy(false);
      },
      (error: unknown) => {
        if (abort.signal.aborted) return;
        setProblem(words(error));
        setBusy(false);
      },
    );
  };
  useEffect(() => {
    const timer = setTimeout(read, Math.max(0, state.current.readAt + PAUSE - Date.now()));
    return () => clearTimeout(timer);
  }, [task.id, task.calls, isFinal(task)]);
  useEffect(() => () => state.current.abort?.abort(), []);
  return { diff, problem, busy, again: read };
}

export function Changes({ task }: { task: Task }): JSX.Element {
  const { diff, problem, busy, again } = useDiff(task);
  const [open, setOpen] = useState<Record<string, boolean>>({});
  if (!diff) return <p class="scroll faint">{problem || "Reading the changes …"}</p>;
  const { files, worktree, commits } = diff;
  const many = (what: "added" | "removed") => files.reduce((sum, file) => sum + (file[what] ?? 0), 0);
  const isOpen = (file: FileDiff) => open[file.path] ?? (files.length === 1 && file.lines.length <= SHORT);
  const shown = files.filter(canUnfold);
  const all = shown.length > 0 && shown.every(isOpen);
  return (
    <div class="scroll" tabIndex={0}>
      <div class="change-head">
        <span>
          <b>{plural(files.length, "file")} changed</b> <Sums added={many("added")} removed={many("removed")} />
          {commits.length > 0 ? <span class="faint"> · {plural(commits.length, "commit")}</span> : null}
        </span>
        <span class="buttons tight">
          {shown.length > 1 ? (
            <button type="button" onClick={() => setOpen(Object.fromEntries(shown.map((file) => [file.path, !all])))}>
              {all ? "Fold all" : "Unfold all"}
            </button>
          ) : null}
          <button type="button" disabled={busy} onClick={again}>
            {busy ? "Reading …" : "Read again"}
          </button>
        </span>
      </div>
      {problem ? <p class="problem">{problem} What follows is older.</p> : null}
      <p class="faint small change-place">
        branch <code>{worktree.branch}</code> <Copy text={worktree.branch} label="Copy" /> compared with <code>{diff.base.slice(0, 10)}</code>
      </p>
      <p class="faint small change-place">
        {worktree.path ? (
          <>
            in <code>{worktree.path}</code> <Copy text={worktree.path} label="Copy" />
          </>
        ) : (
          "The worktree was removed: this is what is committed on the branch."
        )}
      </p>
      {commits.length > 0 ? (
        <ul class="commits">
          {commits.map((commit) => (
            <li>
              <code>{commit.id}</code> {commit.subject}
            </li>
          ))}
        </ul>
      ) : null}
      {files.length === 0 ? (
        <p>Nothing differs: the task has changed no file yet, or its work is merged.</p>
      ) : (
        files.map((file) => (
          <File key={file.path} file={file} open={isOpen(file)} toggle={(next) => setOpen((had) => ({ ...had, [file.path]: next }))} />
        ))
      )}
      {diff.is_partial ? <p class="attention">There is more than is shown here. Use git in the worktree for all of it.</p> : null}
    </div>
  );
}

const canUnfold = (file: FileDiff) => file.lines.length > 0 || file.is_cut;

function Sums({ added, removed }: { added: number; removed: number }): JSX.Element {
  return (
    <span class="sums" aria-label={`${plural(added, "new line")}, ${plural(removed, "removed line")}`}>
      <span class="plus">+{added}</span> <span class="minus">−{removed}</span>
    </span>
  );
}

function File({ file, open, toggle }: { file: FileDiff; open: boolean; toggle: (open: boolean) => void }): JSX.Element {
  const name = (
    <>
      <span class={`shape file-${file.change}`} aria-hidden="true">
        {SHAPES[file.change] ?? "~"}
      </span>
      <code class="path">{file.old_path ? `${file.old_path} → ${file.path}` : file.path}</code>
      <span class="faint">{file.change === "repository" ? "a repository of its own" : file.change}</span>
      {file.is_binary ? (
        <span class="faint">not text, or too large to show</span>
      ) : file.added !== null ? (
        <Sums added={file.added} removed={file.removed ?? 0} />
      ) : null}
    </>
  );
  if (!canUnfold(file)) return <div class="file alone">{name}</div>;
  return (
    <details class="file" open={open} onToggle={(event) => event.currentTarget.open !== open && toggle(event.currentTarget.open)}>
      <summary>{name}</summary>
      {open ? (
        <div class="lines diff" tabIndex={0} role="group" aria-label={`The difference in ${file.path}`}>
          {file.lines.map((line) => (
            <div class={`line ${line.kind}`}>{line.text || "\u00a0"}</div>
          ))}
          {file.is_cut ? <div class="line note">The rest is left out here.</div> : null}
        </div>
      ) : null}
    </details>
  );
}
