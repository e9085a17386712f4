// The dashboard in a real Chromium against the real `longhaul serve`.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { openPage } from "./browser.mjs";
import { BINARY, Server } from "./server.mjs";
import { browser, server, skip } from "./with_server.mjs";

const require = createRequire(import.meta.url);
if (skip) console.log(`skipped: the dashboard is not tested in a browser: ${skip}`);
const SHOTS = process.env.SCREENSHOTS;
if (SHOTS) mkdirSync(SHOTS, { recursive: true });

const options = { skip, timeout: 90_000 };
const start = (task, agent) => server.api("/tasks", { task, agent });
const row = (page, id) => page.locator(`[data-task="${id}"]`);
const card = (page, id) => page.locator(`[data-question^="${id}/"]`);
const shot = async (page, name) => SHOTS && page.screenshot({ path: `${SHOTS}/${name}.png` });
/** Nothing was logged, blocked or loaded that should not have been. */
const clean = async (page) => {
  assert.deepEqual(page.problems, []);
  await page.context().close();
};
/** Runs another command of Longhaul on the data of a server. */
const cli = (server, ...args) =>
  execFileSync(BINARY, ["--data", server.data, ...args], { cwd: server.dir, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
const git = (dir, ...args) => execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@b", ...args], { cwd: dir, encoding: "utf8" });
/** Starts a task in a git worktree of its own, and waits until that is there. */
async function repositoryTask(server) {
  writeFileSync(`${server.dir}/.gitignore`, "data\n");
  writeFileSync(`${server.dir}/notes.txt`, "one\ntwo\nthree\n");
  git(server.dir, "init", "-q", "-b", "main");
  git(server.dir, "add", "-A");
  git(server.dir, "commit", "-q", "-m", "first");
  const task = await server.api("/tasks", { task: "hang: in a worktree", isolation: "worktree" });
  let worktree = null;
  while (!worktree?.path) worktree = (await server.api(`/tasks/${task.id}`)).worktree;
  return { id: task.id, path: worktree.path };
}
const ended = (id) => server.api(`/wait?tasks=${id}&timeout=30`);

test("a link signs in once, and without a session nothing is served", options, async () => {
  const link = await server.link();
  const page = await openPage(browser, server);
  await clean(page);
  const bare = await fetch(`${server.url}/assets/app.js`);
  assert.equal(bare.status, 401);
  const first = await (await fetch(`${server.url}/`)).text();
  assert.match(first, /sign-in\.js/);
  const context = await browser.newContext();
  const one = await context.newPage();
  await one.goto(link);
  await one.locator(".filters").waitFor();
  assert.ok(!one.url().includes("code"), "the code has left the address");
  const other = await (await browser.newContext()).newPage();
  await other.goto(link);
  await other.getByText("used before or has expired").waitFor();
  await other.context().close();
  await context.close();
});

test("a task is started, watched, and its approval answered", options, async () => {
  const page = await openPage(browser, server);
  await page.keyboard.press("N");
  await page.getByLabel("What should it do?").fill("approve: tidy up");
  await page.getByLabel("Tokens").fill("50000");
  // The draft survives a reload.
  await page.reload();
  await page.locator(".filters").waitFor();
  await page.getByRole("button", { name: "New task" }).click();
  assert.equal(await page.getByLabel("What should it do?").inputValue(), "approve: tidy up");
  assert.equal(await page.getByLabel("Tokens").inputValue(), "50000");
  await page.getByLabel("What should it do?").press("Control+Enter");
  await page.waitForURL(/task=t-/);
  const id = new URL(page.url()).searchParams.get("task");
  await page.getByText("I look at the files first.").first().waitFor();
  await page.waitForFunction(() => document.title.startsWith("(1)"));
  assert.match(await page.locator("#icon").getAttribute("href"), /^data:image\/svg/);
  await card(page, id).getByText("ls -la").first().waitFor();
  await page.waitForTimeout(450); // A tap counts 0.4 s after its question appeared.
  await card(page, id).getByRole("button", { name: "Yes" }).first().click();
  await page.getByText("What I found").first().waitFor();
  await page.locator(".item.end").waitFor();
  await page.waitForFunction(() => !document.title.startsWith("("));
  // Markdown is made of elements; its link leads out and tells nobody from where.
  const link = page.locator(".transcript .md a").first();
  assert.equal(await link.getAttribute("href"), "https://example.com/docs");
  assert.match(await link.getAttribute("rel"), /noreferrer/);
  assert.equal(await page.locator(".transcript .md table td").count(), 4);
  // The call unfolds into arguments and result.
  await page.locator(".call-box summary").first().click();
  await page.locator(".two pre").nth(1).waitFor();
  assert.match(await page.locator(".two").innerText(), /team\.yaml/);
  await page.getByRole("tab", { name: "Journal" }).click();
  await page.locator(".journal details").first().waitFor();
  await page.getByRole("tab", { name: "Usage" }).click();
  await page.locator(".usage td").first().waitFor();
  assert.equal((await server.api(`/tasks/${id}`)).order.tree_budget.tokens, 50_000);
  assert.match(await page.locator(".budget").innerText(), /Tokens: [\d,]+ of 50,000/);
  await page.getByRole("tab", { name: "Output" }).click();
  await page.locator(".scroll .md").waitFor();
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export" }).click();
  const lines = readFileSync(await (await saved).path(), "utf8")
    .trim()
    .split("\n");
  assert.equal(JSON.parse(lines[0]).seq, 1);
  await clean(page);
});

test("no with a reason, always with a pattern, choices, text and decline, in place", options, async () => {
  const page = await openPage(browser, server);
  const [denied, always, chosen, said, declined] = await Promise.all(
    ["approve: deny me", "approve: allow me", "choose: a colour", "words: a name", "words: decline me"].map((text) => start(text)),
  );
  await card(page, declined.id).waitFor();
  await page.waitForTimeout(450);
  await card(page, denied.id).focus();
  await page.keyboard.press("n");
  await page.getByLabel(/Why not/).fill("not on a Tuesday");
  await page.keyboard.press("Enter");
  await card(page, denied.id).waitFor({ state: "detached" });
  await page.waitForTimeout(450);
  await card(page, always.id).getByRole("button", { name: "Always" }).click();
  await card(page, always.id)
    .getByRole("button", { name: /every call of the tool/ })
    .click();
  await page.getByText("Allowed in this tree from now on").waitFor();
  await card(page, always.id).waitFor({ state: "detached" });
  await page.waitForTimeout(450);
  await card(page, chosen.id).getByRole("button", { name: "green" }).click();
  await card(page, chosen.id).waitFor({ state: "detached" });
  await page.waitForTimeout(450);
  await card(page, said.id).getByLabel("Your answer").fill("notes.txt");
  await card(page, said.id).getByRole("button", { name: "Send" }).click();
  await card(page, said.id).waitFor({ state: "detached" });
  await page.waitForTimeout(450);
  await card(page, declined.id).getByRole("button", { name: "Decline" }).click();
  await card(page, declined.id).waitFor({ state: "detached" });
  for (const task of [denied, always, chosen, said, declined]) await ended(task.id);
  const journal = async (id) => JSON.stringify(await server.api(`/tasks/${id}/journal?limit=1000`));
  assert.match(await journal(denied.id), /not on a Tuesday/);
  assert.match(await journal(always.id), /granted/i);
  assert.match((await server.api(`/tasks/${chosen.id}/result`)).output, /green/);
  assert.match((await server.api(`/tasks/${said.id}/result`)).output, /notes\.txt/);
  await clean(page);
});

test("a task gets a message, and is stopped after the page has said what is lost", options, async () => {
  const page = await openPage(browser, server);
  const [hears, hangs] = await Promise.all([start("listen: to me"), start("hang: until stopped")]);
  await page.goto(`${server.url}/?task=${hears.id}`);
  await page.getByLabel(/Message to root/).fill("hello from the browser");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("Heard: ").first().waitFor();
  assert.match(await page.locator(".transcript").innerText(), /hello from the browser/);
  await page.goto(`${server.url}/?task=${hangs.id}`);
  await page.getByText("I wait for the provider.").first().waitFor();
  await page.keyboard.press("s");
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/commands that run are lost/).waitFor();
  await dialog.getByRole("button", { name: "Stop" }).click();
  await page.locator(".title-line .is-cancelled").waitFor();
  // It can be retried; the new task opens.
  await page.getByRole("button", { name: "Retry" }).click();
  await page.waitForURL((url) => url.searchParams.get("task") !== hangs.id);
  const again = new URL(page.url()).searchParams.get("task");
  await server.api(`/tasks/${again}/stop`, {}, "POST");
  await clean(page);
});

test("from the first page the failed child of a failed run and its cause are at most two clicks or five keys away", options, async () => {
  const run = await start("fails: the whole run");
  await ended(run.id);
  const child = (await server.api(`/tasks/${run.id}`)).children.find((task) => task.status === "failed").id;
  const page = await openPage(browser, server);
  /** Does the steps from the first page, and is then on the failed child with its cause in view. */
  const reaches = async (what, most, steps) => {
    await page.goto(server.url);
    await row(page, run.id).waitFor();
    assert.equal(await row(page, child).count(), 0, "the tree is folded: the child is not on the first page");
    assert.ok(steps.length <= most, `${what}: ${steps.length} steps`);
    for (const step of steps) await step();
    await page.waitForURL(new RegExp(`task=${child}`));
    const cause = page.locator(".cause").getByText("no config found anywhere").first();
    await cause.waitFor();
    const box = await cause.boundingBox();
    assert.ok(box.y > 0 && box.y + box.height <= 800, `${what}: without scrolling`);
  };
  const press = (key) => () => page.keyboard.press(key);
  await reaches("the mark on the row", 2, [() => row(page, run.id).locator(".failed-below").click()]);
  await reaches("through the run", 2, [
    () => row(page, run.id).locator(".what").click(),
    () => page.locator(".cause").getByRole("link", { name: child }).click(),
  ]);
  await reaches("next error", 5, [press(".")]);
  // It is the newest run that has ended, so it is the first of its group.
  const rows = await page.goto(server.url).then(async () => {
    await row(page, run.id).waitFor();
    return page.locator("[data-task]").evaluateAll((all) => all.map((one) => one.dataset.task));
  });
  const downs = Array.from({ length: rows.indexOf(run.id) + 1 }, () => press("j"));
  if (downs.length <= 3) await reaches("the run, then the error", 5, [...downs, press("Enter"), press(".")]);
  await page.keyboard.press("Escape");
  await page.locator(".rows").waitFor();
  // The waterfall has a bar for what was done, with its own words.
  await page.goto(`${server.url}/?task=${run.id}`);
  await page.locator('.bar[aria-label*="run_background_agent"]').first().waitFor();
  await page.locator('.bar[aria-label^="waits for t-"]').first().waitFor();
  // Brushing over the times zooms; keys do, too.
  const axis = await page.locator(".fall-axis").boundingBox();
  await page.mouse.move(axis.x + axis.width * 0.2, axis.y + 10);
  await page.mouse.down();
  await page.mouse.move(axis.x + axis.width * 0.6, axis.y + 10, { steps: 4 });
  await page.mouse.up();
  await page.getByRole("button", { name: "Show all" }).click();
  await page.keyboard.press("+");
  await page.getByRole("button", { name: "Show all" }).waitFor();
  await page.keyboard.press("-");
  await page.getByText("drag to zoom").waitFor();
  await shot(page, "failed");
  await clean(page);
});

test("a reload in the middle, and two tabs", options, async () => {
  const page = await openPage(browser, server);
  const task = await start("stream: something long");
  await page.goto(`${server.url}/?task=${task.id}`);
  await page.getByText("word3 is").first().waitFor();
  await page.reload();
  await page.getByText("word10 is").first().waitFor();
  const second = await openPage(browser, server, { context: page.context() });
  const asks = await start("approve: in two tabs");
  await card(page, asks.id).waitFor({ state: "detached" }); // Another task is open there.
  await card(second, asks.id).waitFor();
  await page.waitForFunction(() => document.title.startsWith("(1)"));
  await second.waitForTimeout(450);
  await card(second, asks.id).getByRole("button", { name: "Yes" }).click();
  await page.waitForFunction(() => !document.title.startsWith("("));
  await page.getByText("END-OF-STREAM").first().waitFor();
  const text = await page.locator(".transcript").innerText();
  for (let i = 0; i < 100; i += 1) {
    assert.equal(text.split(`word${i} is`).length, 2, `word${i} is there once`);
  }
  assert.deepEqual(second.problems, []);
  await clean(page);
});

test("of the tabs in the background one stays connected and notifies, and all catch up", options, async () => {
  const context = await browser.newContext({ permissions: ["notifications"], viewport: { width: 1280, height: 800 } });
  await context.addInitScript(() => {
    window.notices = [];
    window.Notification = class {
      static permission = "granted";
      static requestPermission = async () => "granted";
      constructor(title, options) {
        window.notices.push(`${title}: ${options.body}`);
      }
    };
    localStorage.setItem("longhaul.notices", "true");
  });
  const link = await context.newPage();
  await link.goto(await server.link());
  await link.locator(".filters").waitFor();
  await link.close();
  const tabs = [await openPage(browser, server, { context }), await openPage(browser, server, { context })];
  for (const tab of tabs) await tab.locator(".conn:not(.off)").waitFor();
  const hide = (tab, hidden) =>
    tab.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  for (const tab of tabs) await hide(tab, true);
  // Which of them stays is for the browser to say.
  await Promise.any(tabs.map((tab) => tab.locator(".conn.off").waitFor()));
  if (await tabs[0].locator(".conn.off").count()) tabs.reverse();
  const task = await start("approve: nobody looks");
  await tabs[0].waitForFunction(() => document.title.startsWith("(1)"));
  await tabs[0].waitForFunction(() => window.notices.length > 0);
  const notices = await Promise.all(tabs.map((tab) => tab.evaluate(() => window.notices.length)));
  assert.deepEqual(notices, [1, 0]);
  // It takes over when the other one is gone.
  await tabs[0].close();
  await tabs[1].waitForFunction(() => document.title.startsWith("(1)"));
  await hide(tabs[1], false);
  await card(tabs[1], task.id).waitFor();
  await server.api(`/tasks/${task.id}/stop`, {}, "POST");
  await card(tabs[1], task.id).waitFor({ state: "detached" });
  await clean(tabs[1]);
});

test("one scrolls up, new entries are counted, and older ones load", options, async () => {
  const page = await openPage(browser, server, { viewport: { width: 1000, height: 420 } });
  const task = await start("stream: to scroll in");
  await page.goto(`${server.url}/?task=${task.id}`);
  await page.getByText("word30 is").first().waitFor();
  const isAtEnd = () =>
    page.evaluate(() => {
      const at = document.querySelector(".transcript");
      return at.scrollHeight - at.scrollTop - at.clientHeight < 60;
    });
  assert.ok(await isAtEnd(), "the end is followed");
  await page.locator(".transcript").hover();
  await page.mouse.wheel(0, -3000);
  await page.locator(".pill").waitFor();
  await page.waitForFunction(() => /word45 is/.test(document.querySelector(".transcript").textContent));
  assert.ok(!(await isAtEnd()), "it stays where the reader is");
  await page.locator(".pill").click();
  await page.locator(".pill").waitFor({ state: "detached" });
  await server.api(`/tasks/${task.id}/stop`, {}, "POST");
  await page.locator(".item.end").waitFor();
  assert.ok(await isAtEnd());
  await clean(page);
});

test("the connection is lost and found without a gap", options, async () => {
  const own = await Server.start();
  try {
    const page = await openPage(browser, own);
    const task = await own.api("/tasks", { task: "approve: survive a restart" });
    await card(page, task.id).waitFor();
    await own.down("SIGKILL");
    // Said at once, with the age of what is shown.
    await page.getByText(/Connection lost\. This is from \d+s ago/).waitFor({ timeout: 3_000 });
    await page.getByText(/This is from [2-9]s ago/).waitFor();
    assert.ok(await card(page, task.id).isVisible(), "what was known stays on the page");
    await own.up();
    // The page goes on by itself: the browser is still signed in.
    await page.locator(".outage").waitFor({ state: "detached" });
    await page.locator(".conn:not(.off)").waitFor();
    await card(page, task.id).waitFor();
    await page.waitForTimeout(450);
    await card(page, task.id).getByRole("button", { name: "Yes" }).click();
    await card(page, task.id).waitFor({ state: "detached" });
    await row(page, task.id).locator(".is-completed").waitFor();
    // So is a page that is loaded now, and one after an orderly restart.
    const second = await page.context().newPage();
    await second.goto(`${own.url}/?task=${task.id}`);
    await second.locator(".item.end").waitFor();
    await own.down("SIGTERM");
    await second.getByText(/Connection lost/).waitFor();
    await own.up();
    await second.locator(".conn:not(.off)").waitFor();
    const after = await own.api("/tasks", { task: "approve: after the restart" });
    await page.bringToFront();
    await card(page, after.id).waitFor();
    const expected = /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|ERR_CONNECTION_CLOSED|503/;
    assert.deepEqual(
      page.problems.filter((problem) => !expected.test(problem)),
      [],
    );
    // Without its token a session is nothing, also after a restart: the page says so, and what to do.
    cli(own, "token", "create", "other", "--scope", "admin");
    cli(own, "token", "revoke", "default");
    await page.getByText("You are signed out").waitFor();
    await own.down("SIGKILL");
    await page.context().close();
  } finally {
    await own.end();
  }
});

test("filters and search are in the address, several tasks are stopped at once", options, async () => {
  const page = await openPage(browser, server);
  const [one, two] = await Promise.all([start("hang: bulk one"), start("hang: bulk two")]);
  await row(page, two.id).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("bulk");
  await page.waitForURL(/q=bulk/);
  await page.waitForFunction(() => document.querySelectorAll("[data-task]").length === 2);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("[data-task]").length === 2);
  await row(page, one.id).getByRole("checkbox").check();
  await row(page, two.id).getByRole("checkbox").check();
  await page.locator(".bulk").getByRole("button", { name: "Stop 2" }).click();
  await page.getByRole("dialog").getByText("commands that run are lost").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Stop all" }).click();
  await page.waitForURL(/ids=t-/);
  await row(page, one.id).locator(".is-cancelled").waitFor();
  await row(page, two.id).locator(".is-cancelled").waitFor();
  const states = await Promise.all([one, two].map(async (task) => (await server.api(`/tasks/${task.id}`)).task.status));
  assert.deepEqual(states, ["cancelled", "cancelled"]);
  assert.equal(await page.locator("[data-task]").count(), 2, "just those are shown");
  await page.keyboard.press("Escape");
  await page.waitForURL((url) => url.search === "");
  await clean(page);
});

