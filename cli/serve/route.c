/* Finds the route of a request, and answers errors. */
#include "serve.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const serve_route serve_routes[] = {
    {"GET", "/", "/", serve_page, true},
    {"GET", "/page.css", "/page.css", serve_page, true},
    {"GET", "/page.js", "/page.js", serve_page, true},
    {"GET", "/sampler", "/sampler", serve_sampler, true},
    {"GET", "/health", "/health", serve_health, true},
    {"GET", "/ready", "/ready", serve_ready, true},
    {"POST", "/apply-template", "/apply-template", serve_apply_template, false},
    {"GET", "/metrics", "/metrics", serve_metrics, .rules = true},
    {"GET", "/v1/models", "/v1/models", serve_models_list, false},
    {"GET", "/v1/models/", "/v1/models/NAME", serve_models_one, false},
    {"POST", "/v1/completions", "/v1/completions", serve_completions, false},
    {"POST", "/v1/chat/completions", "/v1/chat/completions", serve_chat, false},
    {"POST", "/v1/responses", "/v1/responses", serve_responses, false},
    {"POST", "/v1/messages", "/v1/messages", serve_messages, false},
    {"POST", "/v1/embeddings", "/v1/embeddings", serve_embeddings, false},
    {"POST", "/tokenize", "/tokenize", serve_tokenize, false},
    {"POST", "/detokenize", "/detokenize", serve_detokenize, false},
    {"GET", "/tokenizer_info", "/tokenizer_info", serve_tokenizer_info, false},
    {"GET", "/states", "/states", serve_states_list, false},
    {"GET", "/states/", "/states/NAME", serve_states_get, false},
    {"POST", "/states/", "/states/NAME", serve_states_post, false},
    {"PUT", "/states/", "/states/NAME", serve_states_put, .file = true},
    {"DELETE", "/states/", "/states/NAME", serve_states_delete, false},
};
const size_t serve_n_routes = COUNT(serve_routes);

/* ---- errors ---------------------------------------------------------------------------------- */

bool serve_wrong(serve_error *e, int status, const char *param, const char *format, ...)
{
    va_list args;
    *e = (serve_error){.status = status};
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    dra_make_shown(e->text);
    return false;
}

bool serve_limited(serve_error *e, serve_limit limit, const char *param, const char *format, ...)
{
    char    text[sizeof e->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    serve_wrong(e, serve_limit_status(limit), param, "%s", text);
    e->code = serve_limit_code(limit);
    e->limit = limit;
    return false;
}

bool serve_wrong_status(serve_error *e, const dra_error *err)
{
    static const struct {
        dra_status  of;
        int         status;
        const char *code;
    } all[] = {{DRA_ERR_VALUE, 400, NULL},
               {DRA_ERR_INDEX, 400, NULL},
               {DRA_ERR_FORMAT, 400, NULL},
               {DRA_ERR_NAME, 404, "state_not_found"},
               {DRA_ERR_FILE, 507, "state_not_written"},
               {DRA_ERR_SHAPE, 400, NULL}};
    /* Paths of temporary files are left out of error messages. */
    const char *text = err->text, *after = text[0] == '/' ? strstr(text, ": ") : NULL;
    const char *what = after ? "the state" : "";
    if (err->code == DRA_ERR_BUSY || err->code == DRA_ERR_MEMORY)
        return serve_limited(e, err->code == DRA_ERR_BUSY ? SERVE_QUEUE : SERVE_MEMORY_LIMIT, NULL,
                             "%s%s", what, after ? after : text);
    serve_wrong(e, 500, NULL, "%s%s", what, after ? after : text);
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i].of == err->code) {
            e->status = all[i].status;
            e->code = all[i].code;
        }
    return false;
}

void serve_error_text(const serve_error *e, serve_text *out)
{
    const char *type = e->status == 429   ? "rate_limit_error"
                       : e->status == 401 ? "authentication_error"
                       : e->status < 500  ? "invalid_request_error"
                                          : "server_error";
    serve_puts(out, "{\"error\": {\"message\": ");
    serve_json_word(out, e->text);
    serve_printf(out, ", \"type\": \"%s\", \"param\": ", type);
    serve_json_word(out, e->param[0] ? e->param : NULL);
    serve_puts(out, ", \"code\": ");
    serve_json_word(out, e->code);
    serve_puts(out, "}}");
}

static void fail_with(http_conn *c, const serve_error *e, const char *extra)
{
    serve_text t = {0};
    if (e->limit) serve_limit_acts(http_limits(c), e->limit);
    serve_error_text(e, &t);
    http_reply(c, e->status, "application/json", extra, t.failed ? "{}" : t.data,
               t.failed ? 2 : t.n);
    serve_text_free(&t);
}

void serve_fail(http_conn *c, const serve_error *e)
{
    fail_with(c, e,
              e->status == 429 || e->status == 503 ? "Retry-After: 1\r\n"
              : e->status == 401                   ? "WWW-Authenticate: Bearer\r\n"
                                                   : NULL);
}

void serve_reply(http_conn *c, int status, serve_text *json)
{
    serve_error e;
    if (json->failed) {
        serve_wrong(&e, 503, NULL, "out of memory");
        serve_fail(c, &e);
    } else {
        http_reply_taken(c, status, "application/json", json->data, json->n);
        *json = (serve_text){0};
    }
    serve_text_free(json);
}

/* ---- finding the route ----------------------------------------------------------------------- */

/* What follows the route's path; NULL: it is another. */
static const char *rest_of(const serve_route *r, const char *path)
{
    const size_t n = strlen(r->path);
    const bool   prefix = n > 1 && r->path[n - 1] == '/';
    if (strncmp(path, r->path, n) != 0) return NULL;
    return path[n] == '\0' ? (prefix ? NULL : path + n) : prefix ? path + n : NULL;
}

