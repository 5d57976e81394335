/* The headline, computed: which run ended with the lowest loss, by how much and at what cost. */
#include "page.h"

#include <math.h>
#include <string.h>

typedef struct measure {
    const char *series, *name;
} measure;

/* A step's training loss is noisy: its last tenth counts. */
static const measure measures[] = {{"eval_loss", "evaluation loss"},
                                   {"loss", "mean training loss"}};

static double end_of(const cli_record *r, const measure *m)
{
    return m == &measures[0] ? page_last(r, m->series) : page_end(r, m->series);
}

/* What most runs have: an evaluation where all that trained have one, else their training. */
static const measure *find_measure(const cli_page *p)
{
    bool evaluated = true, trained = false;
    for (size_t i = 0; i < p->n; i++) {
        const cli_record *r = &p->records[i];
        const bool        has = isfinite(end_of(r, &measures[1]));
        evaluated = evaluated && (!has || isfinite(end_of(r, &measures[0])));
        trained = trained || has || isfinite(end_of(r, &measures[0]));
    }
    return trained ? &measures[evaluated ? 0 : 1] : NULL;
}

/* Losses of other vocabularies count other things. */
static bool is_comparable(const cli_page *p)
{
    int64_t vocab = 0;
    for (size_t i = 0; i < p->n; i++) {
        const dra_model *m = p->records[i].model;
        if (!m || !p->records[i].n_series) continue;
        if (vocab && dra_model_config_of(m)->vocab != vocab) return false;
        vocab = dra_model_config_of(m)->vocab;
    }
    return true;
}

/* The two lowest; n: there is none. */
static void find_best(const cli_page *p, const measure *m, size_t *first, size_t *second)
{
    *first = *second = p->n;
    for (size_t i = 0; i < p->n; i++) {
        const double x = end_of(&p->records[i], m);
        if (!isfinite(x)) continue;
        if (*first == p->n || x < end_of(&p->records[*first], m)) {
            *second = *first;
            *first = i;
        } else if (*second == p->n || x < end_of(&p->records[*second], m)) {
            *second = i;
        }
    }
}

static void write_cost(FILE *out, const cli_record *r)
{
    const double tokens = page_last(r, "tokens"), seconds = page_last(r, "seconds");
    char         text[32];
    if (isfinite(tokens)) fprintf(out, " after %s tokens", svg_number(tokens, text));
    if (isfinite(seconds)) fprintf(out, " in %s", page_time(seconds, text));
}

/* Less or more time than the other, where it is known and not the same. */
static void compare_cost(FILE *out, const cli_record *a, const cli_record *b)
{
    const double x = page_last(a, "seconds"), y = page_last(b, "seconds");
    if (!(x > 0) || !(y > 0)) return;
    const double percent = 100 * fabs(x - y) / y;
    if (percent < 1)
        fputs("; both took the same time", out);
    else if (percent < 100)
        fprintf(out, ", %.0f&nbsp;%% %s time than ", percent, x < y ? "less" : "more");
    else
        fprintf(out, ", %.2g times the time of ", x / y);
    if (percent >= 1) svg_text(out, b->name);
}

/* The seed of a run, which is 0 unless its settings say another; NULL: it has no settings. */
static const char *seed_of(const cli_record *r)
{
    const char *seed = cli_facts_find(&r->settings, CLI_FACT_TRAINING, "seed");
    for (size_t i = 0; i < r->settings.n && !seed; i++)
        if (r->settings.all[i].group == CLI_FACT_TRAINING) seed = "0";
    return seed;
}

/* All runs had the same seed, so that chance may be the reason of a difference. */
static bool is_one_seed(const cli_page *p)
{
    const char *first = seed_of(&p->records[0]);
    for (size_t i = 0; i < p->n; i++) {
        const char *seed = seed_of(&p->records[i]);
        if (!first || !seed || strcmp(first, seed) != 0) return false;
    }
    return true;
}

/* What runs of different lengths ended with says less about what they are. */
static void write_lengths(const cli_page *p, const measure *m)
{
    const char *names[] = {"tokens", "step"};
    for (size_t k = 0; k < COUNT(names); k++) {
        double least = NAN, most = NAN;
        char   a[32], b[32];
        for (size_t i = 0; i < p->n; i++) {
            const cli_record *r = &p->records[i];
            if (!isfinite(end_of(r, m))) continue;
            const double x = k ? page_last_step(r) : page_last(r, names[k]);
            least = fmin(least, x);
            most = fmax(most, x);
        }
        if (!isfinite(most)) continue;
        if (most > 1.01 * least)
            fprintf(p->out, " The runs are not equally long: %s to %s %s.", svg_number(least, a),
                    svg_number(most, b), k ? "steps" : "tokens");
        return;
    }
}

static void write_several(const cli_page *p, const measure *m, size_t first, size_t second)
{
    const cli_record *a = &p->records[first], *b = &p->records[second];
    const double      x = end_of(a, m), y = end_of(b, m);
    fputs("<p class=\"finding\"><b>", p->out);
    svg_text(p->out, a->name);
    fprintf(p->out, "</b> ended with the lowest %s: <b>%.4f</b>, ", m->name, x);
    if (y > x)
        fprintf(p->out, "%.2g (%.2g&nbsp;%%) below ", y - x, 100 * (y - x) / fabs(y));
    else
        fputs("the same as ", p->out);
    svg_text(p->out, b->name);
    fprintf(p->out, " (%.4f)%s,", y, is_one_seed(p) ? ", of one seed each" : "");
    write_cost(p->out, a);
    compare_cost(p->out, a, b);
    fputs(".", p->out);
    write_lengths(p, m);
    fputs("</p>\n", p->out);
}

static void write_one(const cli_page *p, const measure *m, size_t i)
{
    const cli_record *r = &p->records[i];
    const cli_series *s = cli_record_series(r, m->series, false);
    const double      least = page_least(r, m->series), last = end_of(r, m);
    size_t            first = 0, end = s->n;
    while (end > 1 && !isfinite(s->y[end - 1])) end--;
    while (first + 1 < end && !isfinite(s->y[first])) first++;
    fprintf(p->out, "<p class=\"finding\">The %s ended at <b>%.4f</b>", m->name, last);
    if (m == &measures[0]) fprintf(p->out, " at step %.0f", s->x[end - 1]);
    if (first + 1 < end) fprintf(p->out, ", from %.4f at step %.0f,", s->y[first], s->x[first]);
    write_cost(p->out, r);
    if (m == &measures[0] && least < last) fprintf(p->out, "; the lowest was %.4f", least);
    fputs(".</p>\n", p->out);
}

void page_finding(const cli_page *p)
{
    size_t         first, second;
    const measure *m = find_measure(p);
    if (!m) return;
    find_best(p, m, &first, &second);
    if (first == p->n) return;
    if (second == p->n)
        write_one(p, m, first);
    else if (is_comparable(p))
        write_several(p, m, first, second);
    else
        fputs("<p class=\"finding\">These runs have vocabularies of different sizes: their losses "
              "cannot be compared.</p>\n",
              p->out);
}