test("rows stay where they are as long as the pointer is on the list, whatever comes and goes above it", options, async () => {
  const page = await openPage(browser, server);
  const first = await start("approve: first row");
  await card(page, first.id).waitFor();
  await row(page, first.id).locator(".is-asks").waitFor();
  const place = async () => Math.round((await row(page, first.id).boundingBox()).y);
  await row(page, first.id).hover();
  await page.mouse.move(300, (await place()) + 20);
  await page.mouse.move(304, (await place()) + 22);
  const was = await place();
  // A screen has whole pixels to scroll by.
  const stays = async (what) => assert.ok(Math.abs((await place()) - was) <= 1, `${what}: ${was}, then ${await place()}`);
  const isUnder = () => page.waitForFunction((id) => document.querySelector(".row:hover")?.dataset.task === id, first.id);
  await isUnder();
  // A question is a card above the list, and a row in front of the others.
  const second = await start("approve: second row");
  await card(page, second.id).waitFor({ state: "attached" });
  await page.getByText("rows move when your pointer leaves").waitFor({ state: "attached" });
  await stays("a card has come");
  // Much later, with a pointer that does not move.
  await page.evaluate(() => {
    const real = Date.now;
    Date.now = () => real() + 3_600_000;
  });
  const third = await start("approve: third row");
  await card(page, third.id).waitFor({ state: "attached" });
  await stays("an hour later");
  for (const task of [second, third]) await server.api(`/tasks/${task.id}/stop`, {}, "POST");
  await card(page, third.id).waitFor({ state: "detached" });
  await card(page, second.id).waitFor({ state: "detached" });
  await stays("two cards have gone");
  await server.api(`/tasks/${first.id}/stop`, {}, "POST");
  await row(page, first.id).locator(".is-cancelled").waitFor();
  await stays("it has ended, which is another group");
  // The buttons for chosen tasks come above the list, too.
  await row(page, first.id).getByRole("checkbox").check();
  await page.locator(".bulk").waitFor();
  await stays("chosen");
  await isUnder();
  await row(page, first.id).getByRole("checkbox").uncheck();
  await page.mouse.move(300, 10);
  await row(page, second.id).waitFor();
  assert.equal(await page.locator(".notice-line").innerText(), "");
  assert.equal(await page.locator(".rows").evaluate((rows) => rows.style.marginTop + rows.style.marginBottom), "");
  await clean(page);
});

