/* Requests of dra serve: the head, JSON of the body, and base64 in it. The bytes are a head up to
 * the first empty line, then a body. */
#include "harness.h"

#include "cli/serve/http_head.h"
#include "cli/serve/json.h"
#include "cli/serve/text.h"

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

/* A tree says of itself what it is: counts are those of its lists, texts end with a 0. */
static size_t visit(const serve_json *x, int depth)
{
    size_t n = 0, all = 1;
    if (depth > SERVE_JSON_DEPTH) broken("a tree that is deeper than it may be");
    if (x->kind == SERVE_TEXT && x->text[x->bytes]) broken("a text without its end");
    for (const serve_json *y = x->first; y; y = y->next, n++) {
        if ((x->kind == SERVE_OBJECT) != (y->key != NULL)) broken("a key where none belongs");
        all += visit(y, depth + 1);
    }
    if (n != x->n) broken("a count that is another");
    return all;
}

/* What is written of a text reads back as the same. */
static void write_again(const serve_json *x)
{
    serve_text        t = {0};
    serve_json_file  *file = NULL;
    char              why[160];
    const serve_json *y;
    if (x->kind != SERVE_TEXT) return;
    serve_json_text(&t, x->text, x->bytes);
    y = serve_json_read(t.data, t.n, &file, why);
    if (!y || y->bytes != x->bytes || memcmp(y->text, x->text, x->bytes) != 0)
        broken("a text that reads back as another");
    serve_json_free(file);
    serve_text_free(&t);
}

static int try_body(const char *text, size_t bytes)
{
    char              why[160], *data = NULL;
    size_t            n = 0;
    serve_json_file  *file = NULL;
    const serve_json *x = serve_json_read(text, bytes, &file, why);
    if (!x && file) broken("a file of nothing");
    if (x && visit(x, 0) > SERVE_JSON_VALUES) broken("more values than there may be");
    if (x) write_again(x);
    if (x)
        for (const serve_json *y = x->first; y; y = y->next) write_again(y);
    serve_json_free(file);
    if (serve_base64_read(text, bytes, &data, &n)) {
        serve_text t = {0};
        serve_base64(&t, data, n);
        if (t.n != bytes && n) broken("base64 of another length");
        serve_text_free(&t);
    }
    free(data);
    return x != NULL;
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
