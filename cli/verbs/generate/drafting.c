/* Speculation as an option. */
#include "drafting.h"

#include <string.h>

#include "search.h"

int cli_draft_check(const char *verb, const cli_draft_args *a)
{
    if (!a->most || a->from) return CLI_OK;
    return cli_misused(verb, "--draft-tokens: expected --draft");
}

dra_status cli_draft_open(const cli_draft_args *a, const cli_source *from,
                          const dra_tokenizer *tokenizer, cli_drafting *out, dra_error *err)
{
    if (!a->from) return DRA_OK;
    out->draft.most = a->most;
    if (strcmp(a->from, "ngram") == 0) {
        out->draft.text = true;
        return DRA_OK;
    }
    const cli_source source = {.model = a->from,
                               .plugins = from->plugins,
                               .dtype = from->dtype,
                               .skip_hash = from->skip_hash};
    dra_status       st = cli_model_weights(&source, &out->model, err);
    if (st == DRA_OK) st = cli_same_tokenizer("the draft", a->from, tokenizer, err);
    out->draft.model = out->model.model;
    out->draft.weights = out->model.weights;
    return st;
}

void cli_draft_close(cli_drafting *d)
{
    cli_model_close(&d->model);
    *d = (cli_drafting){0};
}
