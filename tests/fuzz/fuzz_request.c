/* Requests of dra serve: the head, JSON of the body, and base64 in it. The bytes are a head up to
 * the first empty line, then a body. */
#include "harness.h"

#include "serve/http_head.h"
#include "serve/json.h"
#include "serve/text.h"

static const char *const words[] = {FUZZ_JSON,
                                    "GET /",
                                    "POST /v1/completions",
                                    " HTTP/1.1\r\n",
                                    " HTTP/1.0\r\n",
                                    "Host: a\r\n",
                                    "Content-Length: ",
                                    "Connection: close\r\n",
                                    "Expect: 100-continue\r\n",
                                    "Transfer-Encoding: chunked\r\n",
                                    "\r\n",
                                    "?model=",
                                    "%2e",
                                    "\"prompt\"",
                                    "\\u00e9",
                                    "\\ud83d\\ude00",
                                    "true",
                                    "null",
                                    "-1.5e3",
                                    "AAAA",
                                    "==",
                                    NULL};

static size_t count_values(json_t *x, int depth)
{
    size_t      i, n = 1;
    const char *key;
    json_t     *y;
    if (depth > SERVE_JSON_DEPTH) broken("a tree that is deeper than it may be");
    json_array_foreach(json_is_array(x) ? x : NULL, i, y) n += count_values(y, depth + 1);
    json_object_foreach(json_is_object(x) ? x : NULL, key, y) n += count_values(y, depth + 1);
    return n;
}

/* What is written of a text reads back as the same. */
static void write_again(const json_t *x)
{
    serve_text t = {0};
    char       why[160];
    if (!json_is_string(x)) return;
    serve_json_text(&t, json_string_value(x), json_string_length(x));
    json_t *y = serve_json_read(t.data, t.n, why);
    if (!json_equal(x, y)) broken("a text that reads back as another");
    json_decref(y);
    serve_text_free(&t);
}

static int try_body(const char *text, size_t bytes)
{
    char        why[160], *data = NULL;
    size_t      n = 0, i;
    const char *key;
    json_t     *x = serve_json_read(text, bytes, why), *y;
    const bool  accepted = x != NULL;
    if (!x && !why[0]) broken("refused without a reason");
    if (x && count_values(x, 0) > SERVE_JSON_VALUES) broken("more values than there may be");
    if (x) write_again(x);
    json_array_foreach(json_is_array(x) ? x : NULL, i, y) write_again(y);
    json_object_foreach(json_is_object(x) ? x : NULL, key, y) write_again(y);
    json_decref(x);
    if (serve_base64_read(text, bytes, &data, &n)) {
        serve_text t = {0};
        serve_base64(&t, data, n);
        if (t.n != bytes && n) broken("base64 of another length");
        serve_text_free(&t);
    }
    free(data);
    return accepted;
}

int harness(const uint8_t *data, size_t bytes)
{
    char       *text = malloc(bytes + 1), value[32];
    http_head  *head = malloc(sizeof *head);
    const char *why = NULL;
    if (!text || !head) broken("no memory for the fuzzer itself");
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    size_t end = 0;
    while (end + 4 <= bytes && memcmp(text + end, "\r\n\r\n", 4) != 0) end++;
    end = end + 4 <= bytes ? end + 4 : 0;
    int accepted = try_body(text + end, bytes - end);
    if (end) {
        const int status = http_head_read(text, end, head, &why);
        if (status && (status < 400 || status > 505 || !why)) broken("an error that says nothing");
        if (!status && (head->path[0] != '/' || head->n > HTTP_HEADERS))
            broken("a head that is none");
        if (!status) http_query(head, "model", value, sizeof value);
        accepted |= !status;
    }
    free(head);
    free(text);
    return accepted;
}

static void make(fuzz_bytes *out)
{
    static const char *const methods[] = {"GET", "POST", "PUT", "DELETE"};
    static const char *const bodies[] = {"{\"prompt\": \"a\\n\\u00e9\", \"n\": 2}",
                                         "[1, [2.5, null]]", "{\"a\": {\"b\": [true, false]}}",
                                         "\"text\""};
    say(out, one_of(methods, COUNT(methods)));
    say(out, " /states/a%2eb?model=m HTTP/1.1\r\nHost: localhost\r\nX-Any: thing\r\n\r\n");
    say(out, one_of(bodies, COUNT(bodies)));
}

const fuzz_subject fuzz_this = {.words = words, .make = make};
