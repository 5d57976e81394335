/* The two demos of examples/08_gpt2_adr.c, which see what follows, against plain loops in double;
 * `make parity` compares the first one with PyTorch. */
#include "plain.h"

#define main example_main
#include "../../examples/08_gpt2_adr.c"
#undef main

#ifdef DRA_REAL_DOUBLE
#define EQUAL 1e-12
#else
#define EQUAL 2e-5 /* two layers */
#endif

enum { T = 8, V = 13, C = 16, H = 2, D = 8, L = 2, F = 4 * C };

/* ---- by loops -------------------------------------------------------------------------------- */

typedef struct loops {
    const demo *d;
    double     *w[WEIGHTS];
    int         l;               /* the block */
    double      memory[L][2][D]; /* what the first demo keeps from call to call */
} loops;

static const double *find_weight(const loops *s, const char *name)
{
    for (int i = 0; i < s->d->n; i++)
        if (strcmp(s->d->w[i].name, name) == 0) return s->w[i];
    fail_msg("no weight is called %s", name);
    return NULL;
}

/* Of the block at hand; "which" is nothing or k or v, before the rest of the name. */
static const double *block_weight(const loops *s, const char *format, char which)
{
    char part[40], name[64];
    snprintf(part, sizeof part, format, which);
    snprintf(name, sizeof name, "blocks.%d.%s", s->l, part);
    return find_weight(s, name);
}

static void normalise(const double *w, const double *b, const double *x, double *y)
{
    for (int t = 0; t < T; t++) {
        double mean = 0, square = 0;
        for (int c = 0; c < C; c++) mean += x[t * C + c] / C;
        for (int c = 0; c < C; c++) square += pow(x[t * C + c] - mean, 2) / C;
        for (int c = 0; c < C; c++)
            y[t * C + c] = (x[t * C + c] - mean) / sqrt(square + 1e-5) * w[c] + b[c];
    }
}

/* m = decay m + (1 - decay) GRU(x, m) */
static void step_cell(const loops *s, char which, const double *x, double *m)
{
    const double *w[] = {block_weight(s, "attn.%c_mem.gru.weight_ih", which),
                         block_weight(s, "attn.%c_mem.gru.weight_hh", which),
                         block_weight(s, "attn.%c_mem.gru.bias_ih", which),
                         block_weight(s, "attn.%c_mem.gru.bias_hh", which)};
    double        a[3 * D], u[3 * D];
    plain_linear(1, D, 3 * D, w[0], w[2], x, a);
    plain_linear(1, D, 3 * D, w[1], w[3], m, u);
    for (int i = 0; i < D; i++) {
        const double r = plain_sigmoid(a[i] + u[i]), z = plain_sigmoid(a[D + i] + u[D + i]);
        const double n = tanh(a[2 * D + i] + r * u[2 * D + i]);
        m[i] = s->d->decay * m[i] + (1 - s->d->decay) * ((1 - z) * n + z * m[i]);
    }
}

/* What tokens attend to, of the keys or values x (T, C); returns how many. */
static int items_of(loops *s, char which, const double *x, double items[(T + 1) * C])
{
    double *m = s->memory[s->l][which == 'v'], each[C] = {0};
    if (s->d->unmasked) {
        for (int t = 0; t < T; t++) {
            for (int h = 0; h < H; h++) step_cell(s, which, x + t * C + h * D, each + h * D);
            memcpy(items + t * C, each, sizeof each);
        }
        return T;
    }
    memcpy(items, x, T * C * sizeof *x);
    for (int h = 0; h < H; h++) {
        step_cell(s, which, x + (T - 1) * C + h * D, m);
        memcpy(items + T * C + h * D, m, D * sizeof *m);
    }
    return T + 1;
}

