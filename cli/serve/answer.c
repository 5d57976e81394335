/* How choices are written down: text_completion and chat.completion, whole and in parts. */
#include "completion.h"

#include <math.h>
#include <string.h>

/* ---- log-probabilities ----------------------------------------------------------------------- */

/* A token as text. Bytes that are no whole letters are written as "bytes:\xe2\x82": two tokens with
 * different bytes never look alike. */
static void token_text(const serve_model *m, int32_t id, serve_text *out)
{
    size_t      bytes = 0, used;
    const char *piece = m->m.tokenizer ? dra_tokenizer_piece(m->m.tokenizer, id, &bytes) : NULL;
    bool        whole = true;
    if (!piece) {
        serve_printf(out, "token:%d", id);
        return;
    }
    for (size_t i = 0; i < bytes && whole; i += used) {
        const dra_letter kind = dra_letter_of(piece + i, bytes - i, &used);
        whole = kind != DRA_LETTER_NONE && kind != DRA_LETTER_CUT;
    }
    if (whole) {
        serve_put(out, piece, bytes);
        return;
    }
    serve_puts(out, "bytes:");
    for (size_t i = 0; i < bytes; i++)
        serve_printf(out, "\\x%02x", (unsigned)(unsigned char)piece[i]);
}

static void put_token(const serve_model *m, int32_t id, serve_text *out)
{
    serve_text text = {0};
    token_text(m, id, &text);
    serve_json_text(out, text.data, text.n);
    out->failed |= text.failed;
    serve_text_free(&text);
}

/* {"text": logprob, ...}: the most likely first, so that of two tokens with one text the larger
 * stays; the token itself is always there. */
static void put_map(const serve_model *m, const serve_token *t, serve_text *out)
{
    serve_text keys = {0}, key = {0};
    bool       first = true;
    serve_puts(out, "{");
    for (int64_t i = 0; i <= t->top; i++) {
        const int32_t id = i < t->top ? t->most[i].id : t->id;
        const double  p = i < t->top ? t->most[i].logprob : t->logprob;
        key.n = 0;
        serve_puts(&key, "\n");
        put_token(m, id, &key);
        serve_puts(&key, "\n");
        if (key.failed || (keys.n && strstr(keys.data, key.data))) continue;
        serve_put(&keys, key.data, key.n);
        serve_puts(out, first ? "" : ", ");
        first = false;
        serve_put(out, key.data + 1, key.n - 2);
        serve_puts(out, ": ");
        serve_json_real(out, p);
    }
    serve_puts(out, "}");
    out->failed |= keys.failed | key.failed;
    serve_text_free(&keys);
    serve_text_free(&key);
}

static void put_entry(const serve_model *m, int32_t id, double logprob, serve_text *out)
{
    size_t      bytes = 0;
    const char *piece = m->m.tokenizer ? dra_tokenizer_piece(m->m.tokenizer, id, &bytes) : NULL;
    serve_puts(out, "{\"token\": ");
    put_token(m, id, out);
    serve_puts(out, ", \"logprob\": ");
    serve_json_real(out, logprob);
    serve_puts(out, ", \"bytes\": [");
    for (size_t i = 0; piece && i < bytes; i++)
        serve_printf(out, "%s%d", i ? ", " : "", (int)(unsigned char)piece[i]);
    serve_puts(out, "]");
}

/* The newer schema: a list of entries. */
static void add_entry(const serve_model *m, serve_logprobs *l, const serve_token *t)
{
    if (l->n++) serve_puts(&l->tokens, ", ");
    put_entry(m, t->id, t->logprob, &l->tokens);
    serve_puts(&l->tokens, ", \"top_logprobs\": [");
    for (int64_t i = 0; i < t->top; i++) {
        if (i) serve_puts(&l->tokens, ", ");
        put_entry(m, t->most[i].id, t->most[i].logprob, &l->tokens);
        serve_puts(&l->tokens, "}");
    }
    serve_puts(&l->tokens, "]}");
}