test("one scrolls with the pointer on the list, and what changes meanwhile does not undo it", options, async () => {
  const page = await openPage(browser, server);
  for (let i = 0; i < 8; i += 1) await start(`hello ${i}`);
  await page.setViewportSize({ width: 1000, height: 260 });
  await page.waitForFunction(() => document.documentElement.scrollHeight > innerHeight + 300);
  await page.evaluate(() => scrollTo(0, 250));
  await page.mouse.move(300, 150);
  await page.mouse.move(304, 152);
  assert.ok((await page.evaluate(() => scrollY)) > 100, "the page can be scrolled");
  // Something changes before the browser tells of the scrolling.
  const at = await page.evaluate(async () => {
    scrollTo(0, 0);
    document.body.append(document.createElement("i"));
    document.body.lastElementChild.remove();
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    return scrollY;
  });
  assert.equal(at, 0);
  await clean(page);
});

test("a task that no process runs says how it is resumed, and the page follows", options, async () => {
  const page = await openPage(browser, server);
  // A run in a terminal, killed in the middle. Its team is not the served one.
  const run = spawn(BINARY, ["--data", server.data, "run", "team.yaml", "resumed: in a terminal", "--trust"], {
    cwd: server.dir,
    stdio: "ignore",
    detached: true,
  });
  const gone = new Promise((resolve) => run.once("exit", resolve));
  const mine = page.locator(".row.task", { hasText: "resumed: in a terminal" });
  await mine.waitFor();
  const id = await mine.getAttribute("data-task");
  await page.goto(`${server.url}/?task=${id}`);
  await page.getByText("I wait for somebody.").first().waitFor();
  process.kill(-run.pid, "SIGKILL");
  await gone;
  await page.locator(".title-line .is-interrupted").waitFor({ timeout: 60_000 });
  await page.getByText(`longhaul resume ${id}`).waitFor();
  assert.equal(await page.getByRole("button", { name: "Resume" }).count(), 0, "no button that cannot work");
  await page.keyboard.press("r");
  await page.locator(".toast.bad").getByText("is not served here").waitFor();
  await page.keyboard.press("Escape");
  await page.locator(`.row.group:has-text("Needs you")`).waitFor();
  await row(page, id).locator(".is-interrupted").waitFor();
  await page.goto(`${server.url}/?task=${id}`);
  await page.locator(".title-line .is-interrupted").waitFor();
  cli(server, "resume", id);
  await page.locator(".title-line .is-completed").waitFor();
  await page.getByText("Resumed and done.").first().waitFor();
  await clean(page);
});

