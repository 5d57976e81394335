/* Routes of the tokenizer, in both spellings that clients use: prompt and content. */
#include "fields.h"

#include <stdlib.h>
#include <string.h>

/* special: adds the tokens that belong around a text, as clients expect. */
typedef struct asked {
    const char *model;
    json_t     *prompt, *content, *tokens;
    bool        special, pieces;
} asked;

static const serve_field tokenize_fields[] = {
    {"model", SERVE_F_WORD, offsetof(asked, model)},
    {"prompt", SERVE_F_ANY, offsetof(asked, prompt)},
    {"content", SERVE_F_ANY, offsetof(asked, content)},
    {"add_special_tokens", SERVE_F_BOOL, offsetof(asked, special)},
    {"with_pieces", SERVE_F_BOOL, offsetof(asked, pieces)},
};

static const serve_field detokenize_fields[] = {
    {"model", SERVE_F_WORD, offsetof(asked, model)},
    {"tokens", SERVE_F_ANY, offsetof(asked, tokens)},
};

typedef struct conversion { /* a request for one of both */
    serve_made made;
    asked      asked;
} conversion;

/* The model, which has a tokenizer. */
static serve_model *model_of(serve *s, const char *name, serve_error *e)
{
    serve_model *m = serve_model_find(s, name, e);
    if (m && !m->m.tokenizer) {
        serve_wrong(e, 400, "model", "model: %s has no tokenizer", m->name);
        return NULL;
    }
    return m;
}

static void put_ids(const dra_ids *ids, serve_text *t)
{
    serve_puts(t, "[");
    for (size_t i = 0; i < ids->n; i++) serve_printf(t, "%s%d", i ? ", " : "", ids->data[i]);
    serve_puts(t, "]");
}

/* ---- text to ids ----------------------------------------------------------------------------- */

static bool encode_content(const serve_model *m, const asked *a, dra_ids *ids, serve_error *e)
{
    json_t        *x = a->prompt ? a->prompt : a->content;
    const char    *name = a->prompt ? "prompt" : "content";
    const unsigned how = a->special ? DRA_ENCODE_BEGIN | DRA_ENCODE_END : 0;
    dra_error      err = {0};
    if (!x || (a->prompt && a->content))
        return serve_wrong(e, 400, "prompt", "expected one of prompt and content");
    if (!json_is_string(x))
        return serve_wrong(e, 400, name, "%s: expected a text, found %s", name, serve_kind_name(x));
    return dra_encode_as(m->m.tokenizer, json_string_value(x), json_string_length(x), how, ids,
                         &err) == DRA_OK ||
           serve_wrong_status(e, &err);
}

static void put_pieces(const serve_model *m, const dra_ids *ids, serve_text *t)
{
    serve_puts(t, ", \"pieces\": [");
    for (size_t i = 0; i < ids->n; i++) {
        size_t      bytes = 0;
        const char *piece = dra_tokenizer_piece(m->m.tokenizer, ids->data[i], &bytes);
        if (i) serve_puts(t, ", ");
        serve_json_text(t, piece ? piece : "", bytes);
    }
    serve_puts(t, "]");
}

static void tokenize_text(serve_call *call)
{
    conversion        *c = (conversion *)call;
    serve_text        *t = &c->made.answer;
    const serve_model *m = c->made.model;
    dra_ids            ids = {0};
    if (encode_content(m, &c->asked, &ids, &call->error)) {
        serve_puts(t, "{\"tokens\": ");
        put_ids(&ids, t);
        serve_printf(t, ", \"count\": %zu, \"max_model_len\": %lld", ids.n,
                     (long long)dra_model_config_of(m->m.model)->context);
        if (c->asked.pieces) put_pieces(m, &ids, t);
        serve_puts(t, "}");
    }
    dra_ids_free(&ids);
}

/* ---- ids to text ----------------------------------------------------------------------------- */

