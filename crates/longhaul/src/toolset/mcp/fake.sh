# A minimal MCP server for tests. $1 selects how it behaves; LOG is the file in which it records its input.
manner=$1
grown=
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
refuse() { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"%s"}}\n' "$id" "$1" "$2"; }
text() { answer "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"; }
tell() { printf '{"jsonrpc":"2.0","method":"%s","params":%s}\n' "$1" "$2"; }
tool() { printf '{"name":"%s","description":"%s","inputSchema":{"type":"object"},"annotations":{%s}}' "$1" "$1" "$2"; }

echo "the fake is up" >&2
[ -z "$LOG" ] || echo "started $$" >>"$LOG"
case $manner in
silent) exec sleep 1000 ;;
dies) echo "no licence: $TOKEN" >&2; exit 3 ;;
flood) (while :; do echo "a line that nobody needs, again and again and again and again and again"; done >&2) & ;;
esac

while IFS= read -r line; do
    id=${line#*\"id\":}
    id=${id%%[,\}]*}
    case $line in
    *'"method":"server/discover"'*)
        case $manner in
        modern) answer '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"instructions":"Be modern.","ttlMs":0,"cacheScope":"private"}' ;;
        touchy) exit 1 ;;
        *) refuse -32601 "no such method" ;;
        esac
        ;;
    *'"method":"initialize"'*)
        answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"},"instructions":"Be kind."}'
        ;;
    *'"method":"subscriptions/listen"'*)
        listener=$id
        tell notifications/subscriptions/acknowledged "{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":$id},\"notifications\":{\"toolsListChanged\":true}}"
        ;;
    *'"method":"tools/list"'*)
        case $line in
        *'"cursor":"2"'*) answer "{\"tools\":[$(tool write '"idempotentHint":true'),$(tool die '')$grown]}" ;;
        *) answer "{\"tools\":[$(tool say.it '"readOnlyHint":true'),$(tool hang '')],\"nextCursor\":\"2\"}" ;;
        esac
        ;;
    *'"method":"tools/call"'*)
        case $line in
        *'"name":"say.it"'*) text "said by $$" ;;
        *'"name":"hang"'*)
            token=${line#*\"progressToken\":}
            token=${token%%[,\}]*}
            tell notifications/progress "{\"progressToken\":$token,\"progress\":1,\"message\":\"hanging\"}"
            ;;
        *'"name":"die"'*) echo "ouch" >&2; exit 7 ;;
        *'"name":"write"'*)
            case $manner,$line in
            modern,*inputResponses*)
                given=${line#*\"content\":}
                [ "$given" != "$line" ] && case $line in *'"requestState":"s1"'*) text "told ${#given}" ;; esac
                ;;
            modern,*) answer '{"resultType":"input_required","requestState":"s1","inputRequests":{"q":{"method":"elicitation/create","params":{"mode":"form","message":"Which colour?","requestedSchema":{"type":"object","properties":{"colour":{"type":"string"}},"required":["colour"]}}}}}' ;;
            *'"bad"'*) refuse -32602 "not bad, please" ;;
            *) refuse -32000 "the disk is full" ;;
            esac
            ;;
        *'"name":"grow"'*) text "as big as it gets" ;;
        *) refuse -32602 "no such tool" ;;
        esac
        ;;
    *'"method":"notifications/cancelled"'*) echo "cancelled" >>"$LOG" ;;
    esac
    if [ "$manner" = grows ] || [ "$manner" = modern ]; then
        case $line in
        *'"name":"say.it"'*)
            grown=",$(tool grow '')"
            tell notifications/tools/list_changed "{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":${listener:-0}}}"
            ;;
        esac
    fi
done
