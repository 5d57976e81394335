/* Facts told recently and long ago: unseen stories are read from their start; where a fact returns,
 * the most likely tokens are compared with the real ones. */
#include "demo.h"
#include "verbs/train/progress.h"
#include "options/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- distances ------------------------------------------------------------------------------- */

static const struct {
    const char *name, *ago;
    int64_t     below; /* tokens since the fact was last told */
} ranges[] = {{"below 50", "less than 50", 50},
              {"50 to 200", "50 to 200", 200},
              {"200 to 800", "200 to 800", 800},
              {"above 800", "more than 800", INT64_MAX}};

enum { RANGES = COUNT(ranges), CHUNK = 128 };

typedef struct score {
    int64_t asked, right;
} score;

typedef struct facts {
    score  score[DEMO_MODELS][RANGES];
    double guess[RANGES]; /* expected right answers by guessing among the story's words */
} facts;

static int range_of(int64_t distance)
{
    int i = 0;
    while (distance >= ranges[i].below) i++;
    return i;
}

/* ---- a story --------------------------------------------------------------------------------- */

typedef struct reading {
    demo    *d;
    story    s;
    dra_ids  ids;
    int64_t *first; /* (bytes + 1): the token a byte belongs to */
    int32_t *best;  /* (tokens): the most likely token there, after those before it */
    facts    f;
} reading;

static void reading_free(reading *r)
{
    story_free(&r->s);
    dra_ids_free(&r->ids);
    free(r->first);
    free(r->best);
}

/* Encodes the story and finds the token that each byte belongs to. */
static dra_status open_story(reading *r, const story_config *c, dra_error *err)
{
    const dra_tokenizer *t = r->d->tokenizer;
    size_t               at = 0, bytes;
    story_write(&r->s, c);
    r->ids.n = 0;
    dra_status st = dra_encode_plain(t, r->s.text, r->s.bytes, &r->ids, err);
    free(r->first);
    free(r->best);
    r->first = calloc(r->s.bytes + 1, sizeof *r->first);
    r->best = calloc(r->ids.n + CHUNK, sizeof *r->best);
    if (st == DRA_OK && (r->s.failed || !r->first || !r->best))
        st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < r->ids.n && st == DRA_OK; i++) {
        dra_tokenizer_piece(t, r->ids.data[i], &bytes);
        for (size_t k = 0; k < bytes; k++) r->first[at++] = (int64_t)i;
    }
    if (st == DRA_OK) r->first[at] = (int64_t)r->ids.n;
    return st;
}