/* The older one: four lists. The first token of a text has no probability. */
static void add_lists(const serve_model *m, serve_logprobs *l, const serve_token *t, int64_t offset)
{
    const char *comma = l->n++ ? ", " : "";
    serve_puts(&l->tokens, comma);
    serve_puts(&l->logprobs, comma);
    serve_puts(&l->top, comma);
    put_token(m, t->id, &l->tokens);
    serve_json_real(&l->logprobs, t->logprob);
    if (isnan(t->logprob))
        serve_puts(&l->top, "null");
    else
        put_map(m, t, &l->top);
    serve_printf(&l->offsets, "%s%lld", comma, (long long)offset);
}

/* ---- tokens of a choice ---------------------------------------------------------------------- */

static int64_t letters_in(const char *text, size_t bytes)
{
    int64_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* A token of the prompt: {"id": {"logprob": ..., "decoded_token": ...}, ...}, with its rank where
 * it is among the most likely ones. The first of a text has none. */
static void add_prompt(const serve_completion *c, serve_choice *x, const serve_token *t)
{
    const int64_t top = t->top < c->ask->prompt_logprobs ? t->top : c->ask->prompt_logprobs;
    serve_text   *out = &x->prompt;
    if (out->n) serve_puts(out, ", ");
    if (isnan(t->logprob)) {
        serve_puts(out, "null");
        return;
    }
    bool listed = false;
    serve_puts(out, "{");
    for (int64_t i = 0; i <= top; i++) {
        if (i == top && listed) break;
        const int32_t id = i < top ? t->most[i].id : t->id;
        serve_printf(out, "%s\"%d\": {\"logprob\": ", i ? ", " : "", id);
        serve_json_real(out, i < top ? t->most[i].logprob : t->logprob);
        if (i < top) serve_printf(out, ", \"rank\": %lld", (long long)i + 1);
        serve_puts(out, ", \"decoded_token\": ");
        put_token(c->model, id, out);
        serve_puts(out, "}");
        listed |= id == t->id;
    }
    serve_puts(out, "}");
}

/* The token that ends a text is not part of it, but the older schema has its probability, too:
 * evaluation harnesses expect an entry for each token that was drawn. */
void serve_choice_token(serve_completion *c, serve_choice *x, const serve_token *t)
{
    const int64_t offset = x->letters, most = c->ask->logprobs;
    const char   *text = "";
    size_t        bytes = 0;
    const bool    shown = x->decoder && !t->ends &&
                       (t->prompt || !dra_tokenizer_is_special(c->model->m.tokenizer, t->id));
    serve_token asked = *t; /* with as many likely ones as were asked for */
    if (asked.top > most) asked.top = most < 0 ? 0 : most;
    if (t->prompt && c->ask->prompt_logprobs >= 0) add_prompt(c, x, t);
    if (t->prompt && !c->echo) return;
    if (shown && dra_decoder_push(x->decoder, t->id, &text, &bytes, NULL) != DRA_OK)
        x->text.failed = true;
    x->letters += letters_in(text, bytes);
    if (t->prompt) serve_put(&x->text, text, bytes);
    serve_put(&x->text, t->text, t->bytes);
    if (c->return_ids && !t->prompt && !t->ends)
        serve_printf(&x->ids, "%s%d", x->ids.n ? ", " : "", t->id);
    if (!c->logprobs || (c->chat && t->ends)) return;
    if (c->chat)
        add_entry(c->model, &x->logprobs, &asked);
    else
        add_lists(c->model, &x->logprobs, &asked, offset);
}

size_t serve_choice_content(const serve_completion *c, const serve_choice *x)
{
    const bool over = x->over || x->finish;
    return c->tools
               ? serve_calls_after(c->model->form, &c->ask->tools, x->text.data, x->text.n, over)
               : x->text.n;
}

/* ---- objects --------------------------------------------------------------------------------- */

static void put_logprobs(const serve_completion *c, const serve_logprobs *l, serve_text *out)
{
    if (!c->logprobs || (c->stream && !l->n)) {
        serve_puts(out, "null");
        return;
    }
    const struct {
        const char       *name;
        const serve_text *list;
    } lists[] = {{c->chat ? "content" : "tokens", &l->tokens},
                 {"token_logprobs", &l->logprobs},
                 {"top_logprobs", &l->top},
                 {"text_offset", &l->offsets}};
    for (size_t i = 0; i < (c->chat ? 1 : COUNT(lists)); i++) {
        serve_printf(out, "%s\"%s\": [", i ? ", " : "{", lists[i].name);
        serve_put(out, lists[i].list->data, lists[i].list->n);
        serve_puts(out, "]");
        out->failed |= lists[i].list->failed;
    }
    serve_puts(out, "}");
}

static void put_head(const serve_completion *c, serve_text *out)
{
    serve_printf(out, "{\"id\": \"%s\", \"object\": \"%s\", \"created\": %lld, \"model\": ", c->id,
                 !c->chat    ? "text_completion"
                 : c->stream ? "chat.completion.chunk"
                             : "chat.completion",
                 (long long)c->created);
    serve_json_word(out, c->model->name);
    serve_puts(out, ", \"choices\": [");
}

static void put_end(const serve_completion *c, const serve_choice *x, serve_text *out)
{
    serve_puts(out, ", \"logprobs\": ");
    put_logprobs(c, &x->logprobs, out);
    serve_puts(out, ", \"finish_reason\": ");
    serve_json_word(out, x->finish);
    if (c->return_ids) {
        serve_puts(out, ", \"token_ids\": [");
        serve_put(out, x->ids.data, x->ids.n);
        serve_puts(out, "]");
    }
    if (c->ask->prompt_logprobs >= 0) {
        serve_puts(out, ", \"prompt_logprobs\": [");
        serve_put(out, x->prompt.data, x->prompt.n);
        serve_puts(out, "]");
    }
    serve_puts(out, "}");
    out->failed |= x->text.failed | x->ids.failed | x->prompt.failed;
}

/* The tool calls of a choice that has ended, from byte `at` of its text on. */
static void put_calls(const serve_completion *c, serve_choice *x, size_t at, serve_text *out)
{
    serve_text calls = {0};
    if (!c->tools || at >= x->text.n || !(x->over || x->finish)) return;
    if (serve_calls_put(c->model->form, &c->ask->tools, x->text.data + at, x->text.n - at,
                        c->stream, &calls)) {
        serve_puts(out, ", \"tool_calls\": [");
        serve_put(out, calls.data, calls.n);
        serve_puts(out, "]");
        x->called = true;
    }
    out->failed |= calls.failed;
    serve_text_free(&calls);
}

static void put_choice(const serve_completion *c, size_t i, serve_text *out)
{
    serve_choice *x = &c->choices[i];
    const size_t  n = serve_choice_content(c, x);
    serve_printf(out, "%s{\"index\": %zu, %s", i && !c->stream ? ", " : "", i,
                 !c->chat    ? "\"text\": "
                 : c->stream ? "\"delta\": {"
                             : "\"message\": {\"role\": \"assistant\", \"content\": ");
    if (c->chat && c->stream && !x->began) serve_puts(out, "\"role\": \"assistant\", ");
    if (c->chat && c->stream) serve_puts(out, "\"content\": ");
    if (n == 0 && x->text.n > 0)
        serve_puts(out, "null");
    else
        serve_json_text(out, x->text.data, n);
    put_calls(c, x, n, out);
    if (c->chat && !c->stream) serve_puts(out, ", \"refusal\": null");
    if (c->chat) serve_puts(out, "}");
    if (!c->stream && x->called && strcmp(x->finish, "stop") == 0) x->finish = "tool_calls";
    put_end(c, x, out);
}

serve_usage serve_usage_of(const serve_completion *c)
{
    serve_usage u = {0};
    for (size_t i = 0; c->choices && i < c->n; i++) {
        const serve_choice *x = &c->choices[i];
        u.written += x->written_tokens;
        u.drafted += x->drafted_tokens;
        u.accepted += x->accepted_tokens;
        if (i % c->per_prompt) continue;
        u.prompt += x->prompt_tokens;
        u.cached += x->cached_tokens;
    }
    return u;
}

static void put_usage(const serve_completion *c, serve_text *out)
{
    const serve_usage u = serve_usage_of(c);
    serve_printf(out,
                 ", \"usage\": {\"prompt_tokens\": %lld, \"completion_tokens\": %lld, "
                 "\"total_tokens\": %lld, \"prompt_tokens_details\": {\"cached_tokens\": %lld}",
                 (long long)u.prompt, (long long)u.written, (long long)(u.prompt + u.written),
                 (long long)u.cached);
    if (u.drafted)
        serve_printf(out,
                     ", \"completion_tokens_details\": {\"drafted_tokens\": %lld, "
                     "\"accepted_tokens\": %lld}",
                     (long long)u.drafted, (long long)u.accepted);
    serve_puts(out, "}");
}

/* Of all prompts, as lists. */
static void put_prompt_ids(const serve_completion *c, serve_text *out)
{
    if (!c->return_ids) return;
    serve_puts(out, ", \"prompt_token_ids\": [");
    for (size_t i = 0; i < c->n_prompts; i++) {
        serve_puts(out, i ? ", [" : "[");
        for (size_t k = 0; k < c->prompts[i].n; k++)
            serve_printf(out, "%s%d", k ? ", " : "", c->prompts[i].data[k]);
        serve_puts(out, "]");
    }
    serve_puts(out, "]");
}

static void put_state(const serve_completion *c, serve_text *out)
{
    if (!c->return_state) return;
    serve_puts(out, ", \"dra_state_data\": \"");
    serve_put(out, c->state.data, c->state.n);
    serve_puts(out, "\"");
    out->failed |= c->state.failed;
}

/* An answer whose state could not be saved. */
static void put_unsaved(const serve_completion *c, serve_text *out)
{
    serve_text t = {0};
    if (!c->unsaved.status) return;
    serve_error_text(&c->unsaved, &t);
    serve_puts(out, ", ");
    if (!t.failed) serve_put(out, t.data + 1, t.n - 2); /* without its braces */
    out->failed |= t.failed;
    serve_text_free(&t);
}

void serve_answer_whole(serve_completion *c, serve_text *out)
{
    put_head(c, out);
    for (size_t i = 0; i < c->n; i++) put_choice(c, i, out);
    serve_puts(out, "]");
    put_usage(c, out);
    put_prompt_ids(c, out);
    put_state(c, out);
    put_unsaved(c, out);
    serve_puts(out, "}");
}

static void forget_text(serve_choice *x, size_t n)
{
    if (n < x->text.n) memmove(x->text.data, x->text.data + n, x->text.n - n);
    x->text.n -= n;
}

void serve_answer_part(serve_completion *c, size_t i, const char *look, serve_text *out)
{
    serve_choice *x = &c->choices[i];
    put_head(c, out);
    put_choice(c, i, out);
    serve_puts(out, c->usage ? "], \"usage\": null" : "]");
    if (look) serve_printf(out, ", \"dra_look\": %s", look);
    serve_puts(out, "}");
    x->began = true;
    x->ids.n = 0;
    forget_text(x, x->over ? x->text.n : serve_choice_content(c, x));
    x->logprobs.n = 0;
    x->logprobs.tokens.n = x->logprobs.logprobs.n = 0;
    x->logprobs.top.n = x->logprobs.offsets.n = 0;
}

bool serve_answer_last(const serve_completion *c, serve_text *out)
{
    if (!c->usage && !c->return_state && !c->unsaved.status) return false;
    put_head(c, out);
    serve_puts(out, "]");
    if (c->usage) put_usage(c, out);
    put_state(c, out);
    put_unsaved(c, out);
    serve_puts(out, "}");
    return true;
}
