// What this browser remembers: folds and drafts. Never an address, never a secret.
import { signal, type Signal } from "@preact/signals";

export function remembered<T>(name: string, usual: T, isRight: (value: unknown) => boolean): Signal<T> {
  let value = usual;
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(`longhaul.${name}`) ?? "null");
    if (stored !== null && isRight(stored)) value = stored as T;
  } catch {
    // Storage may be off, or hold something else.
  }
  const kept = signal(value);
  let first = true;
  kept.subscribe((next) => {
    if (first) {
      first = false;
      return;
    }
    try {
      localStorage.setItem(`longhaul.${name}`, JSON.stringify(next));
    } catch {
      // It lasts as long as the page, then.
    }
  });
  return kept;
}

const isFolds = (value: unknown) => typeof value === "object" && value !== null && !Array.isArray(value);
/** Folds that a person chose: 1 is folded, 0 is open. */
export const folds = remembered<Record<string, 0 | 1>>("folds", {}, isFolds);

export function setFold(id: string, folded: boolean): void {
  const all = Object.entries(folds.value).filter(([key]) => key !== id);
  folds.value = Object.fromEntries([...all.slice(-400), [id, folded ? 1 : 0]]);
}

/** What was typed and not sent yet, by its place. */
const drafts = remembered<Record<string, string>>("drafts", {}, isFolds);
export const draft = (name: string) => String(drafts.value[name] ?? "");
export function setDraft(name: string, text: string): void {
  const all = Object.entries(drafts.value).filter(([key]) => key !== name);
  drafts.value = Object.fromEntries(text ? [...all.slice(-30), [name, text]] : all);
}

export const wantsNotices = remembered("notices", false, (value) => typeof value === "boolean");
export const theme = remembered<"auto" | "light" | "dark">("theme", "auto", (value) => ["auto", "light", "dark"].includes(value as string));