static bool decode_ids(const serve_model *m, const dra_ids *ids, serve_text *out, serve_error *e)
{
    dra_decoder *d = NULL;
    dra_error    err = {0};
    const char  *text = "";
    size_t       bytes = 0;
    dra_status   st = dra_decoder_create(m->m.tokenizer, false, &d, &err);
    if (st == DRA_OK) dra_decoder_start(d);
    for (size_t i = 0; i < ids->n && st == DRA_OK; i++) {
        st = dra_decoder_push(d, ids->data[i], &text, &bytes, &err);
        if (st == DRA_OK) serve_put(out, text, bytes);
    }
    if (st == DRA_OK) {
        dra_decoder_flush(d, &text, &bytes);
        serve_put(out, text, bytes);
    }
    dra_decoder_destroy(d);
    return st == DRA_OK || serve_wrong_status(e, &err);
}

static void detokenize_ids(serve_call *call)
{
    conversion *c = (conversion *)call;
    serve_text *t = &c->made.answer, text = {0};
    dra_ids     ids = {0};
    if (!json_is_array(c->asked.tokens)) {
        serve_wrong(&call->error, 400, "tokens", "tokens: expected a list of ids");
    } else if (serve_ids_read(c->asked.tokens, "tokens", &ids, &call->error) &&
               decode_ids(c->made.model, &ids, &text, &call->error)) {
        serve_puts(t, "{\"prompt\": ");
        serve_json_text(t, text.data, text.n);
        serve_puts(t, ", \"content\": ");
        serve_json_text(t, text.data, text.n);
        serve_puts(t, "}");
        t->failed |= text.failed;
    }
    serve_text_free(&text);
    dra_ids_free(&ids);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void convert_body(serve_call *call, const serve_field *fields, size_t n,
                         void (*work)(serve_call *))
{
    conversion *c = (conversion *)call;
    c->asked.special = true;
    if (call->body && serve_fields_read(fields, n, call->body, &c->asked, &call->error))
        c->made.model = model_of(call->server, c->asked.model, &call->error);
    serve_made_do(&c->made, work);
}

static void on_tokenize(serve_call *call)
{
    convert_body(call, tokenize_fields, COUNT(tokenize_fields), tokenize_text);
}

static void on_detokenize(serve_call *call)
{
    convert_body(call, detokenize_fields, COUNT(detokenize_fields), detokenize_ids);
}

void serve_tokenize(const serve_request *r)
{
    serve_made_start(r, sizeof(conversion), on_tokenize);
}

void serve_detokenize(const serve_request *r)
{
    serve_made_start(r, sizeof(conversion), on_detokenize);
}

/* ---- about it -------------------------------------------------------------------------------- */

void serve_tokenizer_info(const serve_request *r)
{
    char         name[SERVE_NAME + 1];
    serve_error  e = {0};
    serve_text   t = {0};
    const bool   named = http_query(r->head, "model", name, sizeof name);
    serve_model *m = model_of(r->server, named ? name : NULL, &e);
    if (!m) {
        serve_fail(r->conn, &e);
        return;
    }
    const int32_t end = dra_tokenizer_end(m->m.tokenizer);
    size_t        bytes = 0;
    const char   *piece = end >= 0 ? dra_tokenizer_piece(m->m.tokenizer, end, &bytes) : NULL;
    static const char *const words[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    serve_printf(&t, "{\"size\": %d", dra_tokenizer_size(m->m.tokenizer));
    for (size_t i = 0; i < COUNT(words); i++) {
        const char *text = m->template ? dra_template_token(m->template, words[i]) : NULL;
        serve_printf(&t, ", \"%s\": ", words[i]);
        if (!text && piece && i < 3) /* end of text serves for all three, as in GPT-2 */
            serve_json_text(&t, piece, bytes);
        else
            serve_json_word(&t, text);
    }
    serve_puts(&t, ", \"chat_template\": ");
    serve_json_word(&t, m->template_text);
    serve_puts(&t, "}");
    serve_reply(r->conn, 200, &t);
}
