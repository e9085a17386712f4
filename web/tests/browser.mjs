// A real Chromium, and pages that fail the test if they log an error, break the content security policy, or load
// anything from elsewhere.
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

// `CHROMIUM` names another one.
const PLACES = process.env.CHROMIUM ? [process.env.CHROMIUM] : ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
export const executable = PLACES.find((path) => existsSync(path));

export async function launch() {
  return chromium.launch({ executablePath: executable, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
}

/** Opens a page that is signed in. `problems` has everything that should not have happened. */
export async function openPage(browser, server, options = {}) {
  const context = options.context ?? (await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options }));
  // For work on the page: what is on disk instead of what is in the program.
  if (process.env.LONGHAUL_ASSETS) {
    const kinds = { js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
    await context.route("**/assets/*", (route) => {
      const name = new URL(route.request().url()).pathname.split("/").pop();
      return route.fulfill({ path: `${process.env.LONGHAUL_ASSETS}/${name}`, contentType: kinds[name.split(".").pop()] });
    });
  }
  const page = await context.newPage();
  const problems = [];
  page.problems = problems;
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") problems.push(`console: ${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => problems.push(`error: ${error}`));
  page.on("dialog", (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(server.url) && !url.startsWith("data:") && !url.startsWith("blob:")) problems.push(`request: ${url}`);
  });
  if (!options.context) await page.goto(await server.link());
  else await page.goto(server.url);
  await page.locator(".filters").waitFor();
  return page;
}
