/* The tasks of probes.
 *
 *   copy      s1 .. sn  filler  ASK s1 .. sn            all s after ASK are asked for
 *   recall    k1 v1 .. kK vK  filler  k3 k1 ..          after each key its value, which is not
 *                                                       given: the next key follows [Arora et al.
 *                                                       2023, multi-query associative recall]
 *   addition  a + b  filler  ASK c                      digits of c = a + b, the highest first
 *   parens    a word of matched brackets                each closing bracket: its kind is that of
 *                                                       the last one open
 *   needle    filler  ASK k v1 .. vm  filler  ASK k v1 .. vm   the v at the end
 *
 * The last token is only asked for and never read, so rows end one before it. */
#include <math.h>

#include "base/shape.h"
#include "train/probe.h"

/* ---- writing a row --------------------------------------------------------------------------- */

static void put_token(dra_probe_line *r, int32_t token)
{
    if (r->at < r->p->length) r->ids[r->at] = token;
    r->at++;
}

static void ask_token(dra_probe_line *r, int32_t token) { r->targets[r->at - 1] = token; }

static void put_answer(dra_probe_line *r, int32_t token)
{
    ask_token(r, token);
    put_token(r, token);
}

static void put_filler(dra_probe_line *r, int64_t n)
{
    while (n-- > 0) put_token(r, dra_probe_below(r, DRA_PROBE_FILLERS));
}

/* The tokens after FIRST are cut into n alphabets of this size. */
static int64_t alphabet_size(const dra_probe *p, int n) { return (p->vocab - DRA_PROBE_FIRST) / n; }

static void set_default(int64_t *option, int64_t x)
{
    if (!*option) *option = x;
}

/* ---- copy ------------------------------------------------------------------------------------ */

static void copy_defaults(dra_probe *p)
{
    set_default(&p->symbols, p->length ? p->length / 2 : 32);
    set_default(&p->vocab, DRA_PROBE_FIRST + 32);
}

static int64_t copy_length(const dra_probe *p) { return 2 * p->symbols; }
static int64_t copy_vocab(const dra_probe *p) { return DRA_PROBE_FIRST + 2; }
static double  copy_chance(const dra_probe *p)
{
    return pow((double)alphabet_size(p, 1), -(double)p->symbols);
}

static void copy_make(dra_probe_line *r)
{
    const dra_probe *p = r->p;
    for (int64_t i = 0; i < p->symbols; i++)
        put_token(r, DRA_PROBE_FIRST + dra_probe_below(r, alphabet_size(p, 1)));
    put_filler(r, p->length - copy_length(p));
    put_token(r, DRA_PROBE_ASK);
    for (int64_t i = 0; i < p->symbols; i++) put_answer(r, r->ids[i]);
}

/* ---- recall ---------------------------------------------------------------------------------- */

static void recall_defaults(dra_probe *p)
{
    set_default(&p->length, 256);
    set_default(&p->pairs, 16);
    set_default(&p->queries, p->pairs);
    set_default(&p->vocab, DRA_PROBE_FIRST + 2 * dra_imax(64, dra_imin(p->pairs, 123)));
}

static int64_t recall_length(const dra_probe *p) { return 2 * p->pairs + p->queries; }
static int64_t recall_vocab(const dra_probe *p) { return DRA_PROBE_FIRST + 2 * p->pairs; }
static double  recall_chance(const dra_probe *p) { return 1 / (double)alphabet_size(p, 2); }

/* The first n of 0 .. of - 1 in a random order. */
static void shuffle_numbers(dra_probe_line *r, int32_t *x, int64_t n, int64_t of)
{
    for (int64_t i = 0; i < of; i++) x[i] = (int32_t)i;
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = i + dra_probe_below(r, of - i);
        const int32_t other = x[j];
        x[j] = x[i];
        x[i] = other;
    }
}

static void recall_make(dra_probe_line *r)
{
    const dra_probe *p = r->p;
    const int64_t    A = alphabet_size(p, 2);
    int32_t          key[DRA_PROBE_VOCAB], value[DRA_PROBE_VOCAB], order[DRA_PROBE_VOCAB];
    shuffle_numbers(r, key, p->pairs, A);
    for (int64_t i = 0; i < p->pairs; i++) {
        value[i] = (int32_t)(DRA_PROBE_FIRST + A) + dra_probe_below(r, A);
        put_token(r, DRA_PROBE_FIRST + key[i]);
        put_token(r, value[i]);
    }
    put_filler(r, p->length - recall_length(p));
    shuffle_numbers(r, order, p->queries, p->pairs);
    for (int64_t i = 0; i < p->queries; i++) {
        put_token(r, DRA_PROBE_FIRST + key[order[i]]);
        ask_token(r, value[order[i]]);
    }
}

/* ---- addition -------------------------------------------------------------------------------- */

static void addition_defaults(dra_probe *p)
{
    set_default(&p->digits, 3);
    set_default(&p->vocab, DRA_PROBE_FIRST + 10);
}

static int64_t addition_length(const dra_probe *p) { return 3 * p->digits + 2; }
static int64_t addition_vocab(const dra_probe *p) { return DRA_PROBE_FIRST + 10; }
static double  addition_chance(const dra_probe *p) { return pow(10, -(double)(p->digits + 1)); }

static void put_number(dra_probe_line *r, int64_t digits)
{
    while (digits-- > 0) put_token(r, DRA_PROBE_FIRST + dra_probe_below(r, 10));
}