test("several failed tasks are retried at once, and the list shows just those", options, async () => {
  const page = await openPage(browser, server);
  const old = await Promise.all([start("boom: one", "boom"), start("boom: two", "boom"), start("done: three")]);
  for (const task of old) await ended(task.id);
  for (const task of old) await row(page, task.id).locator(".is-failed, .is-completed").first().waitFor();
  // By keyboard: v chooses. The one that is done cannot be retried, and is not counted.
  for (const task of old) await row(page, task.id).getByRole("checkbox").check();
  await page.locator(".bulk").getByText("3 tasks chosen").waitFor();
  assert.ok(await page.locator(".bulk").getByRole("button", { name: "Stop" }).isDisabled());
  await page.locator(".bulk").getByRole("button", { name: "Retry 2" }).click();
  await page.waitForURL(/ids=t-/);
  const ids = new URL(page.url()).searchParams.get("ids").split(",");
  assert.equal(ids.length, 2);
  assert.ok(ids.every((id) => !old.some((task) => task.id === id)), "new tasks");
  for (const id of ids) await row(page, id).waitFor();
  assert.equal(await page.locator("[data-task]").count(), 2);
  const retries = await Promise.all(ids.map(async (id) => (await server.api(`/tasks/${id}`)).task.retries));
  assert.deepEqual(retries.sort(), [old[0].id, old[1].id].sort());
  await clean(page);
});

