// An MCP server that does to its client what it is told to.
// node strange.mjs stdio|http|sse 2025|2026 [METHOD=HOW ...]: the answer to METHOD is broken in this way.
import http from 'node:http'

const [way, generation, ...flags] = process.argv.slice(2)
const modern = generation === '2026'
const broken = Object.fromEntries(flags.map(flag => flag.split('=')))
const pending = new Map()
let asked = 0
let reads = true

const TOOLS = ['sample', 'broken', 'elicit', 'url', 'pings', 'progress', 'say', 'many']

// Answers that nobody should have to read.
function breaks(how, id) {
  const text = words => ({ content: [{ type: 'text', text: words }] })
  const whole = result => JSON.stringify({ jsonrpc: '2.0', id, result })
  const around = inner => `{"jsonrpc":"2.0","id":${id},"result":{"content":[],"structuredContent":${inner}}}`
  switch (how) {
    case 'huge': return whole(text('x'.repeat(17 << 20)))
    case 'huge-id-last': return JSON.stringify({ result: text('x'.repeat(17 << 20)), jsonrpc: '2.0', id })
    case 'large': return whole(text('y'.repeat(6 << 20)))
    case 'deep': return around('['.repeat(10000) + ']'.repeat(10000))
    case 'values': return around('[' + '0,'.repeat(2_000_000) + '0]')
    case 'utf8': return Buffer.concat([
      Buffer.from(`{"jsonrpc":"2.0","id":${id},"result":{"content":[{"type":"text","text":"`), Buffer.from([0xff, 0xfe]), Buffer.from('"}]}}')])
    case 'cut': return `{"jsonrpc":"2.0","id":${id},"result":{"content":[`
    case 'shape': return `{"jsonrpc":"1.0","id":${id},"reply":{}}`
    case 'no-id': return '{"jsonrpc":"2.0","result":{"content":['
    default: throw new Error(`no such way to break an answer: ${how}`)
  }
}

const complete = result => (modern ? { resultType: 'complete', ...result } : result)
const said = text => complete({ content: [{ type: 'text', text }] })
const sampling = n => ({ method: 'sampling/createMessage', params: {
  messages: [{ role: 'user', content: { type: 'text', text: `sample ${n}` } }], maxTokens: 100 } })
const question = n => ({ method: 'elicitation/create', params: {
  mode: 'form', message: `Question ${n}?`, requestedSchema: { type: 'object', properties: { a: { type: 'string' } } } } })
const page = url => ({ method: 'elicitation/create', params: { mode: 'url', message: 'Please.', url, elicitationId: 'e1' } })

// Asks the client in the middle of a call, in the older way.
function ask(out, request) {
  const id = `s${++asked}`
  const answer = new Promise(resolve => pending.set(id, resolve))
  out.send(JSON.stringify({ jsonrpc: '2.0', id, ...request }))
  return answer
}

// Asks things of a kind: as many as it is told to, so many a round.
async function asks(params, out, make) {
  const { times = 1, round = times } = params.arguments ?? {}
  if (!modern) {
    const kinds = await Promise.all(Array.from({ length: times }, (_, n) => ask(out, make(n))))
    const refusals = kinds.filter(kind => kind.error).map(kind => kind.error.message)
    return said(`${times - refusals.length} answered; ${[...new Set(refusals)].join(' / ') || 'none refused'}; ${JSON.stringify(kinds.at(-1).result ?? {}).slice(0, 200)}`)
  }
  const got = Object.keys(params.inputResponses ?? {}).length + Number(params.requestState ?? 0)
  if (got >= times) return said(`${got} answered; ${JSON.stringify(Object.values(params.inputResponses ?? {})[0] ?? {}).slice(0, 200)}`)
  const inputRequests = Object.fromEntries(Array.from({ length: Math.min(round, times - got) }, (_, n) => [`q${n}`, make(got + n)]))
  return { resultType: 'input_required', requestState: String(got), inputRequests }
}

