// Parts without a page: groups and sums, the time axis, which links are safe.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const src = join(dirname(fileURLToPath(import.meta.url)), "../src");
const dir = mkdtempSync(join(tmpdir(), "longhaul-units-"));
after(() => rmSync(dir, { recursive: true }));
const load = async (name) => {
  const outfile = join(dir, `${name}.mjs`);
  await build({ entryPoints: [join(src, name)], bundle: true, format: "esm", outfile, jsx: "automatic", jsxImportSource: "preact" });
  return import(pathToFileURL(outfile));
};
const { axis } = await load("axis.ts");
const { forest, totals, index } = await load("forest.ts");
const { matcher } = await load("match.ts");
const { safeHref } = await load("markdown.tsx");
const { duration, short, dollars } = await load("format.ts");

const usage = { input: 10, cached: 0, cache_written: 0, output: 5, reasoning: 0 };
let made = 0;
const task = (id, more = {}) => {
  made += 1;
  const created = new Date(1_700_000_000_000 + made * 1_000).toISOString();
  return [
    id,
    {
      id,
      agent: "a",
      headline: id,
      parent: null,
      root: id,
      status: "completed",
      standing: "completed",
      needs_you: false,
      waiting: null,
      error: null,
      team: null,
      usage,
      cost: 1,
      unpriced: 0,
      created,
      ...more,
    },
  ];
};
const running = { status: "running", standing: "running" };

test("trees are grouped by the most urgent state in them, newest first, and keep their order", () => {
  const tasks = new Map([
    task("done"),
    task("lead", { ...running, waiting: { on: "x", since: "", until: null } }),
    task("child", { ...running, parent: "lead", root: "lead", needs_you: true }),
    task("failed", { status: "failed", standing: "failed", parent: "lead", root: "lead" }),
    task("works", running),
    task("newer", running),
    task("waits", { ...running, waiting: { on: "x", since: "", until: null } }),
    task("gone", { status: "pending", standing: "interrupted" }),
  ]);
  const keys = (place = {}, folds = {}) => forest(tasks, place, folds, 0).rows.map((row) => row.key);
  assert.deepEqual(keys(), [
    "group-needs",
    "gone",
    "lead",
    "child",
    "failed",
    "group-working",
    "newer",
    "works",
    "group-waiting",
    "waits",
    "group-finished",
    "done",
  ]);
  assert.deepEqual(keys({}, { lead: 1 }).slice(0, 4), ["group-needs", "gone", "lead", "group-working"]);
  assert.deepEqual(keys({ q: "child" }), ["group-needs", "lead", "child"], "with what is above it");
  assert.deepEqual(keys({ group: "failed" }), ["group-needs", "lead", "failed"]);
  assert.deepEqual(keys({ ids: "works,done" }), ["group-working", "works", "group-finished", "done"]);
  const sum = totals(tasks.get("lead"), index(tasks).children, 0);
  assert.deepEqual([sum.tasks, sum.ended, sum.failed, sum.firstFailed, sum.tokens, sum.cost], [3, 1, 1, "failed", 45, 3]);
});

test("idle time is compressed, and times and places are each other's inverse", () => {
  const hour = 3_600_000;
  const made = axis(
    [
      [0, 10_000],
      [5_000, 20_000],
      [hour, hour + 20_000],
    ],
    0,
    hour + 20_000,
  );
  assert.equal(made.breaks.length, 1);
  assert.equal(made.breaks[0].ms, hour - 20_000);
  assert.ok(made.x(20_000) > 0.4, "what was done has most of the width");
  for (const time of [0, 3_000, 19_000, hour / 2, hour + 1_000]) assert.ok(Math.abs(made.time(made.x(time)) - time) < 10, `${time}`);
  assert.ok(made.x(hour + 20_000) > 0.999);
  assert.equal(
    axis(
      [
        [0, 10_000],
        [30_000, 40_000],
      ],
      0,
      40_000,
    ).breaks.length,
    0,
    "short pauses stay as they are",
  );
});

test("links lead to pages and mailboxes only", () => {
  for (const good of ["https://a.example/x", "http://a.example", "mailto:a@b.example"]) assert.ok(safeHref(good), good);
  for (const bad of [
    "javascript:1",
    "JAVASCRIPT:1",
    "\u0001javascript:1",
    "java\tscript:1",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc",
    "/api/v1/session",
    "//evil.example",
    "blob:x",
    "x",
    "",
  ]) {
    assert.equal(safeHref(bad), null, bad);
  }
});

test("numbers are written as in the terminal", () => {
  assert.deepEqual([0, 9_990, 42_000, 65_000, 7_380_000, 273_600_000].map(duration), ["0.0s", "9.9s", "42s", "1m05s", "2h03m", "3d04h"]);
  assert.deepEqual([999, 1_234, 12_345, 1_234_567].map(short), ["999", "1.2k", "12.3k", "1.2M"]);
  assert.deepEqual([4_200, 12_300_000].map(dollars), ["$0.0042", "$12.30"]);
});

test("what is looked for is words, or a regular expression between slashes", () => {
  const finds = (typed, text) => matcher(typed)(text);
  assert.equal(matcher("  "), null);
  assert.ok(finds("Two ONE", "one and two") && !finds("one three", "one and two"));
  assert.ok(finds("/t.o$/", "one and TWO") && !finds("/^two/", "one and two"));
  assert.ok(finds("/(/", "a /(/ b"), "an unfinished expression is text");
  assert.ok(finds("/usr/bin", "cat /usr/bin/x"));
});
