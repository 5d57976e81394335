/* A long prompt is read in pieces, so that it can be seen how far it is. */
#include "prompt_read.h"

enum { LONG = 8 * DRA_GENERATOR_PIECE };

/* Whether pieces read as the whole does: not where tokens see later ones, nor where what is refused
 * must be refused before anything is read. */
static bool may_split(const dra_model *m, const dra_ids *p)
{
    const dra_model_config *c = dra_model_config_of(m);
    if (p->n < LONG || c->visible || c->positions == DRA_POSITIONS_LEARNED) return false;
    for (size_t i = 0; i < p->n; i++)
        if (p->data[i] < 0 || p->data[i] >= c->vocab) return false;
    return true;
}

dra_status cli_prompt_read(dra_generator *g, const dra_model *m, int64_t row, const dra_ids *prompt,
                           cli_status *status, dra_error *err)
{
    dra_status st = DRA_OK;
    if (!may_split(m, prompt)) return dra_generator_read(g, row, prompt->n, prompt->data, err);
    cli_status_restart(status);
    for (size_t at = 0; at < prompt->n && st == DRA_OK; at += DRA_GENERATOR_PIECE) {
        const size_t left = prompt->n - at;
        st = dra_generator_read(g, row, left < DRA_GENERATOR_PIECE ? left : DRA_GENERATOR_PIECE,
                                prompt->data + at, err);
        cli_status_step(status, "reading the prompt", (double)at / (double)prompt->n);
    }
    cli_status_clear(status);
    return st;
}
