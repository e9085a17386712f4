// Server-sent events over fetch: a cookie counts only with a header, which EventSource cannot send.
import { request, Problem } from "./api";
import type { StreamEvent } from "./types";

export type Connection = "connecting" | "live" | "lost";

interface Handlers {
  /** The stream is open. `fresh` if it begins now, not where an earlier one ended. */
  opened(fresh: boolean): void;
  event(name: string, data: StreamEvent): void;
  state(state: Connection): void;
  /** Something came, be it only a sign of life. */
  heard(): void;
}

/** No byte for this long means that the connection is dead: the server sends a comment every 15 s. */
const SILENCE = 35_000;
const PAUSES = [150, 500, 1_000, 2_000, 3_000];

export class EventStream {
  private last: string | null = null;
  private live: string | null = null;
  private abort: AbortController | null = null;
  private wake: (() => void) | null = null;
  /** Which run is the current one; 0 while it is stopped. */
  private running = 0;
  private runs = 0;
  private failures = 0;

  constructor(private readonly on: Handlers) {}

  start(): void {
    if (this.running) return;
    this.runs += 1;
    this.running = this.runs;
    void this.run(this.running);
  }

  stop(): void {
    this.running = 0;
    this.abort?.abort();
    this.wake?.();
    this.on.state("connecting");
  }

  /** Text of this task's tree comes while it is written. The stream goes on where it was. */
  follow(task: string | null): void {
    if (this.live === task) return;
    this.live = task;
    if (this.abort) {
      this.failures = 0;
      this.abort.abort("again");
    }
  }

  /** Tries again at once. */
  hurry(): void {
    this.failures = 0;
    this.wake?.();
  }

  private async run(me: number): Promise<void> {
    while (this.running === me) {
      const abort = new AbortController();
      this.abort = abort;
      let again = false;
      try {
        await this.read(abort);
      } catch (error) {
        again = abort.signal.reason === "again";
        if (error instanceof Problem) {
          // A task that does not exist any more cannot be followed; a position that is not known means to begin anew.
          if (error.status === 404) this.live = null;
          if (error.code === "unknown_event") this.last = null;
        }
      }
      if (this.running !== me) break;
      this.abort = null;
      if (again) continue;
      this.on.state("lost");
      const pause = PAUSES[Math.min(this.failures, PAUSES.length - 1)] ?? 3_000;
      this.failures += 1;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, pause);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.wake = null;
    }
  }

  private async read(abort: AbortController): Promise<void> {
    const query = new URLSearchParams({ after: this.last ?? "now" });
    if (this.live) query.set("live", this.live);
    let timer = setTimeout(() => abort.abort(), SILENCE);
    try {
      const response = await request(`/events?${query}`, { signal: abort.signal });
      const reader = response.body?.getReader();
      if (!reader) return;
      const decoder = new TextDecoder();
      let rest = "";
      let opened = false;
      const fresh = this.last === null;
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => abort.abort(), SILENCE);
        this.failures = 0;
        this.on.heard();
        rest += decoder.decode(value, { stream: true });
        let end: number;
        while ((end = rest.indexOf("\n\n")) >= 0) {
          const block = rest.slice(0, end);
          rest = rest.slice(end + 2);
          this.block(block);
          if (!opened && this.last !== null) {
            opened = true;
            this.on.state("live");
            this.on.opened(fresh);
          }
        }
      }
    } finally {
      clearTimeout(timer);
    }
  }

  private block(block: string): void {
    let name = "";
    let data = "";
    let id: string | null = null;
    for (const line of block.split("\n")) {
      if (line.startsWith("data: ")) data += line.slice(6);
      else if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("id: ")) id = line.slice(4);
    }
    if (data) this.on.event(name, JSON.parse(data) as StreamEvent);
    // Only once it is taken in: what fails on the way is sent again.
    if (id !== null) this.last = id;
  }
}
