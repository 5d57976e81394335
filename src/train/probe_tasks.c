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
 *   mqar      k1 v1 .. kK vK  random tokens, among them each k once   its value: Zoology's form of
 *                                                       recall [Arora et al. 2023], see below
 *   update    recall whose keys are written several times   the value that came last
 *   select    symbols among filler  ASK s1 .. sn        the symbols in their order
 *   parity, modular, permute   a word of a group        after each token the state so far
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

/* After the last token `token` is asked for, which stood at `from`. */
static void ask_token(dra_probe_line *r, int32_t token, int64_t from)
{
    r->targets[r->at - 1] = token;
    if (r->from) r->from[r->at - 1] = from;
}

static void put_answer(dra_probe_line *r, int32_t token, int64_t from)
{
    ask_token(r, token, from);
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
    for (int64_t i = 0; i < p->symbols; i++) put_answer(r, r->ids[i], i);
}

/* ---- recall ---------------------------------------------------------------------------------- */

static void recall_defaults(dra_probe *p)
{
    set_default(&p->length, 256);
    set_default(&p->pairs, 16);
    set_default(&p->queries, p->pairs);
    set_default(&p->vocab, DRA_PROBE_FIRST + 2 * dra_imax(64, p->pairs));
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
        ask_token(r, value[order[i]], 2 * order[i] + 1);
    }
}

/* ---- mqar ------------------------------------------------------------------------------------ */

static void mqar_defaults(dra_probe *p)
{
    set_default(&p->pairs, 16);
    set_default(&p->length, 4 * p->pairs);
    set_default(&p->vocab, 8192);
}

static int64_t mqar_length(const dra_probe *p) { return 4 * p->pairs; }

/* A place i of 1 to n with probability proportional to i^(a-1), a = 0.01: floor(x) of a density
 * x^(a-1) on 1 to n + 1, accepted in the ratio of both at i, which is largest at 1. */
static int64_t draw_gap(dra_probe_line *r, int64_t n)
{
    const double a = 0.01, top = pow((double)n + 1, a) - 1, first = a / (pow(2, a) - 1);
    for (;;) {
        const double  u = ((double)dra_probe_below(r, INT32_MAX) + 0.5) / INT32_MAX;
        const int64_t i = dra_imin(n, (int64_t)pow(1 + top * u, 1 / a));
        const double here = pow((double)i, a - 1) * a / (pow((double)i + 1, a) - pow((double)i, a));
        if ((double)dra_probe_below(r, INT32_MAX) < here / first * INT32_MAX) return i;
    }
}

/* Questions stand at the even places after the pairs, at most one each; all other tokens are any of
 * the vocabulary. */
static void mqar_make(dra_probe_line *r)
{
    const dra_probe *p = r->p;
    const int64_t    A = alphabet_size(p, 2), places = (p->length - 2 * p->pairs) / 2;
    int32_t          key[DRA_PROBE_VOCAB];
    shuffle_numbers(r, key, p->pairs, A);
    for (int64_t i = 0; i < p->pairs; i++) {
        put_token(r, DRA_PROBE_FIRST + key[i]);
        put_token(r, (int32_t)(DRA_PROBE_FIRST + A) + dra_probe_below(r, A));
    }
    while (r->at < p->length) put_token(r, dra_probe_below(r, p->vocab));
    for (int64_t i = 0; i < p->pairs; i++) {
        int64_t at;
        do at = 2 * (p->pairs + draw_gap(r, places) - 1);
        while (r->targets[at] >= 0);
        r->ids[at] = r->ids[2 * i];
        r->at = at + 1;
        ask_token(r, r->ids[2 * i + 1], 2 * i + 1);
    }
    r->at = p->length;
}

/* ---- update ---------------------------------------------------------------------------------- */

static void update_defaults(dra_probe *p)
{
    set_default(&p->length, 256);
    set_default(&p->kinds, 2);
    recall_defaults(p);
}

