/* What quantising loses. Both models read the same text; then the first does it again for each of
 * its parts, with the quantised numbers of that part alone. */
#include "quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 512, SOME = 512, TEXT_MOST = 1 << 26 }; /* SOME: tokens for single parts */

static const char short_text[] =
    "The harbour lies at the end of a long valley. In the morning the boats come back with the "
    "night's catch, and by seven o'clock the market is full: there are baskets of herring and "
    "mackerel, boxes of crabs, and, in good years, a few large cod that everybody wants to see. "
    "Old Mrs Turner, who has sold bread here for forty years, says that nothing has changed but "
    "the prices. Her grandson, who studies in the city and comes home for the summer, does not "
    "agree. \"When I was small,\" he says, \"there were thirty boats. Now there are nine.\"\n\n"
    "What happens to the fish after that is quickly told. About a third of it is eaten within ten "
    "miles of the harbour; the rest is packed in ice and driven to the railway, where the train at "
    "half past nine takes it to the north. In 1987 the line was closed for two winters, because a "
    "bridge had been washed away, and people still talk about the smell. Since then the company "
    "has rebuilt the bridge, the road and the station, and has promised never to be late again.\n";

typedef struct work {
    const cli_quant_config *c;
    cli_model               old, new;
    int32_t                *ids, *targets;
    int64_t                 n, window;
} work;

