/* dra forward: texts as rows of a batch, and what is after the end of the shorter ones. */
#include "forward.h"
#include "io/texts.h"

#include <string.h>

int64_t forward_length(const forward_work *w, int64_t b)
{
    return w->in.lengths ? w->in.lengths[b] : w->in.T;
}

/* Where lengths differ, --keep and --resets would not mean the same in all rows. */
static dra_status check_ragged(const forward_work *w, dra_error *err)
{
    const char *what = w->a->keep ? "--keep" : w->a->resets ? "--resets" : NULL;
    if (!what || !w->in.mark) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE, "%s: texts have different lengths, expected %s", what,
                     w->a->keep ? "--positions" : "texts of equal length");
}

dra_status forward_texts_read(forward_work *w, dra_error *err)
{
    const forward_args *a = w->a;
    cli_texts           texts = {0};
    char                list[300];
    if (!dra_model_config_is_language(dra_model_config_of(w->m.model)))
        return cli_error(err, DRA_ERR_VALUE, "--text: expected --inputs, as the model reads %s",
                         cli_named_list(w->m.model, list, sizeof list));
    dra_status st = cli_model_tokenizer(&a->from, &w->m, err);
    if (st == DRA_OK) st = cli_texts_list(&texts, w->m.tokenizer, &a->text, err);
    if (st == DRA_OK) st = cli_texts_inputs(&texts, &w->in, err);
    if (st == DRA_OK) st = check_ragged(w, err);
    if (st == DRA_OK && a->resets) st = cli_resets_add(a->resets, &w->in, err);
    cli_texts_free(&texts);
    return st;
}

static void clear_rows(const forward_work *w, dra_real *x, int64_t width)
{
    for (int64_t b = 0; b < w->in.B; b++) {
        const int64_t n = forward_length(w, b);
        memset(x + (b * w->in.T + n) * width, 0, (size_t)((w->in.T - n) * width) * sizeof *x);
    }
}

void forward_texts_clear(const forward_work *w)
{
    const size_t each = (size_t)(w->in.B * w->in.T * w->C);
    if (!w->in.lengths || !w->in.mark) return;
    clear_rows(w, w->out_hidden, w->C);
    if (w->keep == w->in.T && !w->a->positions) clear_rows(w, w->out_logits, w->V);
    for (int i = 0; i < FORWARD_STACKS; i++)
        for (int64_t l = 0; w->stack[i].wanted && l < w->stack[i].n; l++)
            clear_rows(w, w->stack[i].data + (size_t)l * each, w->C);
}
