// Time to width, with idle time compressed. No DOM here.

export interface Axis {
  /** The place of a time, from 0 to 1. */
  x(time: number): number;
  /** The time at a place. */
  time(x: number): number;
  /** Idle times that are drawn shorter than they were. */
  breaks: { x: number; ms: number }[];
}

/** Idle times shorter than this are drawn as they are. */
const SHORTEST_BREAK = 60_000;

/** Makes an axis from the times in which something was done. */
export function axis(busy: [number, number][], start: number, end: number): Axis {
  const merged: [number, number][] = [];
  for (const [from, to] of [...busy].sort((a, b) => a[0] - b[0])) {
    const last = merged[merged.length - 1];
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  const worked = Math.max(
    1,
    merged.reduce((sum, [from, to]) => sum + to - from, 0),
  );
  const least = Math.max(SHORTEST_BREAK, worked * 0.1);
  // Pieces of time with their widths, in order.
  const pieces: { from: number; to: number; width: number; cut: boolean }[] = [];
  let at = start;
  const gap = (to: number) => {
    if (to <= at) return;
    const cut = to - at > least;
    pieces.push({ from: at, to, width: cut ? worked * 0.05 : to - at, cut });
    at = to;
  };
  for (const [from, to] of merged) {
    gap(Math.min(from, end));
    const until = Math.min(to, end);
    if (until > at) {
      pieces.push({ from: at, to: until, width: until - at, cut: false });
      at = until;
    }
  }
  gap(end);
  if (pieces.length === 0) pieces.push({ from: start, to: Math.max(end, start + 1), width: 1, cut: false });
  const total = pieces.reduce((sum, piece) => sum + piece.width, 0) || 1;
  let x = 0;
  const placed = pieces.map((piece) => {
    const from = x;
    x += piece.width / total;
    return { ...piece, x: from, w: piece.width / total };
  });
  return {
    x(time) {
      for (const piece of placed) {
        if (time <= piece.to) return piece.x + Math.max(0, (time - piece.from) / (piece.to - piece.from || 1)) * piece.w;
      }
      return 1;
    },
    time(place) {
      for (const piece of placed) {
        if (place <= piece.x + piece.w) return piece.from + ((place - piece.x) / (piece.w || 1)) * (piece.to - piece.from);
      }
      return end;
    },
    breaks: placed.filter((piece) => piece.cut).map((piece) => ({ x: piece.x + piece.w / 2, ms: piece.to - piece.from })),
  };
}
