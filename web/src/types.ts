// The JSON of the HTTP API, as far as the page reads it. docs/http-api.md describes it.

export type Status = "pending" | "running" | "completed" | "failed" | "cancelled";

export interface Usage {
  input: number;
  cached: number;
  cache_written: number;
  output: number;
  reasoning: number;
}

export interface Task {
  id: string;
  team: string | null;
  agent: string;
  headline: string;
  parent: string | null;
  root: string;
  depth: number;
  interactive: boolean;
  continues: string | null;
  retries: string | null;
  continued_by: string | null;
  status: Status;
  standing: string;
  activity: string;
  needs_you: boolean;
  attempt: number;
  stop: { cause: string; note: string | null } | null;
  error: string | null;
  cut_short: string | null;
  seq: number;
  created: string;
  started: string | null;
  ended: string | null;
  active: string;
  worked_ms: number;
  waiting: { on: string; since: string; until: string | null } | null;
  unread: number;
  turns: number;
  calls: number;
  usage: Usage;
  cost: number;
  unpriced: number;
  denied: number;
}

export interface Sums {
  tasks: number;
  ended: number;
  failed: number;
  needs_you: number;
  turns: number;
  calls: number;
  usage: Usage;
  cost: number;
  unpriced: number;
}

export interface Line {
  kind: "text" | "note" | "added" | "removed" | "same";
  text: string;
}

export interface Question {
  task: string;
  root: string;
  team: string | null;
  agent: string;
  headline: string;
  question: string;
  kind: "approval" | "text";
  text: string;
  lines: Line[];
  tool: string | null;
  why: string | null;
  grants: { scope: string; pattern: string }[];
  schema: Record<string, unknown> | null;
  since: string;
  until: string | null;
}

export interface TaskPage {
  tasks: Task[];
  next_cursor: string | null;
}

export interface TaskDetail {
  task: Task;
  order: Record<string, unknown>;
  children: Task[];
  tree: Sums;
  retried_as: string[];
  questions: Question[];
  worktree: Worktree | null;
  output: string;
  output_shortened: boolean;
}

export interface Worktree {
  branch: string;
  path: string | null;
}

export interface FileDiff {
  path: string;
  old_path: string | null;
  change: string;
  added: number | null;
  removed: number | null;
  is_binary: boolean;
  lines: Line[];
  is_cut: boolean;
}

export interface Diff {
  worktree: Worktree;
  base: string;
  commits: { id: string; subject: string }[];
  files: FileDiff[];
  is_partial: boolean;
}

export interface Item {
  seq: number;
  at: string;
  kind: "order" | "thought" | "said" | "call" | "letter" | "asked" | "note" | "end";
  gist: string;
  tone: string;
  text?: string;
  live?: boolean;
  call?: string;
  tool?: string;
  arguments?: string;
  progress?: string | null;
  output?: string | null;
  is_error?: boolean | null;
  lines?: number | Line[] | null;
  returned?: string | null;
  id?: string;
  from?: string;
  read?: string | null;
  question?: string;
  answer?: string | null;
  level?: string;
  status?: Status;
  error?: string | null;
  cut_short?: string | null;
}

export interface TranscriptPage {
  items: Item[];
  seq: number;
  before: number | null;
}

export interface Team {
  name: string;
  root: string;
  agents: { name: string; description: string }[];
  models: string[];
}

export interface Span {
  kind: "queued" | "working" | "call" | "waits_for_tasks" | "waits_for_person" | "waits_for_provider" | "waits_for_letter";
  seq: number;
  from: string;
  to: string | null;
  text: string;
  is_error?: boolean;
  attempt: number;
}

export interface TimelinePage {
  tasks: { task: string; spans: Span[] }[];
  is_partial: boolean;
}

export interface RecordView {
  seq: number;
  at: string;
  entry: Record<string, unknown>;
}

export interface StreamEvent {
  event: string;
  task: string;
  root: string;
  seq: number;
  at: string;
  text?: string;
  why?: string;
}