test("nothing moves by itself if the system asks for that", options, async () => {
  const task = await start("stream: for the eyes");
  for (const [reducedMotion, name] of [
    ["no-preference", "blink"],
    ["reduce", "none"],
  ]) {
    const page = await openPage(browser, server, { reducedMotion });
    await page.goto(`${server.url}/?task=${task.id}`);
    await page.locator(".md.live > :last-child").waitFor();
    const caret = () => page.evaluate(() => getComputedStyle(document.querySelector(".md.live > :last-child"), "::after").animationName);
    assert.equal(await caret(), name);
    const moves = () => document.getAnimations().filter((one) => one.playState === "running").length;
    if (reducedMotion === "reduce") assert.equal(await page.evaluate(moves), 0);
    await clean(page);
  }
  await server.api(`/tasks/${task.id}/stop`, {}, "POST");
});

test("what a task changes in its git worktree is shown, also when only the branch is left", options, async () => {
  const own = await Server.start();
  try {
    const task = await repositoryTask(own);
    const evil = "<img src=x onerror=hit=1>.txt";
    writeFileSync(`${task.path}/notes.txt`, "one\n2\nthree\n");
    writeFileSync(`${task.path}/${evil}`, "<script>window.hit=1</script>\n");
    writeFileSync(`${task.path}/blob.bin`, Buffer.from([0, 1, 2]));
    const page = await openPage(browser, own, { viewport: { width: 1280, height: 900 } });
    await page.goto(`${own.url}/?task=${task.id}`);
    await page.getByRole("tab", { name: "Changes" }).waitFor();
    await page.keyboard.press("d");
    await page.waitForURL(/tab=changes/);
    await page.getByText("3 files changed").waitFor();
    assert.equal(await page.locator(".file .lines").count(), 0, "files are folded");
    await page.locator(".file summary", { hasText: "notes.txt" }).click();
    const lines = page.locator(".file[open] .line");
    await page.locator(".file[open] .line.added").waitFor();
    assert.deepEqual(await lines.allInnerTexts(), ["@@ -1,3 +1,3 @@", "one", "two", "2", "three"]);
    const sign = await page.evaluate(() => getComputedStyle(document.querySelector(".line.added"), "::before").content);
    assert.match(sign, /\+/, "not by colour alone");
    await page.getByRole("button", { name: "Unfold all" }).click();
    await page.getByText("<script>window.hit=1</script>").waitFor();
    await page.locator(".file.alone", { hasText: "blob.bin" }).getByText("not text").waitFor();
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.equal(await page.locator("#app img").count(), 0);
    await shot(page, "changes");
    // It follows what the task does, and says what is committed.
    git(task.path, "add", "-A");
    git(task.path, "commit", "-q", "-m", "Write 2 as a digit");
    await page.getByRole("button", { name: "Read again" }).click();
    await page.getByText("Write 2 as a digit").waitFor();
    await own.api(`/tasks/${task.id}/stop`, {}, "POST");
    await page.locator(".title-line .is-cancelled").waitFor();
    rmSync(task.path, { recursive: true });
    await page.reload();
    await page.getByText("The worktree was removed").waitFor();
    await page.getByText("3 files changed").waitFor();
    // A task without a worktree has no such tab.
    const plain = await own.api("/tasks", { task: "done: here" });
    await page.goto(`${own.url}/?task=${plain.id}`);
    await page.locator(".item.end").waitFor();
    assert.equal(await page.getByRole("tab", { name: "Changes" }).count(), 0);
    await clean(page);
  } finally {
    await own.end();
  }
});