static int64_t update_length(const dra_probe *p) { return 2 * p->pairs * p->kinds + p->queries; }

/* The place of the last value of a key. */
static int64_t last_value(const dra_probe_line *r, int32_t key)
{
    int64_t at = 2 * r->p->pairs * r->p->kinds;
    do at -= 2;
    while (r->ids[at] != key);
    return at + 1;
}

/* Every key is written `kinds` times, in rounds, each in another order. */
static void update_make(dra_probe_line *r)
{
    const dra_probe *p = r->p;
    const int64_t    A = alphabet_size(p, 2);
    int32_t          key[DRA_PROBE_VOCAB], order[DRA_PROBE_VOCAB];
    shuffle_numbers(r, key, p->pairs, A);
    for (int64_t i = 0; i < p->pairs * p->kinds; i++) {
        if (i % p->pairs == 0) shuffle_numbers(r, order, p->pairs, p->pairs);
        put_token(r, DRA_PROBE_FIRST + key[order[i % p->pairs]]);
        put_token(r, (int32_t)(DRA_PROBE_FIRST + A) + dra_probe_below(r, A));
    }
    put_filler(r, p->length - update_length(p));
    shuffle_numbers(r, order, p->queries, p->pairs);
    for (int64_t i = 0; i < p->queries; i++) {
        const int32_t token = DRA_PROBE_FIRST + key[order[i]];
        const int64_t at = last_value(r, token);
        put_token(r, token);
        ask_token(r, r->ids[at], at);
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
        put_answer(r, sum_digit(r->ids, r->ids + p->digits + 1, i, p->digits), -1);
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
            const int64_t from = last_open(r, r->at);
            put_answer(r, r->ids[from] + (int32_t)kinds, from);
            open--;
        } else {
            put_token(r, DRA_PROBE_FIRST + dra_probe_below(r, kinds));
            open++;
        }
    }
}

/* ---- needle ---------------------------------------------------------------------------------- */

/* A byte of a text is one of the last 256 tokens. */
static int64_t text_tokens(const dra_probe *p) { return p->text ? 256 : 0; }

static void needle_defaults(dra_probe *p)
{
    set_default(&p->length, 256);
    set_default(&p->symbols, 4);
    set_default(&p->vocab, DRA_PROBE_FIRST + 64 + text_tokens(p));
}

static int64_t needle_length(const dra_probe *p) { return 2 * p->symbols + 3; }
static int64_t needle_vocab(const dra_probe *p) { return DRA_PROBE_FIRST + 4 + text_tokens(p); }
static int64_t needle_alphabet(const dra_probe *p)
{
    return (p->vocab - DRA_PROBE_FIRST - text_tokens(p)) / 2;
}
static double needle_chance(const dra_probe *p)
{
    return pow((double)needle_alphabet(p), -(double)p->symbols);
}

/* Filler, or n bytes of the text from `from` on, which begins again at its end. */
static void put_around(dra_probe_line *r, int64_t from, int64_t n)
{
    const dra_probe *p = r->p;
    if (!p->text) put_filler(r, n);
    for (int64_t i = 0; p->text && i < n; i++)
        put_token(r, (int32_t)p->vocab - 256 + (unsigned char)p->text[(from + i) % p->bytes]);
}

static void needle_make(dra_probe_line *r)
{
    const dra_probe *p = r->p;
    const int64_t    A = needle_alphabet(p), room = p->length - needle_length(p);
    const int64_t    before = p->depth < 0 ? dra_probe_below(r, room + 1)
                                           : (int64_t)round(p->depth * (double)room);
    const int32_t    key = DRA_PROBE_FIRST + dra_probe_below(r, A);
    const int64_t    from = p->text ? dra_probe_below(r, dra_imin(p->bytes, INT32_MAX)) : 0;
    put_around(r, from, before);
    put_token(r, DRA_PROBE_ASK);
    put_token(r, key);
    const int64_t fact = r->at;
    for (int64_t i = 0; i < p->symbols; i++)
        put_token(r, (int32_t)(DRA_PROBE_FIRST + A) + dra_probe_below(r, A));
    put_around(r, from + before, room - before);
    put_token(r, DRA_PROBE_ASK);
    put_token(r, key);
    for (int64_t i = 0; i < p->symbols; i++) put_answer(r, r->ids[fact + i], fact + i);
}

