/* What the text so far says about its next token, as an addition to the logits:
 *   presence, frequency   -presence - frequency c of tokens that were written c > 0 times
 *   no_repeat_ngram n     -infinity where the last n - 1 tokens and it are in the text already
 *   dry                   -multiplier base^(L - allowed), L >= allowed the longest end of the text
 *                         that it has followed before, counted from the last break on
 * The first is about what was written, the others about all of the text. Breaks are tokens with a
 * newline, colon, quote or asterisk, after which repetitions are meant: they are not penalised.
 * [Keskar et al. 2019; Paulus et al. 2018, n-grams; p-e-w 2024, dry: text-generation-webui 5677] */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/sample.h"
#include "generate/grammar/grammar.h"

enum { REPEATED_MOST = 256 }; /* tokens of a repetition that are counted */

static bool penalises_written(const dra_sampler_config *c)
{
    return c->presence_penalty != 0 || c->frequency_penalty != 0;
}

bool dra_sampler_has_history(const dra_sampler *s)
{
    const dra_sampler_config *c = &s->c;
    return penalises_written(c) || c->no_repeat_ngram > 0 || c->dry_multiplier > 0;
}

bool dra_sampler_open_history(dra_sampler *s)
{
    if (!dra_sampler_has_history(s)) return true;
    s->met = calloc((size_t)s->V, sizeof *s->met);
    return s->met != NULL;
}

static bool has_break(const char *piece, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memchr("\n:\"*", piece[i], 4)) return true;
    return false;
}

dra_status dra_sampler_find_breaks(dra_sampler *s, const dra_tokenizer *t, dra_error *err)
{
    if (!t || s->c.dry_multiplier == 0) return DRA_OK;
    s->breaks = calloc((size_t)s->V, sizeof *s->breaks);
    if (!s->breaks) return dra_fail(err, DRA_ERR_MEMORY, "sampler: out of memory");
    for (int64_t id = 0; id < s->V; id++) {
        size_t      n;
        const char *piece = dra_token_piece(t, (int32_t)id, &n);
        s->breaks[id] = has_break(piece, n);
    }
    return DRA_OK;
}

/* ---- the text -------------------------------------------------------------------------------- */

static size_t length_of(const dra_history *t) { return t->n_before + t->n; }

static int32_t token_at(const dra_history *t, size_t i)
{
    return i < t->n_before ? t->before[i] : t->ids[i - t->n_before];
}

/* How many tokens before `end` are those at the end of the text, up to `most`. */
static size_t match_end(const dra_history *t, size_t end, size_t most)
{
    const size_t length = length_of(t);
    size_t       n = 0;
    while (n < most && n < end && token_at(t, end - 1 - n) == token_at(t, length - 1 - n)) n++;
    return n;
}

/* ---- what it says ---------------------------------------------------------------------------- */

static void penalise_written(const dra_sampler *s, const dra_history *t, dra_real *bias)
{
    const dra_sampler_config *c = &s->c;
    for (size_t i = t->prompt; i < t->n; i++) {
        const int32_t id = t->ids[i];
        bias[id] -= (dra_real)(c->frequency_penalty + (s->met[id] ? 0 : c->presence_penalty));
        s->met[id] = 1;
    }
    for (size_t i = t->prompt; i < t->n; i++) s->met[t->ids[i]] = 0;
}

static void forbid_ngrams(const dra_sampler *s, const dra_history *t, dra_real *bias)
{
    const size_t known = (size_t)s->c.no_repeat_ngram - 1;
    for (size_t i = known; i < length_of(t); i++)
        if (match_end(t, i, known) == known) bias[token_at(t, i)] = -(dra_real)INFINITY;
}

static bool is_break(const dra_sampler *s, int32_t id) { return s->breaks && s->breaks[id]; }

/* How many tokens at the end of the text are no break. */
static size_t tokens_since_break(const dra_sampler *s, const dra_history *t)
{
    const size_t length = length_of(t);
    size_t       n = 0;
    while (n < length && n < REPEATED_MOST && !is_break(s, token_at(t, length - 1 - n))) n++;
    return n;
}

static void penalise_repetition(const dra_sampler *s, const dra_history *t, dra_real *bias)
{
    const dra_sampler_config *c = &s->c;
    const double              base = c->dry_base > 0 ? c->dry_base : 1.75;
    const size_t allowed = c->dry_allowed_length > 0 ? (size_t)c->dry_allowed_length : 2;
    const size_t most = tokens_since_break(s, t), length = length_of(t);
    if (most < allowed) return;
    for (size_t i = allowed; i < length; i++) {
        const int32_t id = token_at(t, i), n = (int32_t)match_end(t, i, most);
        if (n >= (int32_t)allowed && n > s->met[id]) s->met[id] = n;
    }
    for (size_t i = allowed; i < length; i++) {
        const int32_t id = token_at(t, i);
        const double  more = s->met[id] - (double)allowed;
        if (s->met[id] && !is_break(s, id))
            bias[id] -= (dra_real)fmin(c->dry_multiplier * pow(base, more), FLT_MAX);
        s->met[id] = 0;
    }
}

void dra_sampler_add_history(const dra_sampler *s, const dra_history *text, dra_real *bias)
{
    if (penalises_written(&s->c)) penalise_written(s, text, bias);
    if (s->c.dry_multiplier > 0) penalise_repetition(s, text, bias);
    if (s->c.no_repeat_ngram > 0) forbid_ngrams(s, text, bias);
}
