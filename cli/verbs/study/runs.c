/* The runs of a study: their names and commands, groups of them, and which are wanted. */
#include "study.h"
#include "options/value.h"
#include "verbs/sweep/command.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a run ----------------------------------------------------------------------------------- */

bool cli_study_run_at(const cli_study *s, size_t block, int64_t number, cli_study_run *out)
{
    const cli_study_block *b = &s->blocks[block];
    char                   name[CLI_SWEEP_NAME];
    *out = (cli_study_run){.study = s, .block = b, .number = number};
    cli_sweep_name(&b->over, number, name);
    const int n = snprintf(out->name, sizeof out->name, "%s/%s", b->name, name);
    for (size_t i = 0; b->model >= 0 && i < s->n_models; i++)
        if (strcmp(s->models[i].name, cli_sweep_value(&b->over, b->model, number)) == 0)
            out->model = &s->models[i];
    return n > 0 && (size_t)n < sizeof out->name - 1 && strlen(name) < CLI_SWEEP_NAME - 2;
}

/* ---- commands -------------------------------------------------------------------------------- */

const char *cli_study_number(const json_t *x, char room[CLI_NUMBER])
{
    if (!json_is_integer(x)) return cli_json_shortest(json_number_value(x), room);
    snprintf(room, CLI_NUMBER, "%lld", (long long)json_integer_value(x));
    return room;
}

/* What $NAME stands for; NULL: no such name. Numbers are written to `room`. */
static const char *find_name(const cli_study_run *r, const cli_study_places *p, const char *name,
                             char room[CLI_NUMBER])
{
    const struct {
        const char *name, *value;
    } places[] = {
        {"$config", p->config}, {"$out", p->out}, {"$corpus", p->corpus}, {"$study", p->study}};
    for (size_t i = 0; i < COUNT(places); i++)
        if (strcmp(places[i].name + 1, name) == 0)
            return places[i].value ? places[i].value : places[i].name;
    for (int i = 0; i < r->block->over.n; i++)
        if (strcmp(r->block->over.axis[i].name, name) == 0)
            return cli_sweep_value(&r->block->over, i, r->number);
    const json_t *x = json_object_get(r->study->scale, name);
    if (json_is_number(x)) return cli_study_number(x, room);
    return json_string_value(x);
}

/* The name after a dollar; its length, 0: there is none. */
static size_t read_name(const char *text, char name[64])
{
    size_t n = 0;
    while (n < 63 && (isalnum((unsigned char)text[n]) || text[n] == '_')) n++;
    memcpy(name, text, n);
    name[n] = '\0';
    return n;
}

char *cli_study_command(const cli_study_run *r, const cli_study_places *p, size_t i, dra_error *err)
{
    const char *text = json_string_value(json_array_get(r->block->commands, i));
    char       *out = NULL, name[64], room[CLI_NUMBER];
    size_t      bytes = 0;
    if (!text) return NULL;
    FILE *f = dra_stream_memory(&out, &bytes);
    bool  ok = f != NULL;
    if (!ok) cli_error(err, DRA_ERR_MEMORY, "out of memory");
    while (ok && *text) {
        if (*text != '$') {
            fputc(*text++, f);
            continue;
        }
        text += 1 + read_name(text + 1, name);
        const char *value = find_name(r, p, name, room);
        ok = value != NULL;
        if (ok) fputs(value, f);
    }
    if (f && !ok)
        cli_error(err, DRA_ERR_VALUE,
                  "%.200s: block %.60s: $%.60s is no axis of it and no value of scale %.60s",
                  r->study->path, r->block->name, name, r->study->scale_name);
    if (f && fclose(f) != 0 && ok) ok = cli_error(err, DRA_ERR_MEMORY, "out of memory") == DRA_OK;
    if (ok) return out;
    free(out);
    return NULL;
}

