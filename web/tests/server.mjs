// Starts the real `longhaul serve` for a test, with a scripted team, in a directory of its own.
import { spawn, execFile } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const here = dirname(fileURLToPath(import.meta.url));
export const BINARY = process.env.LONGHAUL ?? join(here, "../../target/debug/longhaul");
const run = promisify(execFile);

export class Server {
  static async start(files = join(here, "team")) {
    const dir = mkdtempSync(join(tmpdir(), "longhaul-web-"));
    cpSync(files, dir, { recursive: true });
    const server = new Server();
    server.dir = dir;
    server.data = join(dir, "data");
    server.listen = "127.0.0.1:0";
    await server.up();
    return server;
  }

  async up() {
    const args = ["--data", this.data, "serve", "--listen", this.listen, "--team", "team.yaml", "--json", "--trust"];
    this.child = spawn(BINARY, args, { cwd: this.dir, stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, NO_COLOR: "1" } });
    this.log = "";
    this.child.stderr.on("data", (bytes) => (this.log += bytes));
    this.gone = new Promise((resolve) => this.child.once("exit", resolve));
    const line = await new Promise((resolve, reject) => {
      let text = "";
      this.child.stdout.on("data", (bytes) => {
        text += bytes;
        if (text.includes("\n")) resolve(text.slice(0, text.indexOf("\n")));
      });
      this.child.once("exit", (code) => reject(new Error(`serve exited with ${code}: ${this.log}`)));
    });
    const info = JSON.parse(line);
    this.url = info.url;
    // The same port after a restart: the page goes on talking to it.
    this.listen = new URL(info.url).host;
    this.token = readFileSync(resolve(this.dir, info.token_file), "utf8").trim();
  }

  /** A link that signs a browser in. */
  async link() {
    const { stdout } = await run(BINARY, ["--data", this.data, "open"], { cwd: this.dir });
    const found = /https?:\/\/\S+#code=[\w-]+/.exec(stdout);
    if (!found) throw new Error(`no link in: ${stdout}`);
    return found[0];
  }

  async api(path, body, method = body === undefined ? "GET" : "POST") {
    const response = await fetch(`${this.url}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${this.token}`, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  async down(signal = "SIGTERM") {
    this.child.kill(signal);
    await this.gone;
  }

  async end() {
    await this.down("SIGKILL").catch(() => {});
    rmSync(this.dir, { recursive: true, force: true });
  }
}