static int32_t most_likely(const dra_real *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* Reads the whole story in chunks of one length; the output of padding at the end is ignored. */
static dra_status read_story(reading *r, demo_reader *reader, dra_error *err)
{
    const int64_t V = dra_model_config_of(reader->view.model)->vocab, n = (int64_t)r->ids.n;
    int32_t       part[CHUNK];
    dra_status    st = dra_states_reset(reader->states, -1, err);
    for (int64_t from = 0; from < n && st == DRA_OK; from += CHUNK) {
        for (int64_t i = 0; i < CHUNK; i++) part[i] = from + i < n ? r->ids.data[from + i] : 0;
        st = demo_read(reader, CHUNK, part, err);
        const dra_real *logits = st == DRA_OK ? dra_reader_result(reader->reader, "logits") : NULL;
        for (int64_t i = 0; i < CHUNK && logits && from + i + 1 < n; i++)
            r->best[from + i + 1] = most_likely(logits + i * V, V);
    }
    return st;
}

static void score_story(reading *r, int model)
{
    for (size_t i = 0; i < r->s.n; i++) {
        const story_return *x = &r->s.returns[i];
        const int64_t       from = r->first[x->at], to = r->first[x->at + x->bytes];
        const int           k = range_of(from - r->first[x->told]);
        bool                right = true;
        for (int64_t t = from; t < to; t++) right = right && r->best[t] == r->ids.data[t];
        r->f.score[model][k].asked++;
        r->f.score[model][k].right += right;
        if (model == 0) r->f.guess[k] += 1.0 / x->choices;
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Sentences between the telling and the rest; the largest gap is beyond what was trained. */
static const int gaps[] = {0, 12, 50, 160};

static dra_status read_all(reading *r, dra_error *err)
{
    demo_reader reader[DEMO_MODELS] = {0};
    demo       *d = r->d;
    const int   all = (int)COUNT(gaps) * d->stories;
    dra_status  st = DRA_OK;
    cli_status_restart(&d->status);
    for (int i = 0; i < DEMO_MODELS && st == DRA_OK; i++)
        st = demo_reader_open(d, &d->model[i], 0, &reader[i], err);
    for (int n = 0; n < all && st == DRA_OK && !cli_progress_stopped(); n++) {
        const story_config c = {.seed = demo_seed(d, DEMO_HELD_OUT, 1 + (uint64_t)n),
                                .facts = 5,
                                .gap = gaps[n % (int)COUNT(gaps)],
                                .sentences = 12};
        st = open_story(r, &c, err);
        for (int i = 0; i < DEMO_MODELS && st == DRA_OK; i++) {
            st = read_story(r, &reader[i], err);
            if (st == DRA_OK) score_story(r, i);
        }
        cli_status_step(&d->status, "  reading stories", (n + 1.0) / all);
    }
    cli_status_clear(&d->status);
    for (int i = 0; i < DEMO_MODELS; i++) demo_reader_close(&reader[i]);
    return st;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static double right_share(const score *s)
{
    return s->asked ? (double)s->right / (double)s->asked : NAN;
}

static void write_bar(FILE *out, double x)
{
    enum { WIDTH = 14 };
    const int n = isfinite(x) ? (int)lrint(x * WIDTH) : 0;
    fprintf(out, " %5.1f %% ", 100 * x);
    for (int i = 0; i < WIDTH; i++) fputs(i < n ? "█" : "·", out);
}

static void write_table(const demo *d, const facts *f)
{
    FILE *out = demo_out(d);
    fprintf(out, "  %-12s %6s   %-22s %-23s %s\n", "tokens ago", "asked", d->model[0].name,
            d->model[1].name, "guess");
    for (int k = 0; k < RANGES; k++) {
        const int64_t asked = f->score[0][k].asked;
        if (!asked) continue;
        fprintf(out, "  %-12s %6lld ", ranges[k].name, (long long)asked);
        for (int i = 0; i < DEMO_MODELS; i++) write_bar(out, right_share(&f->score[i][k]));
        fprintf(out, "  %4.1f %%\n", 100 * f->guess[k] / (double)asked);
    }
}

static void write_lines(demo *d, const facts *f)
{
    char room[2][CLI_NUMBER];
    for (int i = 0; i < DEMO_MODELS; i++)
        for (int k = 0; k < RANGES; k++) {
            const score *s = &f->score[i][k];
            if (!s->asked) continue;
            fprintf(d->model[i].lines,
                    "{\"probe\": \"facts, by tokens since they were told\", \"model\": \"%s\", "
                    "\"tokens\": \"%s\", \"accuracy\": %s, \"asked\": %lld, \"guess\": %s}\n",
                    d->model[i].name, ranges[k].name, cli_json_number(right_share(s), 6, room[0]),
                    (long long)s->asked,
                    cli_json_number(f->guess[k] / (double)s->asked, 6, room[1]));
        }
}

/* Which of the two is better here; NULL: the difference is below two standard errors, perhaps
 * chance. */
static const demo_model *better_model(const demo *d, const facts *f, int k)
{
    const score *a = &f->score[0][k], *b = &f->score[1][k];
    const double x = right_share(a), y = right_share(b), n = (double)a->asked;
    const double error = sqrt((x * (1 - x) + y * (1 - y)) / n);
    if (!(fabs(x - y) > 2 * error)) return NULL;
    return &d->model[x > y ? 0 : 1];
}

/* Whether a model beats guessing by more than two standard errors of its share. */
static bool beats_guess(const facts *f, int model, int k)
{
    const score *s = &f->score[model][k];
    const double x = right_share(s), n = (double)s->asked;
    return x > f->guess[k] / n + 2 * sqrt(x * (1 - x) / n);
}

/* Explains the numbers of the nearest and the farthest range. */
static void write_meaning(const demo *d, const facts *f)
{
    FILE *out = demo_out(d);
    for (int k = 0; k < RANGES; k += RANGES - 1) {
        const demo_model *m = better_model(d, f, k);
        if (!f->score[0][k].asked) continue;
        fprintf(out, "  Told %s tokens ago: ", ranges[k].ago);
        if (!beats_guess(f, 0, k) && !beats_guess(f, 1, k))
            fprintf(out, "neither knows more than a guess.\n");
        else if (m)
            fprintf(out, "%s knows more, %.0f %% against %.0f %%.\n", m->name,
                    100 * right_share(&f->score[m - d->model][k]),
                    100 * right_share(&f->score[1 - (m - d->model)][k]));
        else
            fprintf(out, "no clear difference.\n");
    }
    fprintf(out,
            "  Training rows have %d tokens: longer distances are extrapolation.\n"
            "  A guess picks one of the names in the story.\n",
            DEMO_CONTEXT);
}

/* Keeps the numbers that the end of the demo reports. */
static void keep_farthest(demo *d, const facts *f)
{
    int k = RANGES - 1;
    while (k > 0 && !f->score[0][k].asked) k--;
    const demo_model *m = better_model(d, f, k);
    d->recall = (demo_recall){.ago = ranges[k].ago,
                              .asked = f->score[0][k].asked,
                              .guess = llrint(f->guess[k]),
                              .better = m ? (int)(m - d->model) : -1};
    for (int i = 0; i < DEMO_MODELS; i++) {
        d->recall.right[i] = f->score[i][k].right;
        d->recall.knows[i] = beats_guess(f, i, k);
    }
}

dra_status demo_facts(demo *d, dra_error *err)
{
    const double began = cli_now();
    reading      r = {.d = d};
    demo_heading(d, "Facts told recently and long ago, in stories that neither has seen");
    const dra_status st = read_all(&r, err);
    if (st == DRA_OK && !cli_progress_stopped()) {
        write_table(d, &r.f);
        write_lines(d, &r.f);
        write_meaning(d, &r.f);
        keep_farthest(d, &r.f);
        demo_took(d, began);
    }
    reading_free(&r);
    return st;
}