test("entries are found by words and by expressions, and the address has it", options, async () => {
  const task = await start("approve: to find");
  const page = await openPage(browser, server);
  await page.goto(`${server.url}/?task=${task.id}`);
  await page.locator(".item.call, .item.asked").first().waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("look files");
  await page.waitForURL(/find=look/);
  await page.waitForFunction(() => document.querySelectorAll(".transcript .item").length === 1);
  assert.match(await page.locator(".transcript .item").innerText(), /I look at the files first/);
  await page.locator("#find").fill("/^no such|nothing$/");
  await page.getByText("Nothing like this in what is loaded").waitFor();
  await page.locator("#find").fill("/l.ok at/");
  await page.waitForFunction(() => document.querySelectorAll(".transcript .item").length === 1);
  await page.locator("#find").press("Escape");
  await page.waitForURL((url) => !url.searchParams.has("find"));
  await page.keyboard.press("Escape");
  await page.locator(".rows").waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("/^approve: to f.nd/");
  await page.waitForFunction(() => document.querySelectorAll("[data-task]").length === 1);
  await server.api(`/tasks/${task.id}/stop`, {}, "POST");
  await clean(page);
});

test("keys reach everything, and ? lists them", options, async () => {
  const page = await openPage(browser, server);
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("go to the next question").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const task = await start("approve: by keyboard");
  await card(page, task.id).waitFor();
  await page.waitForTimeout(450);
  await page.keyboard.press("a");
  await page.keyboard.press("a"); // always …
  await card(page, task.id).getByText("every call of the tool").waitFor();
  await page.keyboard.press("p");
  await page.getByText("shell:cmd=ls *").waitFor();
  await card(page, task.id).waitFor({ state: "detached" });
  await page.evaluate(() => document.activeElement?.blur());
  await page.keyboard.press("j");
  await page.locator(".row.cursor").waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL(/task=t-/);
  await page.keyboard.press("m");
  assert.equal(await page.evaluate(() => document.activeElement.id), "message");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await page.locator(".rows").waitFor();
  await clean(page);
});

