// The dashboard in a real Chromium against the real `longhaul serve`.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { executable, launch, openPage } from "./browser.mjs";
import { Server } from "./server.mjs";

const require = createRequire(import.meta.url);
const skip = executable ? false : "there is no Chromium";
if (skip) console.log(`skipped: the dashboard is not tested in a browser: ${skip}`);
const SHOTS = process.env.SCREENSHOTS;
if (SHOTS) mkdirSync(SHOTS, { recursive: true });

let server;
let browser;
before(async () => {
  if (skip) return;
  server = await Server.start();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server?.end();
});

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
  // The draft survives a reload.
  await page.reload();
  await page.locator(".filters").waitFor();
  await page.getByRole("button", { name: "New task" }).click();
  assert.equal(await page.getByLabel("What should it do?").inputValue(), "approve: tidy up");
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

test("the failed child of a failed run is two clicks away, and five keys", options, async () => {
  const run = await start("fails: the whole run");
  await ended(run.id);
  const page = await openPage(browser, server);
  await row(page, run.id).locator(".failed-below").click();
  await page.locator(".cause").getByText("no config found anywhere").waitFor();
  await page.goto(server.url);
  await row(page, run.id).waitFor();
  await page.keyboard.press("."); // one key
  await page.locator(".cause").getByText("no config found anywhere").waitFor();
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
  await tabs[1].locator(".conn.off").waitFor();
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
    // Sessions end with the server: the page says so, and goes on once the browser is signed in again.
    await page.getByText("You are signed out").waitFor();
    const again = await page.context().newPage();
    await again.goto(await own.link());
    await again.locator(".filters").waitFor();
    await page.locator(".outage").waitFor({ state: "detached" });
    await page.bringToFront();
    await card(page, task.id).waitFor();
    await page.waitForTimeout(450);
    await card(page, task.id).getByRole("button", { name: "Yes" }).click();
    await card(page, task.id).waitFor({ state: "detached" });
    await row(page, task.id).locator(".is-completed").waitFor();
    const expected = /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|401/;
    assert.deepEqual(
      page.problems.filter((problem) => !expected.test(problem)),
      [],
    );
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
  await page.locator(".bulk").getByRole("button", { name: "Stop" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop all" }).click();
  await page.waitForURL(/ids=t-/);
  await row(page, one.id).locator(".is-cancelled").waitFor();
  await row(page, two.id).locator(".is-cancelled").waitFor();
  await page.keyboard.press("Escape");
  await page.waitForURL((url) => url.search === "");
  await clean(page);
});

test("rows stay where they are while the pointer is on them", options, async () => {
  const page = await openPage(browser, server);
  const first = await start("approve: first row");
  await row(page, first.id).waitFor();
  const place = async () => (await row(page, first.id).boundingBox()).y;
  // Measure within the list: the cards above it may grow.
  const inList = () => row(page, first.id).evaluate((element) => element.style.transform);
  await row(page, first.id).hover();
  await page.mouse.move(300, (await place()) + 20);
  await page.mouse.move(304, (await place()) + 22);
  const was = await inList();
  const second = await start("approve: second row");
  await page.getByText("rows move when your pointer leaves").waitFor();
  assert.equal(await inList(), was);
  await page.mouse.move(300, 10);
  await row(page, second.id).waitFor();
  assert.notEqual(await inList(), was);
  for (const task of [first, second]) await server.api(`/tasks/${task.id}/stop`, {}, "POST");
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
  const { execFileSync } = await import("node:child_process");
  const { BINARY } = await import("./server.mjs");
  const run = (...args) => execFileSync(BINARY, ["--data", server.data, ...args], { cwd: server.dir, encoding: "utf8" });
  run("token", "create", "viewer", "--scope", "read");
  const link = /https?:\/\/\S+#code=[\w-]+/.exec(run("open", "--token", "viewer"))[0];
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
    await page.context().close();
  }
});
