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

bool cli_are_examples(const cli_list *files, const cli_pairs *p, const dra_model_config *model)
{
    return cli_are_pairs(files, p, model) || dra_examples_are((int)files->count, files->text);
}

/* The tokenizer of sources, where it is another one. */
static dra_status open_src_tokenizer(const cli_pairs *p, const dra_model_config *model,
                                     dra_tokenizer **out, dra_error *err)
{
    const cli_source s = {.tokenizer = p->src_tokenizer};
    const int64_t    V = model->context_stack ? model->context_stack->vocab : model->vocab;
    return p->src_tokenizer ? cli_tokenizer_open(&s, V, out, err) : DRA_OK;
}

dra_status cli_examples_open(const cli_list *files, const cli_pairs *p,
                             const dra_model_config *model, const dra_tokenizer *tokenizer,
                             dra_examples **out, dra_error *err)
{
    const bool pairs = cli_are_pairs(files, p, model), both = model->context_stack || p->src_key;
    dra_tokenizer *src = NULL;
    dra_status     st = pairs ? open_src_tokenizer(p, model, &src, err) : DRA_OK;
    /* Without a source there is only what is predicted. */
    const dra_example_text texts[] = {
        {"tgt", p->tgt_key, tokenizer, true},
        {"src", p->src_key, src ? src : tokenizer, false},
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