test("a token that only reads sees no buttons that it may not use", options, async () => {
  cli(server, "token", "create", "viewer", "--scope", "read");
  const link = /https?:\/\/\S+#code=[\w-]+/.exec(cli(server, "open", "--token", "viewer"))[0];
  const page = await (await browser.newContext()).newPage();
  const task = await start("hang: look only");
  await page.goto(link);
  await row(page, task.id).waitFor();
  await page.getByRole("button", { name: "New task" }).waitFor({ state: "detached" });
  await page.goto(`${server.url}/?task=${task.id}`);
  await page.locator(".title-line").waitFor();
  await page.locator(".message").waitFor({ state: "detached" });
  assert.equal(await page.getByRole("button", { name: "Stop" }).count(), 0);
  await server.api(`/tasks/${task.id}/stop`, {}, "POST");
  await page.context().close();
});

test("a phone: one tap approves, and nothing is wider than the screen", options, async () => {
  const page = await openPage(browser, server, {
    viewport: { width: 390, height: 844 },
    deviceScaleFactor: 2,
    isMobile: true,
    hasTouch: true,
    colorScheme: "dark",
  });
  const task = await start("approve: from the sofa");
  await card(page, task.id).waitFor();
  const narrow = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
  assert.ok(await narrow());
  const yes = card(page, task.id).getByRole("button", { name: "Yes" });
  const box = await yes.boundingBox();
  assert.ok(box.height >= 44 && box.y + box.height < 844, "big enough, and without scrolling");
  await page.waitForTimeout(450);
  await shot(page, "phone");
  await yes.tap();
  await card(page, task.id).waitFor({ state: "detached" });
  await page.goto(`${server.url}/?task=${task.id}`);
  await page.locator(".transcript .md").first().waitFor();
  assert.ok(await narrow());
  await shot(page, "phone-run");
  await clean(page);
});