static void attend(loops *s, const double *x, double *y)
{
    const plain heads = {.H = H, .D = D};
    double      qkv[3][T * C], items[2][(T + 1) * C], all[T * C];
    int         n = 0;
    for (int i = 0; i < 3; i++)
        plain_linear(T, C, C, block_weight(s, "attn.%c_proj.weight", "qkv"[i]),
                     block_weight(s, "attn.%c_proj.bias", "qkv"[i]), x, qkv[i]);
    for (int i = 0; i < 2; i++) n = items_of(s, "kv"[i], qkv[1 + i], items[i]);
    for (int t = 0; t < T; t++)
        plain_attend(&heads, qkv[0] + t * C, n, items[0], items[1], all + t * C);
    plain_linear(T, C, C, block_weight(s, "attn.out_proj.weight", 0),
                 block_weight(s, "attn.out_proj.bias", 0), all, y);
}

static void add_block(loops *s, double *x)
{
    double h[T * C], y[T * C], wide[T * F];
    normalise(block_weight(s, "ln_1.weight", 0), block_weight(s, "ln_1.bias", 0), x, h);
    attend(s, h, y);
    for (int i = 0; i < T * C; i++) x[i] += y[i];
    normalise(block_weight(s, "ln_2.weight", 0), block_weight(s, "ln_2.bias", 0), x, h);
    plain_linear(T, C, F, block_weight(s, "mlp.0.weight", 0), block_weight(s, "mlp.0.bias", 0), h,
                 wide);
    for (int i = 0; i < T * F; i++) wide[i] *= 0.5 * (1 + erf(wide[i] / sqrt(2)));
    plain_linear(T, F, C, block_weight(s, "mlp.2.weight", 0), block_weight(s, "mlp.2.bias", 0),
                 wide, y);
    for (int i = 0; i < T * C; i++) x[i] += y[i];
}

static void call_loops(loops *s, const int32_t *ids, double *logits)
{
    const double *table = find_weight(s, "embed.weight"), *at = find_weight(s, "pos_embed.weight");
    double        x[T * C], h[T * C];
    for (int i = 0; i < T * C; i++) x[i] = table[ids[i / C] * C + i % C] + at[i];
    for (s->l = 0; s->l < L; s->l++) add_block(s, x);
    normalise(find_weight(s, "ln_f.weight"), find_weight(s, "ln_f.bias"), x, h);
    plain_linear(T, C, V, find_weight(s, "lm_head.weight"), NULL, h, logits);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Two calls of the example give what the loops give. */
static void expect_loops(demo *d, const int32_t *ids)
{
    loops    s = {.d = d};
    dra_real found[2 * T * V];
    double   expected[2 * T * V];
    must(dra_graph_create(&d->g, &err));
    build(d);
    call_twice(d, ids, found);
    for (int i = 0; i < d->n; i++) {
        s.w[i] = plain_zeros((int64_t)d->w[i].count);
        for (size_t k = 0; k < d->w[i].count; k++) s.w[i][k] = (double)d->w[i].data[k];
    }
    for (int call = 0; call < 2; call++) call_loops(&s, ids + call * T, expected + call * T * V);
    check_close("logits", 2 * T * V, found, expected, EQUAL);
    for (int i = 0; i < d->n; i++) free(s.w[i]), free(d->w[i].data);
    dra_graph_destroy(d->g);
}

/* The last token of the second call is another one. */
static const int32_t text[2 * T] = {3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5, 9, 2, 7};

static void literal_is_its_loops(void **state)
{
    static demo d = {.T = T, .V = V, .C = C, .D = D, .H = H, .L = L, .decay = 0.97};
    expect_loops(&d, text);
}

static void unmasked_is_its_loops(void **state)
{
    static demo d = {
        .T = T, .V = V, .C = C, .D = D, .H = H, .L = L, .decay = 0.9, .unmasked = true};
    expect_loops(&d, text);
}

static void runs(void **state)
{
    assert_int_equal(example_main(1, (char *[]){"08_gpt2_adr", NULL}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(literal_is_its_loops),
        cmocka_unit_test(unmasked_is_its_loops),
        cmocka_unit_test(runs),
    };
    return check_main("demo", NULL, 0, tests, COUNT(tests));
}
