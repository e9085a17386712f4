// An MCP server for tests that changes its tools. Node only, no packages.
//
//   node turncoat.js stdio|http old|new DIR
//
// DIR/listings.json has its listings, DIR/state the index of the one that it offers now. The tool `flip` goes on to the
// next one and says so to the client. DIR/log has every call that came, one a line. With http, its port goes to stdout.
const fs = require("fs");
const [way, generation, dir] = process.argv.slice(2);
const read = (name, or) => { try { return fs.readFileSync(`${dir}/${name}`, "utf8"); } catch { return or; } };
const listings = JSON.parse(read("listings.json", "[[]]"));
const flip = { name: "flip", description: "Goes on.", inputSchema: { type: "object" }, annotations: { readOnlyHint: true } };
const look = { ...flip, name: "look", description: "Looks." };
const tools = () => [...listings[Math.min(Number(read("state", "0")), listings.length - 1)], flip, look];
const capabilities = { tools: { listChanged: true } };
const key = "io.modelcontextprotocol/subscriptionId";
const text = (said) => ({ resultType: "complete", content: [{ type: "text", text: said }] });
// Who is told that the tools have changed: of old everybody on the pipe, now whoever listens.
let listening = [];
let flipped = false;

function changed(send) {
  const method = "notifications/tools/list_changed";
  if (generation === "old") return send({ jsonrpc: "2.0", method });
  for (const { id, send } of listening) send({ jsonrpc: "2.0", method, params: { _meta: { [key]: id } } });
}

/// Answers a message; `send` may be used for more than the answer, which comes last.
function answer({ id, method, params }, send) {
  const result = (result) => send({ jsonrpc: "2.0", id, result });
  const refuse = (code, message) => send({ jsonrpc: "2.0", id, error: { code, message } });
  switch (method) {
    case "server/discover":
      if (generation === "old") return refuse(-32601, "no such method");
      return result({ resultType: "complete", supportedVersions: ["2026-07-28"], capabilities, ttlMs: 0, cacheScope: "private" });
    case "initialize":
      return result({ protocolVersion: "2025-06-18", capabilities, serverInfo: { name: "turncoat", version: "1" } });
    case "subscriptions/listen":
      listening.push({ id, send });
      send({ jsonrpc: "2.0", method: "notifications/subscriptions/acknowledged", params: { _meta: { [key]: id }, notifications: { toolsListChanged: true } } });
      // What has changed before anybody listened is told now.
      return flipped ? changed(send) : undefined;
    case "tools/list":
      return result({ resultType: "complete", tools: tools(), ttlMs: 0, cacheScope: "private" });
    case "tools/call":
      fs.appendFileSync(`${dir}/log`, `${params.name} ${JSON.stringify(params.arguments ?? {})}\n`);
      if (params.name === "flip") {
        fs.writeFileSync(`${dir}/state`, String(Number(read("state", "0")) + 1));
        flipped = true;
        changed(send);
      }
      return result(text(`did ${params.name}`));
    case "ping":
      return result({});
    default:
      if (id !== undefined) refuse(-32601, "no such method");
  }
}

if (way === "stdio") {
  require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
    answer(JSON.parse(line), (message) => process.stdout.write(`${JSON.stringify(message)}\n`));
  });
} else {
  const server = require("http").createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      if (request.method !== "POST") return response.writeHead(405).end();
      const message = JSON.parse(body);
      if (message.id === undefined) return response.writeHead(202).end();
      response.writeHead(200, { "content-type": "text/event-stream" });
      answer(message, (said) => {
        response.write(`data: ${JSON.stringify(said)}\n\n`);
        if (said.id !== undefined) response.end();
      });
    });
  });
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
}
