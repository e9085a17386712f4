// The count of open questions in the title and the icon, and notifications while nobody looks.
import { effect } from "@preact/signals";
import { keyOf } from "./inbox";
import { wantsNotices } from "./memory";
import { questions, tasks, version } from "./store";
import { go, place, taskPlace } from "./url";

export const canNotify = () => "Notification" in window;

export async function askToNotify(): Promise<void> {
  if (!canNotify()) return;
  wantsNotices.value = (await Notification.requestPermission()) === "granted";
}

const icon = (many: number) => {
  const badge = many
    ? `<circle cx="22" cy="22" r="10" fill="#c2410c"/><text x="22" y="27" font-family="sans-serif" font-size="14" font-weight="700" fill="#fff" text-anchor="middle">${many > 9 ? "9+" : many}</text>`
    : "";
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#2b5c8a"/><path d="M9 8v16h14" fill="none" stroke="#fff" stroke-width="4" stroke-linecap="round" stroke-linejoin="round"/>${badge}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
};

export function keepTitle(): void {
  effect(() => {
    void version.value;
    const many = questions.value.length;
    const open = place.value.task ? tasks.get(place.value.task) : undefined;
    document.title = `${many ? `(${many}) ` : ""}${open ? `${open.agent}: ${open.headline.slice(0, 60)} · ` : ""}Longhaul`;
  });
  let shown = -1;
  effect(() => {
    const many = Math.min(10, questions.value.length);
    if (many === shown) return;
    shown = many;
    const link = document.getElementById("icon") as HTMLLinkElement | null;
    if (link) link.href = many ? icon(many) : "/assets/icon.svg";
  });
  const seen = new Set<string>();
  let first = true;
  effect(() => {
    for (const question of questions.value) {
      const key = keyOf(question);
      if (seen.has(key)) continue;
      seen.add(key);
      if (first || !document.hidden || !wantsNotices.value || !canNotify() || Notification.permission !== "granted") continue;
      try {
        const notice = new Notification(`${question.agent} asks`, { body: question.text.slice(0, 200), tag: key });
        notice.onclick = () => {
          window.focus();
          go(taskPlace(question.task));
          notice.close();
        };
      } catch {
        // Some browsers on phones have the name but not the thing.
      }
    }
    first = false;
  });
}