/* HEAD is GET, of which http_reply() leaves out the body. */
static bool takes_method(const serve_route *r, const char *method)
{
    return strcmp(r->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0);
}

/* -1: there is none; *other: there is one for other methods. */
static int route_of(const http_head *h, const char **rest, bool *other)
{
    *other = false;
    for (size_t i = 0; i < serve_n_routes && h->method; i++) {
        *rest = rest_of(&serve_routes[i], h->path);
        if (*rest && takes_method(&serve_routes[i], h->method)) return (int)i;
        *other |= *rest != NULL;
    }
    return -1;
}

void serve_answered(void *user, const http_head *h, int status)
{
    serve      *s = user;
    const char *rest;
    bool        other;
    const int   i = route_of(h, &rest, &other);
    s->counts[i < 0 ? SERVE_ROUTES - 1 : i][status < SERVE_STATUS ? status : 0]++;
}

/* A preflight: browsers ask this before a page of another site may send a request. */
static bool answer_preflight(serve *s, http_conn *c, const http_head *h)
{
    if (!s->args->cors || strcmp(h->method, "OPTIONS") != 0) return false;
    http_reply(c, 204, "text/plain",
               "Access-Control-Allow-Methods: GET, HEAD, POST, PUT, DELETE\r\n"
               "Access-Control-Allow-Headers: authorization, *\r\n" /* * is all but this one */
               "Access-Control-Max-Age: 600\r\n",
               "", 0);
    return true;
}

/* 405 with the methods that the path takes, in the message and in a header. */
static void fail_method(http_conn *c, const http_head *h)
{
    serve_error  e;
    char         allow[80] = "Allow: ";
    size_t       n = strlen(allow);
    const size_t begin = n;
    for (size_t i = 0; i < serve_n_routes; i++) {
        const serve_route *r = &serve_routes[i];
        if (!rest_of(r, h->path) || n + 20 > sizeof allow) continue;
        n += (size_t)snprintf(allow + n, sizeof allow - n, "%s%s", n > begin ? ", " : "",
                              strcmp(r->method, "GET") == 0 ? "GET, HEAD" : r->method);
    }
    serve_wrong(&e, 405, NULL, "%s: %.100s takes %s", h->method, h->path, allow + begin);
    snprintf(allow + n, sizeof allow - n, "\r\n");
    fail_with(c, &e, allow);
}

/* Bodies that are states go to files, and may be larger than others. */
static void wish_file(serve *s, http_wish *wish)
{
    wish->most = s->max_state;
    wish->limit = SERVE_MAX_STATE;
    serve_temp_path(s, wish->file, sizeof wish->file);
}

/* Requests without permission, and of unknown paths, are answered before the body is read. */
bool serve_admit(void *user, http_conn *c, const http_head *h, http_wish *wish)
{
    serve      *s = user;
    serve_error e = {0};
    const char *rest;
    bool        other = false;
    double      wait = 0;
    if (!serve_allowed(s, h, &e)) {
        serve_fail(c, &e);
        return false;
    }
    if (answer_preflight(s, c, h)) return false;
    const int        i = route_of(h, &rest, &other);
    const serve_key *key = serve_key_of(s, h);
    if (key) snprintf(http_record_of(c)->key, HTTP_ID + 1, "%s", key->name);
    http_record_of(c)->owner = key ? key->owner : 0;
    http_record_of(c)->reads = key && key->reads;
    http_record_of(c)->rules = key && key->rules;
    if (i >= 0 && key && serve_routes[i].rules && !key->rules) {
        serve_wrong(&e, 403, NULL, "expected a key with [admin]");
        e.code = "not_an_admin_key";
        serve_fail(c, &e);
        return false;
    }
    if (i >= 0 && key && strcmp(h->method, "POST") == 0 && !serve_rate_allows(s, key, &wait, &e)) {
        char after[40];
        snprintf(after, sizeof after, "Retry-After: %.0f\r\n", ceil(wait));
        fail_with(c, &e, after);
        return false;
    }
    if (i >= 0 && (serve_routes[i].open || !s->keys.n || key)) {
        if (serve_routes[i].file) wish_file(s, wish);
        return true;
    }
    if (i < 0) {
        serve_wrong(&e, 404, NULL, "%s: there is no path %.100s", h->method, h->path);
    } else {
        serve_wrong(&e, 401, NULL, "expected a key: Authorization: Bearer KEY");
        e.code = "invalid_api_key";
    }
    if (other && i < 0)
        fail_method(c, h);
    else
        serve_fail(c, &e);
    return false;
}

/* ?owner=NAME: an admin asks for what is another's; * is of all. */
static bool take_owner(serve_request *r, serve_error *e)
{
    char name[HTTP_ID + 1];
    if (!http_query(r->head, "owner", name, sizeof name)) return true;
    if (!http_record_of(r->conn)->rules) {
        serve_wrong(e, 403, "owner", "owner: expected a key with [admin]");
        e->code = "not_an_admin_key";
        return false;
    }
    r->all = strcmp(name, "*") == 0;
    r->owner = serve_owner_of(name);
    return true;
}

void serve_dispatch(void *user, http_conn *c, const http_head *h, const char *body, size_t bytes)
{
    serve_request r = {.server = user,
                       .conn = c,
                       .head = h,
                       .owner = http_record_of(c)->owner,
                       .body = body,
                       .bytes = bytes};
    bool          other = false;
    serve_error   e = {0};
    const int     i = route_of(h, &r.rest, &other);
    if (take_owner(&r, &e))
        serve_routes[i].answer(&r);
    else
        serve_fail(c, &e);
}
