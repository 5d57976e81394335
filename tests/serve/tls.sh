#!/bin/sh
# TLS by a reverse proxy, as docs/serve.md has it: what it says is what nginx is given here.
#   tls.sh PORT_OF_SERVER        Prints TAP lines.
set -u
port=$1
here=$(realpath "$(dirname "$0")")
if ! command -v nginx >/dev/null || ! command -v openssl >/dev/null; then
    echo "ok 1 - TLS by a proxy # SKIP needs nginx and openssl"
    echo 1..1
    exit 0
fi
scratch=$(mktemp -d)
proxy=
trap 'kill $proxy 2>/dev/null; wait 2>/dev/null; rm -rf "$scratch"' EXIT
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout "$scratch/key.pem" -out "$scratch/cert.pem" 2>/dev/null || exit 1
secure=$((20000 + $$ % 20000))
# The lines of the page, with this server's port and the files above.
awk '/^    server \{/ { on = 1 } on { print } /^    \}/ { on = 0 }' "$here/../../docs/serve.md" |
    sed "s|listen 443|listen 127.0.0.1:$secure|; s|127.0.0.1:8080|127.0.0.1:$port|
        s|/etc/ssl/dra|$scratch|g" >"$scratch/server"
cat >"$scratch/conf" <<END
daemon off;
pid $scratch/pid;
error_log $scratch/log;
events {}
http {
    access_log off;
    client_body_temp_path $scratch/body;
    proxy_temp_path $scratch/proxy;
    fastcgi_temp_path $scratch/fastcgi;
    uwsgi_temp_path $scratch/uwsgi;
    scgi_temp_path $scratch/scgi;
$(cat "$scratch/server")
}
END
nginx -c "$scratch/conf" 2>>"$scratch/log" &
proxy=$!
n=0
bad=0
check() {
    n=$((n + 1))
    what=$1
    shift
    if "$@"; then echo "ok $n - $what"; else bad=1; echo "not ok $n - $what"; fi
}
ask() { curl -sf --cacert "$scratch/cert.pem" "https://localhost:$secure$1" ${2:+-d "$2"}; }
answers() { ask "$1" "${2:-}" | grep -q "$3"; }
i=0
until ask /health >/dev/null || [ $i -ge 100 ]; do sleep 0.1; i=$((i + 1)); done
check "the server answers behind TLS" answers /health '' '"ok"'
check "text" answers /v1/completions '{"prompt": "a", "max_tokens": 2}' text_completion
check "a stream" answers /v1/completions '{"prompt": "a", "max_tokens": 2, "stream": true}' DONE
# An event comes while others are still to come: nothing is kept back until the end.
early() {
    curl -sN --cacert "$scratch/cert.pem" "https://localhost:$secure/v1/completions" \
        -d '{"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true}' |
        head -n 1 | grep -q '^data: '
}
check "events come as they are written" early
head -c 3000000 /dev/zero | tr '\0' a >"$scratch/large"
check "a large body" test "$(curl -s -o /dev/null -w '%{http_code}' --cacert "$scratch/cert.pem" \
    --data-binary @"$scratch/large" "https://localhost:$secure/tokenize")" = 400
[ $bad = 0 ] || cat "$scratch/log" >&2
echo "1..$n"
exit $bad
