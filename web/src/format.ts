// Numbers, amounts and times as the terminal writes them (crates/longhaul/src/transcript/numbers.rs).

const two = (n: number) => String(n).padStart(2, "0");

export function duration(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 10) return `${(Math.floor(Math.max(0, ms) / 100) / 10).toFixed(1)}s`;
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86_400) return `${Math.floor(s / 3600)}h${two(Math.floor((s % 3600) / 60))}m`;
  return `${Math.floor(s / 86_400)}d${two(Math.floor((s % 86_400) / 3600))}h`;
}

/** A time that ticks: whole seconds. */
export const ticking = (ms: number) => (ms < 10_000 ? `${Math.max(0, Math.floor(ms / 1000))}s` : duration(ms));

export const count = (n: number) => n.toLocaleString("en-US");

export function short(n: number): string {
  const scaled = (unit: number) => (Math.floor(n / (unit / 10)) / 10).toFixed(1);
  if (n < 1_000) return String(n);
  if (n < 100_000) return `${scaled(1_000)}k`;
  if (n < 1_000_000) return `${Math.floor(n / 1_000)}k`;
  return n < 1e9 ? `${scaled(1e6)}M` : `${scaled(1e9)}G`;
}

export const plural = (n: number, what: string) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;

export function dollars(cost: number): string {
  const much = cost / 1e6;
  return much >= 10 ? `$${much.toFixed(2)}` : `$${much.toFixed(4)}`;
}

/** The cost of something: with a + if a part of it is not known, ? if nothing of it is known. */
export const price = (cost: number, unpriced: number) =>
  cost === 0 ? (unpriced > 0 ? "?" : "") : `${dollars(cost)}${unpriced > 0 ? "+" : ""}`;

export function clock(at: string | number, seconds = true): string {
  const time = new Date(at);
  const text = `${two(time.getHours())}:${two(time.getMinutes())}`;
  return seconds ? `${text}:${two(time.getSeconds())}` : text;
}

export function dateTime(at: string | number): string {
  const time = new Date(at);
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock(at)}`;
}

export const ms = (at: string) => Date.parse(at);