static dra_status no_memory(dra_error *err)
{
    return cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

/* ---- the text -------------------------------------------------------------------------------- */

static dra_status read_text(work *w, dra_error *err)
{
    const cli_source        from = {.model = w->c->from, .tokenizer = w->c->tokenizer};
    const dra_model_config *m = dra_model_config_of(w->old.model);
    char                   *file = NULL;
    size_t                  bytes = sizeof short_text - 1;
    dra_ids                 ids = {0};
    dra_status              st = cli_model_tokenizer(&from, &w->old, err);
    if (st == DRA_OK && w->c->text) st = dra_file_read(w->c->text, TEXT_MOST, &file, &bytes, err);
    if (st == DRA_OK)
        st = dra_encode_as(w->old.tokenizer, file ? file : short_text, bytes,
                           DRA_ENCODE_PLAIN | DRA_ENCODE_BEGIN, &ids, err);
    free(file);
    w->n = (int64_t)ids.n;
    w->ids = ids.data;
    w->targets = calloc(ids.n + 1, sizeof *w->targets);
    if (st == DRA_OK && !w->targets) st = no_memory(err);
    if (st == DRA_OK && w->n < 2)
        st = cli_error(err, DRA_ERR_VALUE, "%.200s: expected two tokens or more",
                       w->c->text ? w->c->text : "the short text");
    for (int64_t i = 0; i + 1 < w->n && st == DRA_OK; i++) w->targets[i] = w->ids[i + 1];
    if (st == DRA_OK) w->targets[w->n - 1] = -1;
    w->window = m->positions == DRA_POSITIONS_LEARNED && m->context < WINDOW ? m->context : WINDOW;
    return st;
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* The mean loss of the first n tokens, in windows that start from nothing. */
static dra_status loss_of(const work *w, const cli_model *m, int64_t n, double *out, dra_error *err)
{
    const dra_view   view = {.model = m->model, .losses = true};
    const dra_module module = dra_view_module(&view);
    dra_reader      *r = NULL;
    dra_states      *s = NULL;
    int64_t          count = 0;
    dra_status       st = dra_reader_create(m->device, &module, &r, err);
    if (st == DRA_OK) st = dra_weights_bind(m->weights, r, err);
    if (st == DRA_OK) st = dra_states_create(m->device, dra_model_state(m->model), 1, &s, err);
    *out = 0;
    for (int64_t at = 0; at < n && st == DRA_OK; at += w->window) {
        const int64_t   some = n - at < w->window ? n - at : w->window;
        const size_t    bytes = (size_t)some * sizeof *w->ids;
        const dra_named in[] = {{"ids", w->ids + at, bytes}, {"targets", w->targets + at, bytes}};
        st = dra_states_reset(s, -1, err);
        if (st == DRA_OK) st = dra_reader_read(r, s, some, NULL, 2, in, err);
        const dra_real *losses = st == DRA_OK ? dra_reader_result(r, "losses") : NULL;
        if (st == DRA_OK && !losses) st = no_memory(err);
        for (int64_t i = 0; i < some && st == DRA_OK; i++) {
            if (w->targets[at + i] < 0) continue;
            *out += (double)losses[i];
            count++;
        }
    }
    if (count) *out /= (double)count;
    dra_states_destroy(s);
    dra_reader_destroy(r);
    return st;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Parameter i of the old model in the new one; -1: it has none like it. */
static int new_one(const work *w, int i)
{
    const dra_spec *p = dra_specs_at(dra_model_params(w->old.model), i);
    const int       k = dra_specs_find(dra_model_params(w->new.model), p->name);
    if (k < 0) return k;
    return dra_shape_equal(&dra_specs_at(dra_model_params(w->new.model), k)->shape, &p->shape) ? k
                                                                                               : -1;
}

static bool is_quantised(const work *w, int i)
{
    const int        k = new_one(w, i);
    dra_param_layout form;
    if (k < 0) return false;
    dra_weights_stored(w->new.weights, k, &form);
    return dra_dtype_get(form.dtype)->block_elements > 1;
}

/* "layers.3" of "layers.3.ff.W_up", or all of it. */
static size_t part_of(const char *name)
{
    if (strncmp(name, "layers.", 7) != 0) return strlen(name);
    const char *end = strchr(name + 7, '.');
    return end ? (size_t)(end - name) : strlen(name);
}

static bool same_part(const char *a, const char *b)
{
    return part_of(a) == part_of(b) && strncmp(a, b, part_of(a)) == 0;
}

static double error_of(const dra_real *a, const dra_real *b, int64_t n)
{
    double lost = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        lost += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)a[i] * (double)a[i];
    }
    return all > 0 ? sqrt(lost / all) : 0;
}

/* Exchanges the numbers of a part of the old model and what `kept` has of them. */
static void exchange_numbers(dra_real *a, dra_real *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const dra_real x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

/* Puts the new numbers of all that belongs to the part of parameter `first` into the old model, or
 * takes them out again: kept[i] has what is not there. */
static dra_status swap_part(work *w, int first, dra_real **kept, dra_error *err)
{
    const dra_specs *params = dra_model_params(w->old.model);
    const char      *name = dra_specs_at(params, first)->name;
    for (int i = first; i < dra_specs_count(params); i++) {
        const dra_spec *p = dra_specs_at(params, i);
        const int64_t   n = dra_shape_count(&p->shape);
        if (!same_part(p->name, name) || !(kept[i] || is_quantised(w, i))) continue;
        dra_real *old = dra_weights_edit(w->old.weights, i);
        if (!kept[i]) {
            const dra_real *made = dra_weights_at(w->new.weights, new_one(w, i));
            kept[i] = made ? malloc((size_t)n * sizeof *kept[i] + 1) : NULL;
            if (kept[i]) memcpy(kept[i], made, (size_t)n * sizeof *kept[i]);
        }
        if (!old || !kept[i]) return no_memory(err);
        exchange_numbers(old, kept[i], n);
    }
    return DRA_OK;
}

static dra_status measure_part(work *w, int first, double before, dra_real **kept,
                               cli_quant_part *out, bool language, dra_error *err)
{
    const dra_specs *params = dra_model_params(w->old.model);
    const char      *name = dra_specs_at(params, first)->name;
    *out = (cli_quant_part){0};
    snprintf(out->name, sizeof out->name, "%.*s", (int)part_of(name), name);
    dra_status st = swap_part(w, first, kept, err);
    for (int i = first; i < dra_specs_count(params) && st == DRA_OK; i++) {
        const dra_spec *p = dra_specs_at(params, i);
        if (!same_part(p->name, name) || !kept[i]) continue;
        const double e = error_of(kept[i], dra_weights_at(w->old.weights, i),
                                  dra_shape_count(&p->shape));
        if (e < out->error) continue;
        out->error = e;
        snprintf(out->worst, sizeof out->worst, "%s", p->name);
    }
    if (st == DRA_OK && language)
        st = loss_of(w, &w->old, w->n < SOME ? w->n : SOME, &out->loss, err);
    out->loss -= before;
    return st == DRA_OK ? swap_part(w, first, kept, err) : st;
}

static int by_loss(const void *a, const void *b)
{
    const cli_quant_part *x = a, *y = b;
    if (x->loss != y->loss) return x->loss > y->loss ? -1 : 1;
    return x->error > y->error ? -1 : x->error < y->error;
}

static dra_status measure_parts(work *w, cli_quant_report *out, dra_error *err)
{
    const dra_specs *params = dra_model_params(w->old.model);
    const int        P = dra_specs_count(params);
    dra_real       **kept = calloc((size_t)P + 1, sizeof *kept);
    cli_quant_part  *part = calloc((size_t)P + 1, sizeof *part);
    double           before = 0;
    int              n = 0;
    dra_status       st = kept && part ? DRA_OK : no_memory(err);
    if (st == DRA_OK && out->language)
        st = loss_of(w, &w->old, w->n < SOME ? w->n : SOME, &before, err);
    for (int i = 0; i < P && st == DRA_OK; i++)
        if (is_quantised(w, i) && !kept[i])
            st = measure_part(w, i, before, kept, &part[n++], out->language, err);
    if (st == DRA_OK) qsort(part, (size_t)n, sizeof *part, by_loss);
    out->parts = n < CLI_QUANT_PARTS ? n : CLI_QUANT_PARTS;
    for (int i = 0; i < out->parts && st == DRA_OK; i++) out->part[i] = part[i];
    for (int i = 0; i < P && kept; i++) free(kept[i]);
    free(kept);
    free(part);
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Bytes that generating a token reads. */
static double bytes_of(const cli_model *m)
{
    const dra_specs *params = dra_model_params(m->model);
    double           all = 0;
    for (int i = 0; i < dra_specs_count(params); i++) {
        dra_param_layout form;
        dra_weights_stored(m->weights, i, &form);
        const dra_dtype_info *t = dra_dtype_get(form.dtype);
        all += (double)dra_shape_count(&dra_specs_at(params, i)->shape) * (double)t->block_bytes /
               (double)t->block_elements;
    }
    return all;
}

dra_status cli_quant_measure(const cli_quant_config *c, cli_quant_report *out, dra_error *err)
{
    const cli_source old = {.model = c->from, .threads = c->threads, .skip_hash = true};
    const cli_source new = {.model = c->to, .threads = c->threads, .skip_hash = true};
    work       w = {.c = c};
    dra_status st = cli_model_open(&old, &w.old, err);
    if (st == DRA_OK) st = cli_model_open(&new, &w.new, err);
    *out = (cli_quant_report){0};
    if (st == DRA_OK) {
        const dra_model_config *m = dra_model_config_of(w.old.model);
        out->language = dra_model_config_is_language(m) && m->visible != DRA_VISIBLE_BIDIRECTIONAL;
        out->bytes_before = bytes_of(&w.old);
        out->bytes_after = bytes_of(&w.new);
        if (out->language && !c->text && !c->tokenizer && m->vocab != 256)
            out->language = dra_tokenizer_is_in(c->from); /* ids without a text: errors only */
    }
    if (st == DRA_OK && out->language) st = read_text(&w, err);
    if (st == DRA_OK && out->language) {
        out->tokens = w.n - 1;
        st = loss_of(&w, &w.old, w.n, &out->before, err);
    }
    if (st == DRA_OK && out->language) st = loss_of(&w, &w.new, w.n, &out->after, err);
    if (st == DRA_OK && out->language &&
        dra_weights_round_activations(w.new.weights, NULL) == DRA_OK) {
        out->rounds = true;
        st = loss_of(&w, &w.new, w.n, &out->rounded, err);
    }
    if (st == DRA_OK) st = measure_parts(&w, out, err);
    free(w.ids);
    free(w.targets);
    cli_model_close(&w.old);
    cli_model_close(&w.new);
    return st;
}

/* ---- the answer ------------------------------------------------------------------------------ */

void cli_quant_print(const cli_quant_report *r)
{
    printf("bytes of weights   %.4g MB -> %.4g MB\n", 1e-6 * r->bytes_before,
           1e-6 * r->bytes_after);
    if (r->language)
        printf("perplexity         %.6g -> %.6g (%+.2f %%), %lld tokens\n", exp(r->before),
               exp(r->after), 100 * (exp(r->after - r->before) - 1), (long long)r->tokens);
    if (r->rounds)
        printf("activations q8     %.6g (%+.2f %%)\n", exp(r->rounded),
               100 * (exp(r->rounded - r->before) - 1));
    if (!r->language)
        puts("perplexity         - (no text for it: no language model, or no tokenizer)");
    if (r->parts) puts("each alone         loss, nats   its worst tensor, relative error");
    for (int i = 0; i < r->parts; i++)
        printf("%-18s %-+12.3g %s %.3g\n", r->part[i].name, r->part[i].loss, r->part[i].worst,
               r->part[i].error);
}

void cli_quant_json(const cli_quant_report *r)
{
    char room[4][CLI_NUMBER];
    printf(", \"bytes\": [%.0f, %.0f]", r->bytes_before, r->bytes_after);
    if (r->language)
        printf(", \"tokens\": %lld, \"perplexity\": [%s, %s], \"loss\": [%s, %s]",
               (long long)r->tokens, cli_json_number(exp(r->before), 9, room[0]),
               cli_json_number(exp(r->after), 9, room[1]), cli_json_number(r->before, 9, room[2]),
               cli_json_number(r->after, 9, room[3]));
    if (r->rounds) printf(", \"activations_q8\": %s", cli_json_number(exp(r->rounded), 9, room[0]));
    printf(", \"parts\": [");
    for (int i = 0; i < r->parts; i++) {
        fputs(i ? ", {\"part\": " : "{\"part\": ", stdout);
        cli_json_text(r->part[i].name, stdout);
        printf(", \"loss\": %s, \"worst\": ", cli_json_number(r->part[i].loss, 6, room[0]));
        cli_json_text(r->part[i].worst, stdout);
        printf(", \"error\": %s}", cli_json_number(r->part[i].error, 6, room[1]));
    }
    printf("]");
}
