/* What the parts of the demo share: headings, lines of text, paths, readers. */
#include "demo.h"
#include "options/units.h"

#include <string.h>

FILE *demo_out(const demo *d) { return d->status.out; }

void demo_heading(demo *d, const char *title)
{
    FILE *out = demo_out(d);
    fprintf(out, "\n%s%d  %s%s\n\n", cli_bold(out), ++d->part, title, cli_plain(out));
    fflush(out);
}

void demo_took(const demo *d, double began)
{
    fprintf(demo_out(d), "  (%.1f s)\n", cli_now() - began);
}

/* ---- lines of text --------------------------------------------------------------------------- */

static void end_word(demo_wrap *w)
{
    enum { WIDTH = 74 };
    if (w->n == 0) return;
    w->word[w->n] = '\0';
    dra_make_shown(w->word);
    if (w->column + 1 + w->n > WIDTH) w->column = 0, fputc('\n', w->out);
    fprintf(w->out, "%s%.*s", w->column ? " " : w->margin, (int)w->n, w->word);
    w->column += w->n + 1;
    w->n = 0;
}

void demo_wrap_text(demo_wrap *w, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const bool blank = text[i] == ' ' || text[i] == '\n';
        if (blank || w->n + 1 == sizeof w->word) end_word(w);
        if (!blank) w->word[w->n++] = text[i] ? text[i] : '?';
    }
}

void demo_wrap_end(demo_wrap *w)
{
    end_word(w);
    fputc('\n', w->out);
    w->column = 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

dra_status demo_path(const demo *d, const char *name, char path[DEMO_PATH], dra_error *err)
{
    if (cli_path(d->out, name, path, DEMO_PATH)) return DRA_OK;
    return cli_error(err, DRA_ERR_FILE, "%.80s...: the path is too long", d->out);
}

/* ---- reading --------------------------------------------------------------------------------- */

dra_status demo_reader_open(const demo *d, const demo_model *m, int64_t keep, demo_reader *r,
                            dra_error *err)
{
    r->view = (dra_view){.model = m->model, .logits = true, .keep = keep};
    const dra_module module = dra_view_module(&r->view);
    dra_status       st = dra_reader_create(d->device, &module, &r->reader, err);
    if (st == DRA_OK) st = dra_weights_bind(m->weights, r->reader, err);
    return st == DRA_OK ? dra_states_create(d->device, module.state, 1, &r->states, err) : st;
}

void demo_reader_close(demo_reader *r)
{
    dra_reader_destroy(r->reader);
    dra_states_destroy(r->states);
    *r = (demo_reader){0};
}

dra_status demo_read(demo_reader *r, int64_t n, const int32_t *ids, dra_error *err)
{
    const dra_named in = {"ids", ids, (size_t)n * sizeof *ids};
    return dra_reader_read(r->reader, r->states, n, NULL, 1, &in, err);
}
