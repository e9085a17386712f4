// The transcript of the open task: the newest part first, older parts on demand, new ones as they come.
import { signal } from "@preact/signals";
import { get, Problem } from "./api";
import { listen } from "./store";
import type { Item, StreamEvent, TranscriptPage } from "./types";

const FIRST = 100;
const TAIL = 30;
const OLDER = 100;
/** Older items are dropped from the page when there are more than this, and read again on the way back. */
const MOST = 4_000;

/** Whether the end is followed. */
export const following = signal(true);

export interface Transcript {
  items: Item[];
  /** Pass this for older items; null if they are all here. */
  before: number | null;
  /** The last entry that is included. */
  seq: number;
}

/** Follows one task. */
export class TranscriptFeed {
  readonly shown = signal<Transcript | null>(null);
  readonly problem = signal("");
  /** Text that came while a page was under way. */
  private late: StreamEvent[] = [];
  private page: Transcript = { items: [], before: null, seq: 0 };
  private timer: ReturnType<typeof setTimeout> | null = null;
  private reading = false;
  private again = false;
  private framed = false;
  private closed = false;
  private readonly stopListening: () => void;

  constructor(readonly task: string) {
    this.stopListening = listen((name, event) => this.take(name, event));
    void this.read(FIRST);
  }

  close(): void {
    this.closed = true;
    this.stopListening();
    if (this.timer) clearTimeout(this.timer);
  }

  /** Something has happened: read the end again. */
  refresh(soon = 150): void {
    if (this.reading) this.again = true;
    else if (!this.timer) {
      this.timer = setTimeout(() => {
        this.timer = null;
        void this.read(TAIL);
      }, soon);
    }
  }

  private take(name: string, event: StreamEvent): void {
    if (name === "reset") this.refresh();
    if (event.task !== this.task) return;
    if (name === "text" || name === "reasoning") {
      this.late.push(event);
      this.append(event);
    } else this.refresh();
  }

  /** Adds text to the reply that is being written. */
  private append(event: StreamEvent): void {
    const { items, seq } = this.page;
    if (event.seq <= seq || !event.text) return;
    const kind = event.event === "reasoning" ? "thought" : "said";
    const last = items[items.length - 1];
    if (last?.live && last.kind === kind) {
      items[items.length - 1] = { ...last, text: (last.text ?? "") + event.text };
    } else {
      items.push({ seq: event.seq, at: event.at, kind, gist: "", tone: "plain", text: event.text, live: true });
    }
    this.show();
  }

  private show(): void {
    if (this.framed) return;
    this.framed = true;
    const now = () => {
      this.framed = false;
      if (!this.closed) this.shown.value = { ...this.page, items: [...this.page.items] };
    };
    if (document.hidden) setTimeout(now, 200);
    else requestAnimationFrame(now);
  }

  private async read(limit: number): Promise<void> {
    this.reading = true;
    this.again = false;
    try {
      const page = await get<TranscriptPage>(`/tasks/${this.task}/transcript?limit=${limit}`);
      if (this.closed) return;
      if (page.seq >= this.page.seq) {
        const first = page.items[0]?.seq ?? 0;
        const known = this.page.items.filter((item) => !item.live && item.seq < first);
        const joins = page.before === null || limit === FIRST || page.before <= this.page.seq + 1;
        if (!joins && limit < 500) {
          this.reading = false;
          return void (await this.read(500));
        }
        const older = joins && limit !== FIRST && page.before !== null ? known : [];
        let items = [...older, ...page.items];
        let before = older.length > 0 ? this.page.before : page.before;
        if (items.length > MOST && following.value) {
          items = items.slice(-MOST);
          before = items[0]?.seq ?? before;
        }
        this.page = { items, before, seq: page.seq };
        this.late = this.late.filter((event) => event.seq > page.seq);
        this.late.forEach((event) => this.append(event));
        this.problem.value = "";
        this.show();
      }
    } catch (error) {
      if (error instanceof Problem && error.status !== 0) this.problem.value = error.words;
      else this.again = true;
    } finally {
      this.reading = false;
      if (this.again && !this.closed) this.refresh(400);
    }
  }

  private loadingOlder = false;
  async older(limit = OLDER): Promise<boolean> {
    const before = this.page.before;
    if (before === null || this.loadingOlder) return false;
    this.loadingOlder = true;
    try {
      const page = await get<TranscriptPage>(`/tasks/${this.task}/transcript?limit=${limit}&before=${before}`);
      if (this.closed || this.page.before !== before) return false;
      const first = this.page.items[0]?.seq ?? Infinity;
      const items = page.items.filter((item) => item.seq < first);
      this.page = { items: [...items, ...this.page.items], before: page.before, seq: this.page.seq };
      // At once: the scroll position is kept by whoever asked.
      this.shown.value = { ...this.page, items: [...this.page.items] };
      return true;
    } catch {
      return false;
    } finally {
      this.loadingOlder = false;
    }
  }
}
