/* Compositions of x-transformers do what their parts do: a caption's decoder is one that reads what
 * its image encoder makes, and so on; and what each wrapper promises by itself. */
#include "check.h"
#include "model/fixtures.h"
#include "xt_text.h"

enum { DIM = 16, MOST = 4096, WORDS = 6, PATCHES = 4 };

#define S "'dim': 16, 'depth': 2, 'heads': 4, 'attn_dim_head': 8"
#define VIT                                                                                        \
    "'wrapper': 'ViTransformerWrapper', 'image_size': 4, 'patch_size': 2, 'attn_layers': "         \
    "{'type': 'Encoder', " S "}"
#define DECODER                                                                                    \
    "'wrapper': 'TransformerWrapper', 'num_tokens': 10, 'max_seq_len': 8, 'attn_layers': "         \
    "{'type': 'Decoder', 'cross_attend': true, " S "}"
#define SIDE(s) "'" s "num_tokens': 10, '" s "max_seq_len': 8, '" s "depth': 1, '" s "heads': 4"
#define PAIR "'wrapper': 'XTransformer', 'dim': 16, " SIDE("enc_") ", " SIDE("dec_")

static const int32_t words[WORDS] = {1, 5, 3, 9, 0, 7};

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct made {
    dra_model   *model;
    dra_weights *weights;
} made;

static made make(const char *config)
{
    char text[XT_TEXT];
    CHECK_CONFIG(c);
    made      m;
    dra_error err = {0};
    snprintf(text, sizeof text, "{'model_type': 'x-transformers', %s}", config);
    xt_quotes(text);
    expect_ok(xt_parse(text, &c, &err), &err);
    expect_ok(dra_model_create(c, &m.model, &err), &err);
    expect_ok(dra_weights_draw(m.model, 5, &m.weights, &err), &err);
    return m;
}

static void drop(made *m)
{
    dra_weights_destroy(m->weights);
    dra_model_destroy(m->model);
}

/* Weights of `to` are those of `from` whose names begin with `prefix`; names that it does not have
 * there stay. */
static void copy(const made *to, const made *from, const char *prefix)
{
    const dra_specs *p = dra_model_params(to->model), *q = dra_model_params(from->model);
    for (int i = 0; i < dra_specs_count(p); i++) {
        char name[200];
        snprintf(name, sizeof name, "%s%s", prefix, dra_specs_at(p, i)->name);
        const int k = dra_specs_find(q, name);
        if (k < 0) continue;
        memcpy(dra_weights_edit(to->weights, i), dra_weights_at(from->weights, k),
               (size_t)dra_shape_count(&dra_specs_at(p, i)->shape) * sizeof(dra_real));
    }
}

/* What `output` of a text of n tokens is. context: NULL: there is none. */
static int64_t read_text(const made *m, dra_view view, const dra_context_text *context, int64_t n,
                         int inputs, const dra_named *in, const char *output, dra_real *to)
{
    dra_device *device = check_device(2, dra_device_level_at(0));
    dra_reader *r;
    dra_states *s;
    dra_shape   shape;
    dra_error   err = {0};
    view.model = m->model;
    const dra_module module = dra_view_module(&view);
    expect_ok(dra_reader_create(device, &module, &r, &err), &err);
    expect_ok(dra_weights_bind(m->weights, r, &err), &err);
    expect_ok(dra_states_create(device, module.state, 1, &s, &err), &err);
    if (context)
        expect_ok(dra_reader_read_context(r, s, context, n, NULL, inputs, in, &err), &err);
    else
        expect_ok(dra_reader_read(r, s, n, NULL, inputs, in, &err), &err);
    assert_true(dra_reader_result_shape(r, output, &shape));
    const int64_t count = dra_shape_count(&shape);
    assert_true(count <= MOST);
    memcpy(to, dra_reader_result(r, output), (size_t)count * sizeof *to);
    dra_states_destroy(s);
    dra_reader_destroy(r);
    return count;
}

static void fill(dra_real *x, int n, double phase)
{
    for (int t = 0; t < n; t++) x[t] = (dra_real)sin(0.9 * t + 0.017 * t * t + phase);
}

static void expect_same(const dra_real *a, const dra_real *b, int64_t n, double within)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= within))
            fail_msg("number %lld: %g and %g", (long long)i, (double)a[i], (double)b[i]);
}

/* ---- F08, F09: parts together ---------------------------------------------------------------- */

