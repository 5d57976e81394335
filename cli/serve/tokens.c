/* Routes of the tokenizer, in both spellings that clients use: prompt and content. */
#include "fields.h"

#include <stdlib.h>
#include <string.h>

/* special: the tokens that belong around a text are put there, as clients expect. */
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

/* The model, which has a tokenizer. */
static serve_model *model_of(const serve_request *r, const char *name, serve_error *e)
{
    serve_model *m = serve_model_find(r->server, name, e);
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

void serve_tokenize(const serve_request *r)
{
    serve_error  e = {0};
    asked        a = {.special = true};
    dra_ids      ids = {0};
    serve_text   t = {0};
    json_t      *body = serve_body(r, &e);
    serve_model *m = NULL;
    if (body && serve_fields_read(tokenize_fields, COUNT(tokenize_fields), body, &a, &e))
        m = model_of(r, a.model, &e);
    if (m && encode_content(m, &a, &ids, &e)) {
        serve_puts(&t, "{\"tokens\": ");
        put_ids(&ids, &t);
        serve_printf(&t, ", \"count\": %zu, \"max_model_len\": %lld", ids.n,
                     (long long)dra_model_config_of(m->m.model)->context);
        if (a.pieces) put_pieces(m, &ids, &t);
        serve_puts(&t, "}");
        serve_reply(r->conn, 200, &t);
    } else {
        serve_fail(r->conn, &e);
    }
    dra_ids_free(&ids);
    json_decref(body);
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

void serve_detokenize(const serve_request *r)
{
    serve_error  e = {0};
    asked        a = {0};
    dra_ids      ids = {0};
    serve_text   t = {0}, text = {0};
    json_t      *body = serve_body(r, &e);
    serve_model *m = NULL;
    if (body && serve_fields_read(detokenize_fields, COUNT(detokenize_fields), body, &a, &e))
        m = model_of(r, a.model, &e);
    bool well = m != NULL;
    if (well && !json_is_array(a.tokens))
        well = serve_wrong(&e, 400, "tokens", "tokens: expected a list of ids");
    if (well && serve_ids_read(a.tokens, "tokens", &ids, &e) && decode_ids(m, &ids, &text, &e)) {
        serve_puts(&t, "{\"prompt\": ");
        serve_json_text(&t, text.data, text.n);
        serve_puts(&t, ", \"content\": ");
        serve_json_text(&t, text.data, text.n);
        serve_puts(&t, "}");
        t.failed |= text.failed;
        serve_reply(r->conn, 200, &t);
    } else {
        serve_fail(r->conn, &e);
    }
    serve_text_free(&text);
    dra_ids_free(&ids);
    json_decref(body);
}

/* ---- about it -------------------------------------------------------------------------------- */

void serve_tokenizer_info(const serve_request *r)
{
    char         name[SERVE_NAME + 1];
    serve_error  e = {0};
    serve_text   t = {0};
    const bool   named = http_query(r->head, "model", name, sizeof name);
    serve_model *m = model_of(r, named ? name : NULL, &e);
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
