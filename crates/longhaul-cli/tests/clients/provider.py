"""A provider on loopback that plays models from a function: Anthropic Messages, OpenAI Responses and Chat Completions.

`Provider(play)` calls `play(request)` for each model request with tools. It returns `("say", text)` or
`("call", [(tool, arguments), …])`. Tools are named by the end of their name: clients put the server's name before it.
Requests without tools (titles and the like) get a short text.
"""

import http.server
import json
import sys
import threading
import uuid


class Request:
    """What a model sees: the tools it may call, and the conversation as texts."""

    def __init__(self, tools, texts, calls, raw):
        self.tools = tools  # full names
        self.texts = texts  # everything said by others, in order: prompts, results of tools, notices
        self.calls = calls  # the short names of the tools it has called, in order
        self.raw = raw

    @property
    def all(self):
        return "\n".join(self.texts)


def short(name):
    """The name of a tool without what the client puts before it."""
    for mark in ("mcp__longhaul__", "mcp_longhaul_", "longhaul_", "longhaul__"):
        if name.startswith(mark):
            return name[len(mark):]
    return name


def text_of(content):
    """All text in a content of any shape."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in content)
    if isinstance(content, dict):
        return "\n".join(text_of(content[key]) for key in ("text", "content", "output") if key in content)
    return str(content)


def read_messages(body):
    texts, calls = [], []
    for message in body.get("messages", []):
        content = message.get("content")
        if message.get("role") == "assistant":
            for part in content if isinstance(content, list) else []:
                if part.get("type") == "tool_use":
                    calls.append(short(part["name"]))
            calls += [short(call["function"]["name"]) for call in message.get("tool_calls") or []]
        elif message.get("role") != "system":
            texts.append(text_of(content))
    names = [tool.get("name") or tool.get("function", {}).get("name") for tool in body.get("tools") or []]
    return Request(names, texts, calls, body)


def read_responses(body):
    texts, calls = [], []
    items = body.get("input", [])
    for item in items if isinstance(items, list) else [{"role": "user", "content": items}]:
        kind = item.get("type", "message")
        if kind == "function_call":
            calls.append(short(item["name"]))
        elif kind == "function_call_output" or (kind == "message" and item.get("role") == "user"):
            texts.append(text_of(item))
    names = []
    for tool in body.get("tools") or []:
        if tool.get("type") == "namespace":
            names += [(tool["name"], inner.get("name")) for inner in tool.get("tools", [])]
        else:
            names.append(tool.get("name"))
    return Request(names, texts, calls, body)


def read_gemini(body):
    texts, calls = [], []
    for content in body.get("contents", []):
        for part in content.get("parts", []):
            if "functionCall" in part:
                calls.append(short(part["functionCall"]["name"]))
            elif "functionResponse" in part:
                texts.append(json.dumps(part["functionResponse"].get("response")))
            elif content.get("role") == "user":
                texts.append(part.get("text", ""))
    names = [one["name"] for tool in body.get("tools") or [] for one in tool.get("functionDeclarations") or []]
    return Request(names, texts, calls, body)


def gemini_reply(kind, what):
    parts = [{"text": what}] if kind == "say" else [{"functionCall": {"name": name, "args": args}} for name, args in what]
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": usage, "modelVersion": "gemini-2.5-pro"}


def gemini_stream(kind, what, body):
    return f"data: {json.dumps(gemini_reply(kind, what))}\n\n".encode(), "text/event-stream"


def gemini_whole(kind, what, body):
    # Requests without tools ask which model to use, and the like: they want JSON.
    return json.dumps(gemini_reply("say", "{}") if kind == "say" and what == "ok" else gemini_reply(kind, what)).encode(), "application/json"


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Clients are killed on purpose, so a connection that breaks is no news."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Provider:
    def __init__(self, play, log=None):
        self.play, self.log, self.errors = play, log, []
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.answer(b"", "text/plain")

            def do_GET(self):
                self.answer(b'{"data": [], "models": []}', "application/json")

            def answer(self, body, kind):
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                raw = self.rfile.read(int(self.headers.get("content-length", 0)))
                try:
                    body = json.loads(raw)
                except ValueError:
                    body = {}
                path = self.path.split("?")[0]
                if path.endswith("/count_tokens"):
                    return self.answer(b'{"input_tokens": 100}', "application/json")
                try:
                    out, kind = provider.respond(path, body)
                except Exception as error:  # shown by whoever runs the scenario
                    provider.errors.append(repr(error))
                    raise
                self.answer(out, kind)

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def respond(self, path, body):
        if path.endswith("/messages"):
            request, write = read_messages(body), anthropic
        elif path.endswith("/chat/completions"):
            request, write = read_messages(body), chat
        elif path.endswith("/responses"):
            request, write = read_responses(body), responses
        elif "enerateContent" in path:
            request, write = read_gemini(body), gemini_stream if "stream" in path else gemini_whole
        else:
            return b"{}", "application/json"
        kind, what = ("say", "ok") if not request.tools else self.play(request)
        if self.log:
            with open(self.log, "a") as log:
                log.write(json.dumps({"path": path, "tools": request.tools, "texts": request.texts[-4:],
                                      "calls": request.calls, "reply": [kind, what]}) + "\n")
        if kind == "call":
            what = [(full_name(request.tools, tool), arguments) for tool, arguments in what]
        return write(kind, what, body)


def full_name(tools, wanted):
    for name in tools:
        if isinstance(name, tuple) and short(name[1]) == wanted:
            return name
        if isinstance(name, str) and short(name) == wanted:
            return name
    raise LookupError(f"there is no tool {wanted} among {tools}")


def unique(prefix):
    return prefix + uuid.uuid4().hex[:24]


def sse(events, end=b""):
    lines = [(f"event: {name}\n" if name else "") + "data: " + json.dumps(data) + "\n\n" for name, data in events]
    return "".join(lines).encode() + end, "text/event-stream"


def anthropic(kind, what, body):
    if kind == "say":
        blocks = [{"type": "text", "text": what}]
    else:
        blocks = [{"type": "tool_use", "id": unique("toolu_"), "name": name, "input": arguments} for name, arguments in what]
    stop = "end_turn" if kind == "say" else "tool_use"
    message = {"id": unique("msg_"), "type": "message", "role": "assistant", "model": body.get("model"), "content": [],
               "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    if not body.get("stream"):
        message.update(content=blocks, stop_reason=stop)
        return json.dumps(message).encode(), "application/json"
    events = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        if kind == "say":
            first, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": what}
        else:
            first, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [{"type": "content_block_start", "index": index, "content_block": first},
                   {"type": "content_block_delta", "index": index, "delta": delta},
                   {"type": "content_block_stop", "index": index}]
    events += [{"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}},
               {"type": "message_stop"}]
    return sse([(event["type"], event) for event in events])


def responses(kind, what, body):
    if kind == "say":
        items = [{"type": "message", "id": unique("msg_"), "role": "assistant", "status": "completed",
                  "content": [{"type": "output_text", "text": what, "annotations": []}]}]
    else:
        items = []
        for name, arguments in what:
            item = {"type": "function_call", "id": unique("fc_"), "call_id": unique("call_"), "status": "completed",
                    "name": name, "arguments": json.dumps(arguments)}
            if isinstance(name, tuple):
                item["namespace"], item["name"] = name
            items.append(item)
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_tokens_details": {"cached_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {"id": unique("resp_"), "object": "response", "status": "completed", "model": body.get("model"),
             "output": items, "usage": usage}
    events = [("response.created", {"type": "response.created", "response": {"id": whole["id"], "status": "in_progress"}})]
    for index, item in enumerate(items):
        events.append(("response.output_item.done",
                       {"type": "response.output_item.done", "output_index": index, "item": item}))
    events.append(("response.completed", {"type": "response.completed", "response": whole}))
    return sse(events)


def chat(kind, what, body):
    if kind == "say":
        delta, stop = {"role": "assistant", "content": what}, "stop"
    else:
        calls = [{"index": index, "id": unique("call_"), "type": "function",
                  "function": {"name": name, "arguments": json.dumps(arguments)}} for index, (name, arguments) in enumerate(what)]
        delta, stop = {"role": "assistant", "tool_calls": calls}, "tool_calls"
    whole = {"id": unique("chat_"), "object": "chat.completion", "created": 1, "model": body.get("model")}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    if not body.get("stream"):
        choice = {"index": 0, "message": delta, "finish_reason": stop}
        return json.dumps({**whole, "choices": [choice], "usage": usage}).encode(), "application/json"
    chunk = {**whole, "object": "chat.completion.chunk"}
    events = [(None, {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}),
              (None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}], "usage": usage})]
    return sse(events, b"data: [DONE]\n\n")
