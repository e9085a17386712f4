// Forty texts that would do harm as markup, in every place where the page shows what models, tools and files say.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openPage } from "./browser.mjs";
import { PAYLOADS } from "./payloads.mjs";
import { browser, server, skip } from "./with_server.mjs";

if (skip) console.log(`skipped: foreign text is not tested in a browser: ${skip}`);

/** Nothing ran, nothing was loaded from elsewhere, and no element is there that text could have made. */
async function harmless(page, what) {
  const found = await page.evaluate(() => {
    const bad = [];
    if (window.hit) bad.push("a script ran");
    for (const element of document.querySelectorAll("#app *")) {
      const tag = element.tagName.toLowerCase();
      if (["script", "iframe", "object", "embed", "base", "meta", "link", "style", "img", "svg", "math", "video", "template"].includes(tag))
        bad.push(`<${tag}>`);
      for (const { name } of element.attributes) if (name.startsWith("on")) bad.push(`${tag} ${name}`);
      const href = element.getAttribute("href");
      if (href !== null && !/^(\/|https?:|mailto:)/.test(href)) bad.push(`href ${href}`);
    }
    return bad;
  });
  assert.deepEqual(found, [], what);
  assert.deepEqual(page.problems, [], what);
}

test("nothing that a model, a tool, a file or a provider says is taken for markup", { skip, timeout: 300_000 }, async () => {
  assert.ok(PAYLOADS.length >= 40);
  const tasks = [];
  for (const [index, payload] of PAYLOADS.entries()) {
    writeFileSync(join(server.dir, `file-${index}.txt`), payload);
    tasks.push(
      await server.api("/tasks", { task: `payload file-${index}.txt ${payload}`, title: payload.replace(/\s+/g, " ").slice(0, 100) }),
    );
  }
  const page = await openPage(browser, server);
  await page.waitForFunction((many) => document.querySelectorAll("[data-question]").length >= Math.min(30, many), PAYLOADS.length);
  await harmless(page, "the inbox and the list");
  for (const [index, task] of tasks.entries()) {
    const what = `payload ${index}: ${PAYLOADS[index]}`;
    await page.goto(`${server.url}/?task=${task.id}`);
    await page.locator(".item.said").first().waitFor();
    await page.locator(".bar").first().waitFor();
    // At once: entries come and change meanwhile.
    await page.evaluate(() => document.querySelectorAll(".transcript summary").forEach((summary) => summary.click()));
    await harmless(page, what);
    if (index === 0)
      assert.match(await page.locator(".transcript").innerText(), /<script>window\.hit=1<\/script>/, "it is shown as it was written");
    // Links are followed by people: a click has to be harmless as well.
    for (const text of await page.locator(".transcript .md span[title]").all()) await text.click({ timeout: 1_000 }).catch(() => {});
    await harmless(page, `${what}, clicked`);
    await server.api(`/tasks/${task.id}/answers`, { decision: "decline" });
    await server.api(`/tasks/${task.id}/letters`, { text: PAYLOADS[index] }).catch(() => {});
    if (index % 8 === 0) {
      for (const tab of ["letters", "output", "journal"]) {
        await page.goto(`${server.url}/?task=${task.id}&tab=${tab}`);
        await page.locator("#tab-panel > *").first().waitFor();
        await harmless(page, `${what}, ${tab}`);
      }
    }
  }
  const errors = await server.api("/tasks?agent=boom&status=failed");
  assert.ok(errors.tasks.length > 0);
  await page.goto(`${server.url}/?task=${errors.tasks[0].id}`);
  await page.locator(".cause").getByText("onerror").waitFor();
  await harmless(page, "the error of a provider");
  await page.goto(server.url);
  await page.locator("[data-task]").first().waitFor();
  await harmless(page, "the list at the end");
  await page.context().close();
});

test("the address is text, too", { skip, timeout: 60_000 }, async () => {
  const page = await openPage(browser, server);
  for (const payload of PAYLOADS.slice(0, 12)) {
    const text = encodeURIComponent(payload);
    await page.goto(`${server.url}/?q=${text}&agent=${text}&group=${text}&ids=${text}&tab=${text}&kind=${text}&entry=${text}#${text}`);
    await page.locator(".filters").waitFor();
    await harmless(page, payload);
    await page.goto(`${server.url}/?task=${text}&server=${encodeURIComponent("https://evil.example")}`);
    await page.locator(".filters").waitFor();
    await harmless(page, payload);
  }
  await page.context().close();
});

test("every text of every answer is text, also where the engine would not allow it", { skip, timeout: 120_000 }, async () => {
  // The engine lets agents have letters, digits, '-' and '_' in their names. The page does not rely on it.
  const page = await openPage(browser, server);
  const task = await server.api("/tasks", { task: "tree: with foul names" });
  const kept =
    /^(id|root|parent|task|seq|at|created|started|ended|active|since|until|from|to|read|returned|question|kind|status|next_cursor|before|before|event|continues|retries|continued_by)$/;
  let nth = 0;
  const foul = (value, key = "") => {
    if (Array.isArray(value)) return value.map((one) => foul(one, key));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, foul(one, name)]));
    if (typeof value !== "string" || kept.test(key)) return value;
    nth += 1;
    return PAYLOADS[nth % PAYLOADS.length];
  };
  await page.route(/\/api\/v1\/(?!events|session)/, async (route) => {
    const path = route.request().url().slice(`${server.url}/api/v1`.length);
    return route.fulfill({ json: foul(await server.api(path)) });
  });
  for (const place of [
    "",
    `?task=${task.id}`,
    `?task=${task.id}&tab=letters`,
    `?task=${task.id}&tab=output`,
    `?task=${task.id}&tab=usage`,
    `?task=${task.id}&tab=journal`,
  ]) {
    await page.goto(`${server.url}/${place}`);
    await page
      .locator(place ? "#tab-panel > *" : "[data-task]")
      .first()
      .waitFor();
    if (place) await page.locator(".bar").first().waitFor();
    await harmless(page, place);
  }
  await page.goto(server.url);
  await page.locator("[data-task]").first().waitFor();
  await page.keyboard.press("N");
  await page.getByRole("dialog").waitFor();
  await harmless(page, "the form");
  assert.ok(nth > 100, `${nth} texts`);
  await page.context().close();
});