async function called(params, id, out) {
  const given = params.arguments ?? {}
  switch (params.name) {
    case 'say': return said('hello')
    case 'broken': out.raw(breaks(given.how, id)); return
    case 'sample': return asks(params, out, sampling)
    case 'elicit': return asks(params, out, question)
    case 'url': return asks(params, out, () => page(given.url))
    case 'many': return said('z'.repeat(given.bytes))
    case 'progress': {
      const progressToken = params._meta?.progressToken
      const tell = (progress, message) => out.send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken, progress, message } }))
      tell(1, 'p'.repeat(1 << 20))
      return said('told')
    }
    case 'pings': {
      // Nobody here reads what is answered.
      reads = false
      process.stdin.pause()
      const filler = 'i'.repeat(given.bytes ?? 10)
      for (let n = 0; n < (given.times ?? 100_000); n++) {
        if (!out.send(JSON.stringify({ jsonrpc: '2.0', id: `${n}${filler}`, method: 'ping' }))) await out.drained()
      }
      return
    }
  }
}

async function handle(message, out) {
  const { id, method, params = {} } = message
  if (method === undefined) return pending.get(id)?.(message)
  if (id === undefined) return
  const how = broken[method]
  if (how) return out.raw(breaks(how, id))
  const answer = result => out.end(JSON.stringify({ jsonrpc: '2.0', id, result }))
  const refuse = (code, words) => out.end(JSON.stringify({ jsonrpc: '2.0', id, error: { code, message: words } }))
  switch (method) {
    case 'server/discover':
      if (!modern) return refuse(-32601, 'no such method')
      return answer({ resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities: { tools: {} }, ttlMs: 0, cacheScope: 'private' })
    case 'initialize':
      return answer({ protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'strange', version: '1' } })
    case 'tools/list':
      return answer(complete({ tools: TOOLS.map(name => ({ name, inputSchema: { type: 'object' } })), ...(modern ? { ttlMs: 0, cacheScope: 'private' } : {}) }))
    case 'tools/call': {
      const result = await called(params, id, out)
      return result && answer(result)
    }
    default: return refuse(-32601, 'no such method')
  }
}

function stdio() {
  const write = raw => process.stdout.write(typeof raw === 'string' ? raw + '\n' : Buffer.concat([raw, Buffer.from('\n')]))
  const drained = () => new Promise(resolve => process.stdout.once('drain', resolve))
  const out = { send: write, raw: write, end: write, drained }
  let rest = ''
  process.stdin.setEncoding('utf8')
  process.stdin.on('data', chunk => {
    if (!reads) return
    const lines = (rest + chunk).split('\n')
    rest = lines.pop()
    for (const line of lines) if (line.trim()) handle(JSON.parse(line), out)
  })
  process.stdin.on('end', () => reads && process.exit(0))
}

// Each request has an answer of its own: JSON at once, or a stream of events as soon as something else is sent.
function listens() {
  const server = http.createServer((request, response) => {
    const chunks = []
    request.on('data', chunk => chunks.push(chunk))
    request.on('end', () => {
      if (request.method !== 'POST') return response.writeHead(405).end()
      if (flags.includes('status=500')) return response.writeHead(500, { 'content-type': 'text/plain' }).end('oops')
      if (flags.includes('type=html')) return response.writeHead(200, { 'content-type': 'text/html' }).end('<p>hello</p>')
      const message = JSON.parse(Buffer.concat(chunks))
      if (message.id === undefined || message.method === undefined) {
        response.writeHead(202).end()
        return handle(message, {})
      }
      let streams = false
      const send = raw => {
        if (!streams) response.writeHead(200, { 'content-type': 'text/event-stream' })
        streams = true
        return response.write(Buffer.concat([Buffer.from('data: '), Buffer.from(raw), Buffer.from('\n\n')]))
      }
      const end = raw => {
        if (streams || message.params?.arguments?.stream) { send(raw); response.end() } else response.writeHead(200, { 'content-type': 'application/json' }).end(raw)
      }
      const drained = () => new Promise(resolve => response.once('drain', resolve))
      const bytes = message.params?.name === 'many' && message.params.arguments.endless
      if (bytes) return endless(response, message.id)
      handle(message, { send, raw: end, end, drained })
    })
  })
  server.listen(0, '127.0.0.1', () => console.error(`listening ${server.address().port}`))
}

// A body of 400 MB.
async function endless(response, id) {
  response.writeHead(200, { 'content-type': 'application/json' })
  response.write(`{"jsonrpc":"2.0","id":${id},"result":{"content":[{"type":"text","text":"`)
  const chunk = 'e'.repeat(1 << 20)
  for (let n = 0; n < 400 && !response.destroyed; n++) {
    if (!response.write(chunk)) await new Promise(resolve => { response.once('drain', resolve); response.once('close', resolve) })
  }
  response.end('"}]}}')
}

way === 'stdio' ? stdio() : listens()