/* Digit i from the left of a + b: the sum of both digits and a carry from the right, which the
 * first pair of digits whose sum is not 9 decides. */
static int32_t sum_digit(const int32_t *a, const int32_t *b, int64_t i, int64_t digits)
{
    int64_t j = i + 1;
    while (j < digits && a[j] + b[j] - 2 * DRA_PROBE_FIRST == 9) j++;
    const int32_t carry = j < digits && a[j] + b[j] - 2 * DRA_PROBE_FIRST > 9;
    const int32_t here = i < 0 ? 0 : a[i] + b[i] - 2 * DRA_PROBE_FIRST;
    return DRA_PROBE_FIRST + (here + carry) % 10;
}

static void addition_make(dra_probe_line *r)
{
    const dra_probe *p = r->p;
    put_number(r, p->digits);
    put_token(r, DRA_PROBE_PLUS);
    put_number(r, p->digits);
    put_filler(r, p->length - addition_length(p));
    put_token(r, DRA_PROBE_ASK);
    for (int64_t i = -1; i < p->digits; i++)
        put_answer(r, sum_digit(r->ids, r->ids + p->digits + 1, i, p->digits));
}

/* ---- parens ---------------------------------------------------------------------------------- */

static void parens_defaults(dra_probe *p)
{
    set_default(&p->length, 64);
    set_default(&p->kinds, 2);
    set_default(&p->vocab, DRA_PROBE_FIRST + 2 * p->kinds);
}

static int64_t parens_length(const dra_probe *p) { return 2; }
static int64_t parens_vocab(const dra_probe *p) { return DRA_PROBE_FIRST + 2 * p->kinds; }
static double  parens_chance(const dra_probe *p)
{
    return pow((double)p->kinds, -(double)((p->length + 1) / 2));
}

/* The position of the last bracket that is still open before `at`. */
static int64_t last_open(const dra_probe_line *r, int64_t at)
{
    const int32_t close = DRA_PROBE_FIRST + (int32_t)r->p->kinds;
    for (int64_t closed = 0;; closed += r->ids[at] >= close ? 1 : -1)
        if (r->ids[--at] < close && closed == 0) return at;
}

/* Opens or closes a bracket at random, as long as the word can still end in time. */
static void parens_make(dra_probe_line *r)
{
    const int64_t kinds = r->p->kinds, n = (r->p->length + 1) / 2 * 2;
    for (int64_t open = 0; r->at < n;) {
        const bool must = open == n - r->at, can = open > 0;
        if (must || (can && dra_probe_below(r, 2) == 0)) {
            put_answer(r, r->ids[last_open(r, r->at)] + (int32_t)kinds);
            open--;
        } else {
            put_token(r, DRA_PROBE_FIRST + dra_probe_below(r, kinds));
            open++;
        }
    }
}

/* ---- needle ---------------------------------------------------------------------------------- */

static void needle_defaults(dra_probe *p)
{
    set_default(&p->length, 256);
    set_default(&p->symbols, 4);
    set_default(&p->vocab, DRA_PROBE_FIRST + 64);
}

static int64_t needle_length(const dra_probe *p) { return 2 * p->symbols + 3; }
static int64_t needle_vocab(const dra_probe *p) { return DRA_PROBE_FIRST + 4; }
static double  needle_chance(const dra_probe *p)
{
    return pow((double)alphabet_size(p, 2), -(double)p->symbols);
}

static void needle_make(dra_probe_line *r)
{
    const dra_probe *p = r->p;
    const int64_t    A = alphabet_size(p, 2), room = p->length - needle_length(p);
    const int64_t    before = p->depth < 0 ? dra_probe_below(r, room + 1)
                                           : (int64_t)round(p->depth * (double)room);
    const int32_t    key = DRA_PROBE_FIRST + dra_probe_below(r, A);
    put_filler(r, before);
    put_token(r, DRA_PROBE_ASK);
    put_token(r, key);
    const int32_t *fact = r->ids + r->at;
    for (int64_t i = 0; i < p->symbols; i++)
        put_token(r, (int32_t)(DRA_PROBE_FIRST + A) + dra_probe_below(r, A));
    put_filler(r, room - before);
    put_token(r, DRA_PROBE_ASK);
    put_token(r, key);
    for (int64_t i = 0; i < p->symbols; i++) put_answer(r, fact[i]);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define TASK(name) name##_defaults, name##_length, name##_vocab, name##_chance, name##_make

const dra_probe_maker dra_probe_makers[] = {
    {{"copy", "symbols, and the same again", DRA_ANSWER_ROW, DRA_PROBE_SYMBOLS}, TASK(copy)},
    {{"recall", "the values of keys", DRA_ANSWER_TARGET, DRA_PROBE_PAIRS | DRA_PROBE_QUERIES},
     TASK(recall)},
    {{"addition", "a + b", DRA_ANSWER_ROW, DRA_PROBE_DIGITS}, TASK(addition)},
    {{"parens", "which bracket closes", DRA_ANSWER_ROW, DRA_PROBE_KINDS}, TASK(parens)},
    {{"needle", "one fact in much filler", DRA_ANSWER_ROW, DRA_PROBE_SYMBOLS | DRA_PROBE_DEPTH},
     TASK(needle)}};

const size_t dra_probe_makers_count = sizeof dra_probe_makers / sizeof *dra_probe_makers;
