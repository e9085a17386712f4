// A server and a browser for the tests of one file, started before the first and ended after the last.
import { after, before } from "node:test";
import { executable, launch } from "./browser.mjs";
import { Server } from "./server.mjs";

export const skip = executable ? false : "there is no Chromium";
export let server;
export let browser;

before(async () => {
  if (skip) return;
  server = await Server.start();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server?.end();
});