static void a_caption_reads_its_image(void **unused)
{
    made           whole = make(DECODER ", 'context': {" VIT "}"), vit = make(VIT);
    made           alone = make(DECODER);
    const dra_view logits = {.logits = true}, hidden = {.hidden = true};
    dra_real       img[3 * 4 * 4], seen[MOST], a[MOST], b[MOST];
    fill(img, 3 * 4 * 4, 0);
    copy(&vit, &whole, "encoder.");
    copy(&alone, &whole, "");
    const dra_context_text context = {PATCHES, NULL};
    const dra_named        image = {"img", img, sizeof img};
    const dra_named        both[] = {{"ids", words, sizeof words}, image},
                    given[] = {both[0], {"context", seen, PATCHES * DIM * sizeof *seen}};
    const int64_t n = read_text(&whole, logits, &context, WORDS, 2, both, "logits", a);
    read_text(&vit, hidden, NULL, PATCHES, 1, &image, "hidden", seen);
    assert_int_equal(read_text(&alone, logits, &context, WORDS, 2, given, "logits", b), n);
    expect_same(a, b, n, 1e-6);
    drop(&whole);
    drop(&vit);
    drop(&alone);
}

static void an_encoder_sees_the_image_first(void **unused)
{
    made           whole = make(PAIR ", 'src_prepend': {" VIT "}"), vit = make(VIT);
    made           alone = make(PAIR ", 'src_prepend': 4");
    const dra_view logits = {.logits = true}, hidden = {.hidden = true};
    dra_real       img[3 * 4 * 4], seen[MOST], a[MOST], b[MOST];
    fill(img, 3 * 4 * 4, 0);
    copy(&vit, &whole, "encoder.prepend.");
    copy(&alone, &whole, "");
    const dra_context_text context = {PATCHES + WORDS, NULL};
    const dra_named        image = {"img", img, sizeof img};
    const dra_named both[] = {{"ids", words, sizeof words}, {"src", words, sizeof words}, image},
                    given[] = {both[0], both[1], {"prepend", seen, PATCHES * DIM * sizeof *seen}};
    const int64_t n = read_text(&whole, logits, &context, WORDS, 3, both, "logits", a);
    read_text(&vit, hidden, NULL, PATCHES, 1, &image, "hidden", seen);
    assert_int_equal(read_text(&alone, logits, &context, WORDS, 3, given, "logits", b), n);
    expect_same(a, b, n, 1e-6);
    drop(&whole);
    drop(&vit);
    drop(&alone);
}

/* ---- F04, F05 -------------------------------------------------------------------------------- */

/* Masked tokens of the source may be any. */
static void padded_sources_do_not_count(void **unused)
{
    made                   m = make(PAIR);
    const int32_t          mark[WORDS] = {0, 0, 0, 0, DRA_MARK_PAD, DRA_MARK_PAD};
    int32_t                other[WORDS] = {1, 5, 3, 9, 7, 0};
    dra_real               a[MOST], b[MOST];
    const dra_context_text context = {WORDS, mark};
    const dra_named        one[] = {{"ids", words, sizeof words}, {"src", words, sizeof words}};
    const dra_named        two[] = {{"ids", words, sizeof words}, {"src", other, sizeof other}};
    const int64_t n = read_text(&m, (dra_view){.logits = true}, &context, WORDS, 2, one, "logits",
                                a);
    read_text(&m, (dra_view){.logits = true}, &context, WORDS, 2, two, "logits", b);
    check_reals(a, b, (size_t)n * sizeof *a);
    other[0] = 2;
    read_text(&m, (dra_view){.logits = true}, &context, WORDS, 2, two, "logits", b);
    assert_true(memcmp(a, b, (size_t)n * sizeof *a) != 0);
    drop(&m);
}

/* Both sides read one table: what the decoder embeds is a row of the encoder's. */
static void a_shared_table_is_one(void **unused)
{
    made                   two = make(PAIR), one = make(PAIR ", 'tie_token_emb': true");
    dra_real               a[MOST], b[MOST];
    const dra_context_text context = {WORDS, NULL};
    const dra_named        in[] = {{"ids", words, sizeof words}, {"src", words, sizeof words}};
    assert_int_equal(dra_model_param_count(two.model) - dra_model_param_count(one.model), 10 * DIM);
    assert_int_equal(dra_specs_find(dra_model_params(one.model), "embedding"), -1);
    copy(&two, &one, "");
    const int table = dra_specs_find(dra_model_params(two.model), "embedding");
    const int shared = dra_specs_find(dra_model_params(one.model), "encoder.embedding");
    memcpy(dra_weights_edit(two.weights, table), dra_weights_at(one.weights, shared),
           10 * DIM * sizeof(dra_real));
    const int64_t n = read_text(&one, (dra_view){.logits = true}, &context, WORDS, 2, in, "logits",
                                a);
    read_text(&two, (dra_view){.logits = true}, &context, WORDS, 2, in, "logits", b);
    check_reals(a, b, (size_t)n * sizeof *a);
    drop(&one);
    drop(&two);
}

/* ---- F06, F07 -------------------------------------------------------------------------------- */