double cli_study_product(const cli_study_run *r, const char *text)
{
    double x = 1, one;
    char   part[64], room[CLI_NUMBER];
    if (!text) return NAN;
    for (;;) {
        const size_t n = strcspn(text, "*");
        snprintf(part, sizeof part, "%.*s", (int)n, text);
        const char *value = part[0] == '$' ? find_name(r, &(cli_study_places){0}, part + 1, room)
                                           : part;
        if (!value || !cli_read_real(value, &one)) return NAN;
        x *= one;
        if (!text[n]) return x;
        text += n + 1;
    }
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int64_t count_of(const cli_study_block *b, int axis)
{
    return axis < 0 ? 1 : b->over.axis[axis].count;
}

int64_t cli_study_groups(const cli_study_block *b)
{
    return cli_sweep_runs(&b->over) / count_of(b, b->seed) / count_of(b, b->tune);
}

/* How far apart runs are whose values of an axis follow each other. */
static int64_t stride_of(const cli_study_block *b, int axis)
{
    int64_t n = 1;
    for (int i = axis + 1; i < b->over.n; i++) n *= b->over.axis[i].count;
    return n;
}

static int64_t place_of(const cli_study_block *b, int axis, int64_t run)
{
    return axis < 0 ? 0 : run / stride_of(b, axis) % b->over.axis[axis].count;
}

/* The run with other places of seed and of what is tuned. */
static int64_t move_run(const cli_study_block *b, int64_t run, int64_t seed, int64_t tune)
{
    if (b->seed >= 0) run += (seed - place_of(b, b->seed, run)) * stride_of(b, b->seed);
    if (b->tune >= 0) run += (tune - place_of(b, b->tune, run)) * stride_of(b, b->tune);
    return run;
}

/* The i-th run that has the first seed and the first tuned value. */
static int64_t first_run(const cli_study_block *b, int64_t i)
{
    for (int64_t run = 0;; run++)
        if (place_of(b, b->seed, run) == 0 && place_of(b, b->tune, run) == 0 && i-- == 0)
            return run;
}

static double score_at(const cli_study *s, size_t block, const cli_study_lines *l, int64_t number,
                       bool *done)
{
    cli_study_run  r;
    cli_study_line line;
    *done = cli_study_run_at(s, block, number, &r) && cli_study_line_of(l, &r, &line);
    return *done ? line.score : NAN;
}

static bool is_better(const cli_study_block *b, double x, double than)
{
    return isfinite(x) && (!isfinite(than) || (b->lowest ? x < than : x > than));
}

/* The best value of what is tuned, once all of them have a line; -1: not yet, or none has a
 * score. */
static int64_t find_best(const cli_study *s, size_t block, const cli_study_lines *l, int64_t run)
{
    const cli_study_block *b = &s->blocks[block];
    int64_t                best = -1;
    double                 x = NAN;
    bool                   done;
    if (b->tune < 0) return 0;
    for (int64_t k = 0; k < count_of(b, b->tune); k++) {
        const double y = score_at(s, block, l, move_run(b, run, 0, k), &done);
        if (!done) return -1;
        if (is_better(b, y, x)) best = k, x = y;
    }
    return best;
}

/* Quantiles of Student's t, 97.5 %, of n - 1 degrees of freedom. */
static double student_quantile(int64_t n)
{
    static const double t[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
    return n < 2 ? NAN : n - 2 < (int64_t)COUNT(t) ? t[n - 2] : 1.96;
}

static void measure_window(const cli_study *s, size_t block, const cli_study_lines *l,
                           cli_study_group *g)
{
    const cli_study_block *b = &s->blocks[block];
    bool                   done;
    double                 value;
    g->low = g->high = NAN;
    if (b->tune < 0 || g->best < 0 || !isfinite(b->window)) return;
    const double best = score_at(s, block, l, move_run(b, g->first, 0, g->best), &done);
    for (int64_t k = 0; k < count_of(b, b->tune); k++) {
        const double x = score_at(s, block, l, move_run(b, g->first, 0, k), &done);
        if (!(fabs(x - best) <= b->window)) continue;
        if (!cli_read_real(b->over.axis[b->tune].value[k], &value)) continue;
        g->low = fmin(g->low, value); /* of NaN and x: x */
        g->high = fmax(g->high, value);
    }
}

void cli_study_group_at(const cli_study *s, size_t block, const cli_study_lines *l, int64_t i,
                        cli_study_group *out)
{
    const cli_study_block *b = &s->blocks[block];
    const int64_t          run = first_run(b, i), seeds = count_of(b, b->seed);
    double                 sum = 0, squares = 0;
    bool                   done;
    *out = (cli_study_group){.first = run,
                             .best = find_best(s, block, l, run),
                             .wanted = seeds,
                             .mean = NAN,
                             .spread = NAN,
                             .half = NAN};
    measure_window(s, block, l, out);
    if (out->best < 0) return;
    for (int pass = 0; pass < 2; pass++) { /* the mean, then squares */
        for (int64_t k = 0; k < seeds; k++) {
            const double x = score_at(s, block, l, move_run(b, run, k, out->best), &done);
            if (!isfinite(x)) continue;
            if (pass == 0)
                out->n++, sum += x;
            else
                squares += (x - out->mean) * (x - out->mean);
        }
        if (pass == 0 && out->n) out->mean = sum / (double)out->n;
    }
    if (out->n < 2) return;
    out->spread = sqrt(squares / (double)(out->n - 1));
    out->half = student_quantile(out->n) * out->spread / sqrt((double)out->n);
}

bool cli_study_is_wanted(const cli_study *s, size_t block, const cli_study_lines *l, int64_t number)
{
    const cli_study_block *b = &s->blocks[block];
    if (place_of(b, b->seed, number) == 0) return true;
    return b->tune < 0 ||
           find_best(s, block, l, move_run(b, number, 0, 0)) == place_of(b, b->tune, number);
}

int64_t cli_study_count(const cli_study_block *b)
{
    return cli_study_groups(b) * (count_of(b, b->tune) + count_of(b, b->seed) - 1);
}

void cli_study_group_name(const cli_study_block *b, const cli_study_group *g, char *text,
                          size_t size)
{
    size_t used = 0;
    snprintf(text, size, "all");
    for (int i = 0; i < b->over.n && used < size; i++) {
        if (i == b->seed || i == b->tune || (b->over.axis[i].count < 2 && i != b->model)) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s%s%s", used ? ", " : "",
                                 i == b->model ? "" : b->over.axis[i].name,
                                 i == b->model ? "" : "=", cli_sweep_value(&b->over, i, g->first));
    }
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static bool is_among(const json_t *list, const char *value)
{
    size_t  i;
    json_t *x;
    double  a, b;
    json_array_foreach(list, i, x)
    {
        if (json_is_string(x) && strcmp(json_string_value(x), value) == 0) return true;
        a = json_is_number(x) ? json_number_value(x) : NAN;
        if (cli_read_real(value, &b) && a == b) return true;
    }
    return false;
}

static bool is_of_side(const cli_study_block *b, int64_t run, const json_t *side)
{
    for (int i = 0; i < b->over.n; i++) {
        const json_t *values = json_object_get(side, b->over.axis[i].name);
        if (values && !is_among(values, cli_sweep_value(&b->over, i, run))) return false;
    }
    return true;
}

/* The group of a side with the best mean; n 0: there is none. *whole: all of its groups have all
 * seeds. */
static cli_study_group find_side(const cli_study *s, size_t block, const cli_study_lines *l,
                                 const json_t *side, bool *whole)
{
    const cli_study_block *b = &s->blocks[block];
    cli_study_group        best = {.mean = NAN}, g;
    *whole = true;
    for (int64_t i = 0; i < cli_study_groups(b); i++) {
        if (!is_of_side(b, first_run(b, i), side)) continue;
        cli_study_group_at(s, block, l, i, &g);
        *whole = *whole && g.n == g.wanted;
        if (is_better(b, g.mean, best.mean)) best = g;
    }
    return best;
}

static double pool_spreads(const cli_study_group *a, const cli_study_group *b)
{
    const double x = isfinite(a->spread) ? a->spread : NAN;
    const double y = isfinite(b->spread) ? b->spread : NAN;
    return sqrt((x * x * (double)(a->n - 1) + y * y * (double)(b->n - 1)) /
                (double)(a->n + b->n - 2));
}

static const char *apply_rule(bool above, double d, double margin, double spread)
{
    if (above && d > margin && d > 2 * spread) return "holds";
    if (above && d <= margin && (2 * spread <= margin || d < 0)) return "refuted";
    if (!above && d >= -margin) return "holds";
    if (!above && d < -margin && -d > 2 * spread) return "refuted";
    return "open";
}

/* The block of a claim's other side: its own, but for `against_block`. */
static size_t other_block(const cli_study *s, const json_t *claim, size_t own)
{
    const char *name = json_string_value(json_object_get(claim, "against_block"));
    for (size_t i = 0; name && i < s->n_blocks; i++)
        if (strcmp(s->blocks[i].name, name) == 0) return i;
    return own;
}

void cli_study_judge(const cli_study *s, const cli_study_lines *l, const json_t *claim,
                     cli_study_verdict *out)
{
    const char  *block = json_string_value(json_object_get(claim, "block"));
    const char  *rule = json_string_value(json_object_get(claim, "rule"));
    const double margin = json_number_value(json_object_get(claim, "margin"));
    *out = (cli_study_verdict){.word = "open", .of = NAN, .against = NAN, .spread = NAN};
    for (size_t i = 0; i < s->n_blocks; i++) {
        const cli_study_block *b = &s->blocks[i];
        bool                   whole, other;
        if (strcmp(b->name, block) != 0) continue;
        const size_t          k = other_block(s, claim, i);
        const cli_study_group x = find_side(s, i, l, json_object_get(claim, "of"), &whole);
        const cli_study_group y = find_side(s, k, l, json_object_get(claim, "against"), &other);
        out->of = x.mean;
        out->against = y.mean;
        if (x.n) cli_study_group_name(b, &x, out->of_name, sizeof out->of_name);
        if (y.n)
            cli_study_group_name(&s->blocks[k], &y, out->against_name, sizeof out->against_name);
        if (strcmp(rule, "times") == 0) {
            if (whole && other && x.n && y.n)
                out->word = x.mean >= margin * y.mean ? "holds" : "refuted";
            return;
        }
        if (x.n < 2 || y.n < 2) return;
        out->spread = pool_spreads(&x, &y);
        if (whole && other)
            out->word = apply_rule(strcmp(rule, "above") == 0,
                                   b->lowest ? y.mean - x.mean : x.mean - y.mean, margin,
                                   out->spread);
    }
}
