// What a person looks for: words, or a regular expression between slashes.

/** Tells whether a text has what was typed; null if nothing was typed. An unfinished expression is taken as words. */
export function matcher(typed: string): ((text: string) => boolean) | null {
  const wanted = typed.trim();
  if (!wanted) return null;
  const expression = /^\/(.+)\/$/s.exec(wanted)?.[1];
  if (expression) {
    try {
      const regex = new RegExp(expression, "i");
      // A long line is only looked at as far as this: an expression may need a long time for it.
      return (text) => regex.test(text.slice(0, 20_000));
    } catch {
      // Not one yet.
    }
  }
  const words = wanted.toLowerCase().split(/\s+/);
  return (text) => {
    const low = text.toLowerCase();
    return words.every((word) => low.includes(word));
  };
}