/* ---- select ---------------------------------------------------------------------------------- */

static void select_defaults(dra_probe *p)
{
    set_default(&p->symbols, 16);
    set_default(&p->length, 4 * p->symbols);
    set_default(&p->vocab, DRA_PROBE_FIRST + 32);
}

/* Each of the places before the mark has a symbol with the same probability. */
static void select_make(dra_probe_line *r)
{
    const dra_probe *p = r->p;
    const int64_t    room = p->length - p->symbols;
    for (int64_t left = p->symbols; r->at < room;)
        if (dra_probe_below(r, room - r->at) < left) {
            put_token(r, DRA_PROBE_FIRST + dra_probe_below(r, alphabet_size(p, 1)));
            left--;
        } else {
            put_filler(r, 1);
        }
    put_token(r, DRA_PROBE_ASK);
    for (int64_t from = 0; from < room; from++)
        if (r->ids[from] >= DRA_PROBE_FIRST) put_answer(r, r->ids[from], from);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void    states_defaults(dra_probe *p) { set_default(&p->length, 40); }
static int64_t states_length(const dra_probe *p) { return 1; }

static void parity_defaults(dra_probe *p)
{
    states_defaults(p);
    set_default(&p->vocab, DRA_PROBE_FIRST + 2);
}

static int64_t parity_vocab(const dra_probe *p) { return DRA_PROBE_FIRST + 2; }
static double  parity_chance(const dra_probe *p) { return 0.5; }

static void parity_make(dra_probe_line *r)
{
    for (int32_t odd = 0; r->at < r->p->length;) {
        const int32_t bit = dra_probe_below(r, 2);
        odd ^= bit;
        put_token(r, DRA_PROBE_FIRST + bit);
        ask_token(r, DRA_PROBE_FIRST + odd, 0);
    }
}

static void modular_defaults(dra_probe *p)
{
    states_defaults(p);
    set_default(&p->kinds, 5);
    set_default(&p->vocab, DRA_PROBE_FIRST + 2 * p->kinds - 1);
}

static int64_t modular_vocab(const dra_probe *p) { return DRA_PROBE_FIRST + 2 * p->kinds - 1; }
static double  modular_chance(const dra_probe *p) { return 1 / (double)p->kinds; }

/* Tokens 0 to n - 1 add themselves to the state, n to 2n - 2 multiply it by 1 to n - 1. */
static void modular_make(dra_probe_line *r)
{
    const int64_t n = r->p->kinds;
    for (int64_t state = 0; r->at < r->p->length;) {
        const int32_t x = dra_probe_below(r, 2 * n - 1);
        state = (x < n ? state + x : state * (x - n + 1)) % n;
        put_token(r, DRA_PROBE_FIRST + x);
        ask_token(r, DRA_PROBE_FIRST + (int32_t)state, 0);
    }
}

enum { PERMUTED = 6 }; /* at most */

static int64_t count_permutations(int64_t n)
{
    int64_t all = 1;
    for (int64_t i = 2; i <= dra_imin(n, PERMUTED + 1); i++) all *= i;
    return all;
}

static void permute_defaults(dra_probe *p)
{
    states_defaults(p);
    set_default(&p->kinds, 5);
    set_default(&p->vocab, DRA_PROBE_FIRST + count_permutations(p->kinds));
}

static int64_t permute_vocab(const dra_probe *p)
{
    return p->kinds > PERMUTED ? DRA_PROBE_VOCAB + 1
                               : DRA_PROBE_FIRST + count_permutations(p->kinds);
}

static double permute_chance(const dra_probe *p)
{
    return 1 / (double)count_permutations(p->kinds);
}

/* Permutation `number` of n things, in the order of a dictionary, and back. */
static void number_to_permutation(int64_t number, int n, int x[PERMUTED])
{
    for (int i = n - 1; i >= 0; i--) {
        x[i] = (int)(number % (n - i));
        number /= n - i;
        for (int k = i + 1; k < n; k++) x[k] += x[k] >= x[i];
    }
}

static int64_t permutation_to_number(const int x[PERMUTED], int n)
{
    int64_t number = 0;
    for (int i = 0; i < n; i++) {
        int smaller = 0;
        for (int k = i + 1; k < n; k++) smaller += x[k] < x[i];
        number = number * (n - i) + smaller;
    }
    return number;
}

/* The state is the product so far: first the tokens before, then this one. */
static void permute_make(dra_probe_line *r)
{
    const int n = (int)r->p->kinds;
    int       state[PERMUTED] = {0}, x[PERMUTED] = {0}, next[PERMUTED];
    number_to_permutation(0, n, state);
    while (r->at < r->p->length) {
        const int32_t number = dra_probe_below(r, count_permutations(n));
        number_to_permutation(number, n, x);
        for (int i = 0; i < n; i++) next[i] = x[state[i]];
        for (int i = 0; i < n; i++) state[i] = next[i];
        put_token(r, DRA_PROBE_FIRST + number);
        ask_token(r, DRA_PROBE_FIRST + (int32_t)permutation_to_number(state, n), 0);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

#define TASK(name) name##_defaults, name##_length, name##_vocab, name##_chance, name##_make

const dra_probe_maker dra_probe_makers[] = {
    {{"copy", "symbols, and the same again", DRA_ANSWER_ROW, DRA_PROBE_SYMBOLS}, TASK(copy)},
    {{"recall", "the values of keys", DRA_ANSWER_TARGET, DRA_PROBE_PAIRS | DRA_PROBE_QUERIES},
     TASK(recall)},
    {{"addition", "a + b", DRA_ANSWER_ROW, DRA_PROBE_DIGITS}, TASK(addition)},
    {{"parens", "which bracket closes", DRA_ANSWER_ROW, DRA_PROBE_KINDS}, TASK(parens)},
    {{"needle", "one fact in much filler", DRA_ANSWER_ROW,
      DRA_PROBE_SYMBOLS | DRA_PROBE_DEPTH | DRA_PROBE_TEXT},
     TASK(needle)},
    {{"mqar", "the values of keys, asked for anywhere", DRA_ANSWER_TARGET, DRA_PROBE_PAIRS},
     mqar_defaults,
     mqar_length,
     recall_vocab,
     recall_chance,
     mqar_make},
    {{"update", "the last values of keys", DRA_ANSWER_TARGET,
      DRA_PROBE_PAIRS | DRA_PROBE_QUERIES | DRA_PROBE_KINDS},
     update_defaults,
     update_length,
     recall_vocab,
     recall_chance,
     update_make},
    {{"select", "symbols among filler", DRA_ANSWER_ROW, DRA_PROBE_SYMBOLS},
     select_defaults,
     copy_length,
     copy_vocab,
     copy_chance,
     select_make},
    {{"parity", "whether ones so far are odd", DRA_ANSWER_TARGET, 0},
     parity_defaults,
     states_length,
     parity_vocab,
     parity_chance,
     parity_make},
    {{"modular", "sums and products modulo a number", DRA_ANSWER_TARGET, DRA_PROBE_KINDS},
     modular_defaults,
     states_length,
     modular_vocab,
     modular_chance,
     modular_make},
    {{"permute", "the product of permutations", DRA_ANSWER_TARGET, DRA_PROBE_KINDS},
     permute_defaults,
     states_length,
     permute_vocab,
     permute_chance,
     permute_make}};

const size_t dra_probe_makers_count = sizeof dra_probe_makers / sizeof *dra_probe_makers;