static void a_pixel_is_in_one_patch(void **unused)
{
    made            m = make(VIT);
    dra_real        img[3 * 4 * 4], a[MOST], b[MOST];
    const dra_named in = {"img", img, sizeof img};
    fill(img, 3 * 4 * 4, 0);
    const int64_t n = read_text(&m, (dra_view){.streams = true}, NULL, PATCHES, 1, &in, "stream.0",
                                a);
    assert_int_equal(n, PATCHES * DIM);
    for (int pixel = 0; pixel < 3 * 4 * 4; pixel++) {
        const int      row = pixel / 4 % 4, column = pixel % 4, patch = row / 2 * 2 + column / 2;
        const dra_real was = img[pixel];
        img[pixel] += 1;
        read_text(&m, (dra_view){.streams = true}, NULL, PATCHES, 1, &in, "stream.0", b);
        img[pixel] = was;
        for (int p = 0; p < PATCHES; p++)
            assert_int_equal(memcmp(a + p * DIM, b + p * DIM, DIM * sizeof *a) != 0, p == patch);
    }
    drop(&m);
}

static void classes_are_told_from_the_mean(void **unused)
{
    made            m = make(VIT ", 'num_classes': 5"), plain = make(VIT);
    dra_real        img[3 * 4 * 4], hidden[MOST], logits[MOST], mean[MOST], should[5] = {0};
    const dra_named in = {"img", img, sizeof img};
    fill(img, 3 * 4 * 4, 0);
    copy(&plain, &m, "");
    read_text(&m, (dra_view){.hidden = true}, NULL, PATCHES, 1, &in, "hidden", hidden);
    assert_int_equal(
        read_text(&m, (dra_view){.outs = true}, NULL, PATCHES, 1, &in, "logits", logits), 5);
    assert_int_equal(
        read_text(&plain, (dra_view){.outs = true}, NULL, PATCHES, 1, &in, "out", mean), DIM);
    const dra_specs *p = dra_model_params(m.model);
    const dra_real  *W = dra_weights_at(m.weights, dra_specs_find(p, "head"));
    const dra_real  *bias = dra_weights_at(m.weights, dra_specs_find(p, "head_b"));
    for (int i = 0; i < 5; i++) {
        should[i] = bias[i];
        for (int c = 0; c < DIM; c++) should[i] += W[i * DIM + c] * mean[c];
    }
    expect_same(logits, should, 5, 1e-5);
    for (int c = 0; c < DIM; c++) {
        dra_real sum = 0;
        for (int t = 0; t < PATCHES; t++) sum += hidden[t * DIM + c] / PATCHES;
        expect_same(&sum, &mean[c], 1, 1e-5);
    }
    drop(&m);
    drop(&plain);
}

/* ---- F10 ------------------------------------------------------------------------------------- */

/* Of one vector all queries see all there is. */
static void one_vector_is_seen_by_all(void **unused)
{
    made                   m = make("'wrapper': 'CrossAttender', " S);
    dra_real               x[WORDS * DIM], other[DIM], a[MOST];
    const dra_context_text context = {1, NULL};
    const dra_named        in[] = {{"x", x, sizeof x}, {"context", other, sizeof other}};
    fill(x, WORDS * DIM, 0);
    fill(other, DIM, 0.4);
    read_text(&m, (dra_view){.adds = true}, &context, WORDS, 2, in, "add.0", a);
    for (int t = 1; t < WORDS; t++) expect_same(a + t * DIM, a, DIM, 1e-6);
    drop(&m);
}

/* ---- F14 ------------------------------------------------------------------------------------- */

#define XVAL                                                                                       \
    "'wrapper': 'XValTransformerWrapper', 'num_tokens': 10, 'max_seq_len': 8, "                    \
    "'numerical_token_id': 3, 'use_abs_pos_emb': false, 'attn_layers': {'type': 'Decoder', " S "}"

static void numbers_scale_their_token(void **unused)
{
    made            m = make(XVAL);
    dra_real        nums[WORDS], a[MOST], b[MOST];
    const dra_view  view = {.streams = true};
    const dra_named in[] = {{"ids", words, sizeof words}, {"nums", nums, sizeof nums}};
    fill(nums, WORDS, 0.4);
    read_text(&m, view, NULL, WORDS, 2, in, "stream.0", a);
    for (int t = 0; t < WORDS; t++) nums[t] *= 2;
    read_text(&m, view, NULL, WORDS, 2, in, "stream.0", b);
    for (int t = 0; t < WORDS; t++)
        for (int c = 0; c < DIM; c++)
            assert_true(b[t * DIM + c] == (words[t] == 3 ? 2 : 1) * a[t * DIM + c]);
    drop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_caption_reads_its_image),
        cmocka_unit_test(an_encoder_sees_the_image_first),
        cmocka_unit_test(padded_sources_do_not_count),
        cmocka_unit_test(a_shared_table_is_one),
        cmocka_unit_test(a_pixel_is_in_one_patch),
        cmocka_unit_test(classes_are_told_from_the_mean),
        cmocka_unit_test(one_vector_is_seen_by_all),
        cmocka_unit_test(numbers_scale_their_token),
    };
    return check_main("xt_compositions", NULL, 0, tests, COUNT(tests));
}
