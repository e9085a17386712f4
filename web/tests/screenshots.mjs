// Takes the pictures of the documentation: `node tests/screenshots.mjs DIR`.
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch, openPage } from "./browser.mjs";
import { Server } from "./server.mjs";

const to = process.argv[2] ?? "/tmp/longhaul-shots";
mkdirSync(to, { recursive: true });
const server = await Server.start(join(dirname(fileURLToPath(import.meta.url)), "demo"));
const browser = await launch();
try {
  const start = (task, agent) => server.api("/tasks", { task, agent });
  for (const task of ["Update the dependencies", "Translate the tutorial into German", "Find unused functions in src/"]) await start(task);
  await start("Find out why store::reopen is a flaky test");
  const release = await start("Prepare release 2.4: changes, blockers, tests, notes");
  await start("Check the licences of all dependencies");
  const asked = async () => (await server.api("/questions")).questions.length;
  while ((await asked()) < 3) await new Promise((resolve) => setTimeout(resolve, 200));
  const story = await start("Explain the architecture to a newcomer");
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  const shot = (page, name) => page.screenshot({ path: join(to, `${name}.png`) });
  const size = { viewport: { width: 1280, height: 800 } };
  const light = await openPage(browser, server, size);
  await light.locator("[data-question]").nth(2).waitFor();
  await light.waitForTimeout(600);
  await shot(light, "dashboard-light");
  const dark = await openPage(browser, server, { ...size, colorScheme: "dark" });
  await dark.goto(`${server.url}/?task=${release.id}`);
  await dark.locator(".bar").first().waitFor();
  await dark.waitForTimeout(900);
  await shot(dark, "dashboard-run-dark");
  await dark.goto(`${server.url}/?task=${story.id}`);
  await dark.waitForTimeout(900);
  await shot(dark, "dashboard-stream-dark");
  const phone = await openPage(browser, server, {
    viewport: { width: 390, height: 780 },
    deviceScaleFactor: 1.5,
    isMobile: true,
    hasTouch: true,
  });
  await phone.waitForTimeout(600);
  await shot(phone, "dashboard-phone");
  console.log([...light.problems, ...dark.problems, ...phone.problems]);
} finally {
  await browser.close();
  await server.end();
}
