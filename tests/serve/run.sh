#!/bin/sh
# Clients that people use, against a running server: curl, the Python packages openai, anthropic,
# langchain-openai and lm-eval, the page in Chromium, and TLS by nginx. What is not installed is
# skipped, visibly.
#   run.sh PATH_OF_DRA [PYTHON]
# PYTHON is that of an environment with openai, anthropic, langchain-openai, lm-eval[api] and
# websocket-client.
set -u
dra=$(realpath "$1")
python=${2:-python3}
here=$(realpath "$(dirname "$0")")
pictures=${PICTURES:-$(dirname "$dra")/pictures}
scratch=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null; wait 2>/dev/null; rm -rf "$scratch"' EXIT
mkdir -p "$pictures"

"$dra" init --preset dra-delta-tiny --out "$scratch/tiny" >/dev/null 2>&1 || exit 1
"$dra" convert --from "$scratch/tiny" --to "$scratch/tiny-q4_0" --quantise q4_0 >/dev/null 2>&1 ||
    exit 1
cat >"$scratch/chat.jinja" <<'END'
{%- if tools %}<|system|>Tools: {{ tools | tojson }}<|end|>{% endif %}
{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}
{%- for c in m.tool_calls or [] %}{{ '\n<tool_call>\n' }}{"name": "{{ c.function.name }}",
{{- ' "arguments": ' }}{{ c.function.arguments | tojson }}}{{ '\n</tool_call>' }}
{%- endfor %}<|end|>
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}
END
"$dra" serve --chat-template "$scratch/chat.jinja" --model "$scratch/tiny" \
    --model "$scratch/tiny-q4_0" --port 0 \
    --state-dir "$scratch/states" 2>"$scratch/log" &
server=$!
url=
i=0
while [ $i -lt 100 ] && [ -z "$url" ]; do
    url=$(sed -n 's/.*\(http:.*\)/\1/p' "$scratch/log")
    i=$((i + 1))
    sleep 0.1
done
[ -n "$url" ] || exit 1
until curl -sf "$url/health" >/dev/null; do sleep 0.1; done

status=0
echo "# curl"
"$here/curl.sh" "$url" || status=1
echo "# TLS"
"$here/tls.sh" "${url##*:}" || status=1
for client in openai_client anthropic_client langchain_client "lm_eval_client tiny" \
    "lm_eval_client tiny-q4_0" page; do
    echo "# $client"
    case $client in
    lm_eval_client*) set -- "$url" "$dra" "$scratch/${client#* }" ;;
    page) set -- "$url" "${CHROMIUM:-chromium}" "$pictures" ;;
    *) set -- "$url" ;;
    esac
    "$python" "$here/${client% *}.py" "$@" || status=1
done
kill -TERM $server
wait $server || status=1
server=
exit $status