test("axe finds nothing serious, light and dark", options, async () => {
  const source = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
  const tree = await start("tree: for axe");
  await start("words: for axe");
  const works = await repositoryTask(server);
  writeFileSync(`${works.path}/notes.txt`, "one\n2\nthree\n");
  writeFileSync(`${works.path}/blob.bin`, Buffer.from([0, 1, 2]));
  for (const colorScheme of ["light", "dark"]) {
    // axe itself is injected; the policy is tested by all other pages.
    const page = await openPage(browser, server, { colorScheme, bypassCSP: true });
    const look = async (what) => {
      await page.evaluate(source);
      const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      const serious = result.violations.filter((found) => ["serious", "critical"].includes(found.impact));
      const said = serious.map(
        (found) =>
          `${found.id}: ${found.nodes
            .slice(0, 3)
            .map((node) => node.html.slice(0, 160))
            .join(" | ")}`,
      );
      assert.deepEqual(said, [], `${what}, ${colorScheme}`);
    };
    await card(page, (await server.api("/questions")).questions[0].task)
      .first()
      .waitFor();
    await shot(page, `list-${colorScheme}`);
    await look("the list");
    await page.keyboard.press("N");
    await look("the form");
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await look("the help");
    await page.keyboard.press("Escape");
    await page.goto(`${server.url}/?task=${tree.id}`);
    await page.locator(".bar").first().waitFor();
    await page.locator(".item").first().waitFor();
    await shot(page, `run-${colorScheme}`);
    await look("a run");
    for (const tab of ["Letters", "Output", "Usage", "Journal"]) {
      await page.getByRole("tab", { name: tab }).click();
      await look(tab);
    }
    await page.goto(`${server.url}/?task=${works.id}&tab=changes`);
    await page.locator(".file summary").first().click();
    await page.locator(".file[open] .line").first().waitFor();
    await shot(page, `changes-${colorScheme}`);
    await look("Changes");
    await page.context().close();
  }
});
