// Requests to the API of the server that this page came from. No other address is ever used.
import { signal } from "@preact/signals";

/** Whether the browser is signed in: unknown until the first answer. */
export const signedIn = signal<boolean | null>(null);
/** How far the server's clock is ahead of this one. */
let skew = 0;
export const serverNow = () => Date.now() + skew;

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly hint: string | null,
  ) {
    super(detail);
  }
  get words(): string {
    return this.hint ? `${this.detail}. ${this.hint[0]?.toUpperCase()}${this.hint.slice(1)}.` : `${this.detail}.`;
  }
}

export const words = (error: unknown) => (error instanceof Problem ? error.words : String(error));

const BASE = "/api/v1";

export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set("x-longhaul", "1");
  let response: Response;
  try {
    response = await fetch(BASE + path, { ...init, headers, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "the server does not answer", "it is tried again by itself");
  }
  const date = Date.parse(response.headers.get("date") ?? "");
  if (date && Math.abs(date - Date.now()) > 2_000) skew = date - Date.now();
  else if (date) skew = 0;
  if (response.ok) {
    signedIn.value = true;
    return response;
  }
  if (response.status === 401) signedIn.value = false;
  const body = (await response.json().catch(() => ({}))) as Record<string, unknown>;
  const text = (key: string) => (typeof body[key] === "string" ? (body[key] as string) : "");
  throw new Problem(response.status, text("code"), text("detail") || `the server answered ${response.status}`, text("hint") || null);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await request(path, signal ? { signal } : {});
  return (await response.json()) as T;
}

export async function post<T>(path: string, body?: unknown, key?: string): Promise<T> {
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (key) headers["idempotency-key"] = key;
  const response = await request(path, { method: "POST", headers, body: body === undefined ? null : JSON.stringify(body) });
  return (await response.json()) as T;
}
