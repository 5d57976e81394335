/* Opening data that are examples. */
#include "examples.h"

#include <string.h>

static bool is_lines(const char *path)
{
    const size_t n = strlen(path);
    return n > 6 && strcmp(path + n - 6, ".jsonl") == 0;
}

bool cli_are_pairs(const cli_list *files, const cli_pairs *p, const dra_model_config *model)
{
    bool all = files->count > 0 && (p->src_key || p->tgt_key || model->context_stack);
    for (size_t i = 0; i < files->count; i++) all = all && is_lines(files->text[i]);
    return all;
}

dra_status cli_pairs_check(const cli_list *files, const cli_pairs *p, const dra_model_config *model,
                           dra_error *err)
{
    const char *given = p->src_key         ? "src-key"
                        : p->tgt_key       ? "tgt-key"
                        : p->src_tokenizer ? "src-tokenizer"
                                           : NULL;
    if (!given || !files->count || cli_are_pairs(files, p, model)) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE, "--%s: expected pairs of texts, lines of JSON in .jsonl",
                     given);
}

bool cli_are_examples(const cli_list *files, const cli_pairs *p, const dra_model_config *model,
                      int format)
{
    return cli_are_pairs(files, p, model) ||
           (!format && dra_examples_are((int)files->count, files->text));
}

/* The tokenizer of sources, where it is another one. */
static dra_status open_src_tokenizer(const cli_pairs *p, const dra_model_config *model,
                                     dra_tokenizer **out, dra_error *err)
{
    const cli_source s = {.tokenizer = p->src_tokenizer};
    const int64_t    V = model->context_stack ? model->context_stack->vocab : model->vocab;
    return p->src_tokenizer ? cli_tokenizer_open(&s, V, out, err) : DRA_OK;
}

int64_t cli_text_end(const dra_tokenizer *t, int64_t vocab)
{
    const int64_t size = dra_tokenizer_size(t), end = dra_tokenizer_end(t);
    return end >= 0 ? end : size < vocab ? size : -1;
}

/* A table that both texts share has the tokens of either. */
static dra_status take_src_vocab(const cli_pairs *p, const dra_tokenizer *t, dra_model_config *c,
                                 dra_error *err)
{
    dra_tokenizer   *src = NULL;
    char             name[64], value[32];
    const cli_source s = {.tokenizer = p->src_tokenizer};
    dra_status       st = s.tokenizer ? cli_tokenizer_open(&s, 0, &src, err) : DRA_OK;
    int64_t          V = st == DRA_OK ? dra_tokenizer_size(src ? src : t) : 0;
    dra_tokenizer_destroy(src);
    if (c->source.shared && V > c->vocab) c->vocab = V;
    if (c->source.shared) V = c->vocab;
    snprintf(name, sizeof name, "%s.vocab", c->context_stack->name);
    snprintf(value, sizeof value, "%lld", (long long)V);
    return st == DRA_OK ? dra_model_config_set(c, name, value, err) : st;
}

dra_status cli_take_vocab(const cli_pairs *p, const dra_tokenizer *t, dra_model_config *c,
                          dra_error *err)
{
    const dra_model_config *from = c->context_stack;
    const bool              whole = c->visible == DRA_VISIBLE_BIDIRECTIONAL;
    c->vocab = dra_tokenizer_size(t) + (whole || (from && dra_tokenizer_end(t) < 0));
    return from && from->source.kind == DRA_SOURCE_TOKENS ? take_src_vocab(p, t, c, err) : DRA_OK;
}

dra_status cli_examples_open(const cli_list *files, const cli_pairs *p,
                             const dra_model_config *model, const dra_tokenizer *tokenizer,
                             dra_examples **out, dra_error *err)
{
    const bool pairs = cli_are_pairs(files, p, model), both = model->context_stack || p->src_key;
    dra_tokenizer *src = NULL;
    dra_status     st = pairs ? open_src_tokenizer(p, model, &src, err) : DRA_OK;
    const int64_t  end = pairs && model->context_stack ? cli_text_end(tokenizer, model->vocab) : 0;
    /* Without a source there is only what is predicted. */
    const dra_example_text texts[] = {
        {"tgt", p->tgt_key, tokenizer, true, end > 0 ? (int32_t)end : 0},
        {"src", p->src_key, src ? src : tokenizer, false, 0},
    };
    const dra_examples_config c = {.B = 1,
                                   .n_paths = (int)files->count,
                                   .paths = files->text,
                                   .n_texts = both ? 2 : 1,
                                   .texts = texts};
    *out = NULL;
    if (st == DRA_OK && files->count) st = dra_examples_open(&c, out, err);
    dra_tokenizer_destroy(src);
    return st;
}
