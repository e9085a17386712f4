// What is shown is in the address: it can be sent, reloaded, and left with the back button.
import { signal } from "@preact/signals";

const KEYS = ["task", "tab", "entry", "q", "group", "agent", "ids", "kind", "find"] as const;
export type Key = (typeof KEYS)[number];
export type Place = Partial<Record<Key, string>>;

function read(): Place {
  const place: Place = {};
  const query = new URLSearchParams(location.search);
  for (const key of KEYS) {
    const value = query.get(key);
    if (value) place[key] = value.slice(0, 4_000);
  }
  // An id goes into the paths of requests.
  if (place.task && !/^t-[0-9a-z]{5,15}$/.test(place.task)) delete place.task;
  if (place.entry && !/^[0-9]{1,12}$/.test(place.entry)) delete place.entry;
  return place;
}

export const place = signal<Place>(read());

export function href(patch: Place): string {
  const query = new URLSearchParams();
  const next = { ...place.value, ...patch };
  for (const key of KEYS) {
    const value = next[key];
    if (value) query.set(key, value);
  }
  const text = query.toString();
  return text ? `/?${text}` : "/";
}

export function go(patch: Place, replace = false): void {
  const to = href(patch);
  if (to === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  place.value = read();
}

/** The place of a task. */
export const taskPlace = (task: string): Place => ({ task, tab: "", entry: "", kind: "", find: "" });
/** The place of the list, with its filters. */
export const listPlace: Place = { task: "", tab: "", entry: "", kind: "", find: "" };

window.addEventListener("popstate", () => (place.value = read()));
