/* Batches of examples: what is made of tensors by name, and what is refused of them. */
#include "examples.h"

#include <math.h>

static const char *const bidirectional[] = {"visible=bidirectional", NULL};
static const char *const bidirectional_of_four[] = {"visible=bidirectional", "context=4", NULL};

enum { PAD = DRA_MARK_PAD, RESET = DRA_MARK_RESET };

static const void *input(const dra_batch *q, const char *name, size_t bytes)
{
    for (int i = 0; i < q->n_inputs; i++)
        if (strcmp(q->input[i].name, name) == 0) {
            assert_int_equal(q->input[i].bytes, bytes);
            return q->input[i].data;
        }
    fail_msg("no input %s", name);
    return NULL;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void next_reads_all_but_the_last(void **state)
{
    const int32_t ids[3][5] = {{1, 2, 3, 4, 5}, {6, -100, 7, -100, -100}, {8, 9, -100, -100, -100}};
    const dra_tensor_item item = {"tgt", DRA_I32, DRA_SHAPE(3, 5), ids};
    static const int32_t  read_ids[3][4] = {{1, 2, 3, 4}, {6, 0, 0, 0}, {8, 0, 0, 0}},
                         targets[3][4] = {{2, 3, 4, 5}, {-1, 7, -1, -1}, {9, -1, -1, -1}},
                         marks[3][4] = {
                             {RESET, 0, 0, 0}, {RESET, 0, PAD, PAD}, {RESET, PAD, PAD, PAD}};
    dra_examples *e = put_examples(&item, 1);
    dra_model    *m = make_model(NULL, NULL, NULL);
    dra_batches  *b = make_batches(m, e, 2, true);
    int           seen = 0;
    assert_int_equal(dra_batches_longest(b), 4);
    assert_int_equal(dra_batches_steps(b), 2);
    assert_int_equal(dra_batches_examples(b), 3);
    assert_false(dra_batches_marked(b));
    for (int64_t i = 0; i < 2; i++) {
        const dra_batch q = take(b, i);
        assert_int_equal(q.T, 4);
        for (int64_t r = 0; r < 2; r++) {
            const int32_t *x = q.ids + r * 4;
            const int      which = x[0] == 1 ? 0 : x[0] == 6 ? 1 : 2;
            if (i * 2 + r == 3) { /* there is no fourth example */
                for (int t = 0; t < 4; t++) assert_int_equal(q.mark[r * 4 + t], PAD);
                assert_true(q.counts[r] == 0);
                continue;
            }
            seen |= 1 << which;
            assert_memory_equal(x, read_ids[which], sizeof *read_ids);
            assert_memory_equal(q.targets + r * 4, targets[which], sizeof *targets);
            assert_memory_equal(q.mark + r * 4, marks[which], sizeof *marks);
            assert_true(q.counts[r] == (which ? 1 : 4));
        }
    }
    assert_int_equal(seen, 7);
    dra_batches_destroy(b);
    dra_model_destroy(m);
    dra_examples_close(e);
}

/* What is hidden of a text with gaps: never the gaps. */
static void gaps_are_not_predicted(void **state)
{
    static const int32_t  ids[4] = {1, -100, 3, -100}, targets[3] = {1, -1, 3};
    const dra_tensor_item item = {"ids", DRA_I32, DRA_SHAPE(1, 4), ids};
    dra_examples         *e = put_examples(&item, 1);
    dra_model            *m = make_model(NULL, NULL, bidirectional);
    dra_batches_config    c = {.model = m, .examples = e, .B = 1, .once = true};
    dra_batches          *b = NULL;
    dra_error             err = {0};
    c.objective = (dra_objective_config){.mask_share = 1};
    expect_ok(dra_objective_complete(&c.objective, m, &err), &err);
    expect_ok(dra_batches_create(&c, &b, &err), &err);
    const dra_batch q = take(b, 0);
    assert_memory_equal(q.targets, targets, sizeof targets);
    assert_int_equal(q.ids[1], 0);
    assert_true(q.counts[0] == 2);
    dra_batches_destroy(b);
    dra_model_destroy(m);
    dra_examples_close(e);
}

/* Rows are as long as the longest of a batch needs, rounded up to 32. */
static void rows_are_no_longer_than_needed(void **state)
{
    static int32_t        ids[2][101];
    const dra_tensor_item item = {"ids", DRA_I32, DRA_SHAPE(2, 101), ids};
    dra_model            *m = make_model(NULL, NULL, (const char *const[]){"context=200", NULL});
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < 101; t++) ids[i][t] = t < 30 + 20 * i ? t % 10 : -100;
    dra_examples *e = put_examples(&item, 1);
    dra_batches  *b = make_batches(m, e, 1, true);
    assert_int_equal(dra_batches_longest(b), 100);
    for (int64_t i = 0; i < 2; i++) {
        const dra_batch q = take(b, i);
        assert_int_equal(q.T, q.total == 29 ? 32 : 64);
        assert_int_equal(q.tokens, q.total);
    }
    dra_batches_destroy(b);
    dra_model_destroy(m);
    dra_examples_close(e);
}

/* Of long rows the first T are read. */
static void rows_are_cut(void **state)
{
    const int32_t         ids[1][6] = {{1, 2, 3, 4, 5, 6}};
    const dra_tensor_item item = {"ids", DRA_I32, DRA_SHAPE(1, 6), ids};
    dra_examples         *e = put_examples(&item, 1);
    dra_model            *m = make_model(NULL, NULL, NULL);
    dra_batches_config    c = {.model = m, .examples = e, .B = 1, .T = 3};
    dra_batches          *b = NULL;
    dra_error             err = {0};
    expect_ok(dra_objective_complete(&c.objective, m, &err), &err);
    expect_ok(dra_batches_create(&c, &b, &err), &err);
    const dra_batch q = take(b, 0);
    assert_int_equal(q.T, 3);
    assert_memory_equal(q.ids, ((int32_t[]){1, 2, 3}), 12);
    assert_memory_equal(q.targets, ((int32_t[]){2, 3, 4}), 12);
    dra_batches_destroy(b);
    dra_model_destroy(m);
    dra_examples_close(e);
}

static void a_mask_says_which_are_there(void **state)
{
    const int32_t         ids[1][4] = {{1, 2, 3, 4}};
    const bool            mask[1][4] = {{true, true, true, false}};
    const dra_tensor_item items[] = {{"ids", DRA_I32, DRA_SHAPE(1, 4), ids},
                                     {"mask", DRA_BOOL, DRA_SHAPE(1, 4), mask}};
    dra_examples         *e = put_examples(items, 2);
    dra_model            *causal = make_model(NULL, NULL, NULL),
              *encoder = make_model(NULL, NULL, bidirectional);
    dra_batches *b = make_batches(causal, e, 1, true);
    dra_batch    q = take(b, 0);
    assert_memory_equal(q.ids, ((int32_t[]){1, 2, 0}), 12);
    assert_memory_equal(q.targets, ((int32_t[]){2, 3, -1}), 12);
    dra_batches_destroy(b);
    b = make_batches(encoder, e, 1, true);
    q = take(b, 0);
    assert_int_equal(q.T, 4);
    assert_true(q.marked);
    assert_memory_equal(q.mark, ((int32_t[]){RESET, 0, 0, PAD}), 16);
    assert_int_equal(q.targets[3], -1);
    dra_batches_destroy(b);
    dra_model_destroy(causal);
    dra_model_destroy(encoder);
    dra_examples_close(e);
}

static void conditions_come_along(void **state)
{
    const int32_t         ids[2][3] = {{1, 2, 3}, {4, 5, 6}};
    const float           condition[2][2] = {{0.5f, -1}, {2, 3}};
    const dra_tensor_item items[] = {{"ids", DRA_I32, DRA_SHAPE(2, 3), ids},
                                     {"condition", DRA_F32, DRA_SHAPE(2, 2), condition}};
    const char *const     how[] = {"norm_gain=condition", "condition.dim=2", NULL};
    dra_examples         *e = put_examples(items, 2);
    dra_model            *m = make_model(NULL, NULL, how);
    dra_batches          *b = make_batches(m, e, 2, true);
    const dra_batch       q = take(b, 0);
    const dra_real       *c = input(&q, "condition", 4 * sizeof *c);
    for (int r = 0; r < 2; r++) {
        const int which = q.ids[r * q.T] == 4;
        for (int i = 0; i < 2; i++) assert_true(c[2 * r + i] == (dra_real)condition[which][i]);
    }
    dra_batches_destroy(b);
    dra_model_destroy(m);
    dra_examples_close(e);
}

/* What a token of a prefix sees it need not learn to predict. */
static void prefixes_are_marked(void **state)
{
    enum { PREFIX = DRA_MARK_PREFIX };
    const int32_t         ids[1][5] = {{1, 2, 3, 4, 5}}, prefix[1] = {3};
    const dra_tensor_item items[] = {{"ids", DRA_I32, DRA_SHAPE(1, 5), ids},
                                     {"prefix", DRA_I32, DRA_SHAPE(1), prefix}};
    dra_examples         *e = put_examples(items, 2);
    dra_model            *causal = make_model(NULL, NULL, NULL),
              *m = make_model(NULL, NULL, (const char *const[]){"visible=prefix", NULL});
    dra_batches *b = make_batches(m, e, 1, true);
    dra_batch    q = take(b, 0);
    assert_true(q.marked);
    assert_memory_equal(q.mark, ((int32_t[]){RESET | PREFIX, PREFIX, PREFIX, 0}), 16);
    assert_memory_equal(q.targets, ((int32_t[]){-1, -1, 4, 5}), 16);
    dra_batches_destroy(b);
    b = make_batches(causal, e, 1, true);
    q = take(b, 0);
    assert_false(q.marked);
    assert_memory_equal(q.targets, ((int32_t[]){2, 3, 4, 5}), 16);
    dra_batches_destroy(b);
    dra_model_destroy(causal);
    dra_model_destroy(m);
    dra_examples_close(e);
}

/* ---- vectors, numbers, labels ---------------------------------------------------------------- */

static void vectors_predict_the_next(void **state)
{
    const dra_source_config source = {.kind = DRA_SOURCE_VECTORS, .dim = 2};
    const dra_head_config   head = {.kind = DRA_HEAD_VECTORS, .dim = 2};
    const float             x[1][4][2] = {{{1, 2}, {3, 4}, {5, 6}, {7, 8}}};
    const bool              mask[1][4] = {{true, true, false, false}};
    const dra_tensor_item   items[] = {{"x", DRA_F32, DRA_SHAPE(1, 4, 2), x},
                                       {"mask", DRA_BOOL, DRA_SHAPE(1, 4), mask}};
    for (int masked = 0; masked < 2; masked++)
        for (int alike = 0; alike < 2; alike++) {
            dra_examples      *e = put_examples(items, masked ? 2 : 1);
            dra_model         *m = make_model(&source, &head, NULL);
            dra_batches_config c = {.model = m, .examples = e, .B = 1};
            dra_batches       *b = NULL;
            dra_error          err = {0};
            c.objective.equal_rows = alike;
            expect_ok(dra_objective_complete(&c.objective, m, &err), &err);
            assert_int_equal(c.objective.kind, DRA_OBJECTIVE_SQUARED);
            expect_ok(dra_batches_create(&c, &b, &err), &err);
            const dra_batch q = take(b, 0);
            const size_t    real = sizeof(dra_real);
            const int       T = masked ? 3 : 3, kept = masked ? 2 : 3;
            assert_int_equal(q.T, T);
            assert_null(q.ids);
            assert_null(q.targets);
            const dra_real *in = input(&q, "x", 6 * real), *y = input(&q, "y", 6 * real),
                           *w = input(&q, "weights", 3 * real);
            for (int t = 0; t < 3; t++) {
                assert_true(w[t] == (t < kept ? (alike ? (dra_real)1 / (dra_real)kept : 1) : 0));
                if (t < kept) assert_true(in[2 * t] == (dra_real)(2 * t + 1));
                assert_true(y[2 * t] == (dra_real)(2 * t + 3));
            }
            assert_true(q.total == (alike ? 1 : kept));
            dra_batches_destroy(b);
            dra_model_destroy(m);
            dra_examples_close(e);
        }
}

static void numbers_come_with_their_tokens(void **state)
{
    const dra_source_config source = {.numbers = true, .number_token = 3};
    const dra_head_config   head = {.numbers = true};
    const int32_t           ids[1][4] = {{3, 1, 3, 2}};
    const float             nums[1][4] = {{0.5f, NAN, 2, INFINITY}}, bad[1][4] = {{1, 0, NAN, 0}};
    const dra_tensor_item   items[] = {{"ids", DRA_I32, DRA_SHAPE(1, 4), ids},
                                       {"nums", DRA_F32, DRA_SHAPE(1, 4), nums}},
                          wrong[] = {items[0], {"nums", DRA_F32, DRA_SHAPE(1, 4), bad}};
    const size_t    bytes = 3 * sizeof(dra_real);
    dra_model      *m = make_model(&source, &head, NULL);
    dra_examples   *e = put_examples(items, 2);
    dra_batches    *b = make_batches(m, e, 1, true);
    dra_batch       q = take(b, 0);
    const dra_real *now = input(&q, "nums", bytes), *next = input(&q, "numbers", bytes);
    assert_true(now[0] == (dra_real)0.5 && now[1] == 1 && now[2] == 2);
    assert_true(next[0] == 0 && next[1] == 2 && next[2] == 0);
    dra_batches_config c = {.model = m, .examples = NULL, .B = 1};
    dra_error          err = {0};
    expect_ok(dra_objective_complete(&c.objective, m, &err), &err);
    dra_batches_destroy(b);
    dra_examples_close(e);
    c.examples = e = put_examples(wrong, 2);
    assert_int_equal(dra_batches_create(&c, &b, &err), DRA_ERR_FORMAT);
    check_error(&err, DRA_ERR_FORMAT, "e.safetensors",
                ": tensor 'nums', example 0: element 2 is nan, but the token there is a number");
    dra_examples_close(e);
    dra_model_destroy(m);
}

static void labels_of_images(void **state)
{
    const dra_source_config source = {
        .kind = DRA_SOURCE_IMAGE, .size = 4, .patch = 2, .channels = 1};
    const dra_head_config head = {.kind = DRA_HEAD_CLASSES, .dim = 3};
    float                 img[2][1][4][4];
    const int32_t         labels[2] = {2, -100};
    for (int i = 0; i < 32; i++) ((float *)img)[i] = (float)i;
    const dra_tensor_item items[] = {{"img", DRA_F32, DRA_SHAPE(2, 1, 4, 4), img},
                                     {"labels", DRA_I32, DRA_SHAPE(2), labels}};
    dra_model            *m = make_model(&source, &head, bidirectional_of_four);
    dra_examples         *e = put_examples(items, 2);
    dra_batches          *b = make_batches(m, e, 3, true);
    const dra_batch       q = take(b, 0);
    const dra_real       *x = input(&q, "img", 48 * sizeof *x);
    const int32_t        *label = input(&q, "labels", 12);
    dra_batch_part        room;
    dra_microbatch        part = {0};
    assert_int_equal(q.T, 4);
    assert_int_equal(label[2], -1);
    assert_int_equal(label[0] + label[1], 1);
    assert_true(q.total == 1);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 16; i++)
            assert_true(x[16 * r + i] == (dra_real)(16 * (label[r] < 0) + i));
    assert_true(dra_batch_cut(&q, 1, 2, &room, &part) == (label[1] >= 0));
    assert_int_equal(part.B, 2);
    assert_ptr_equal(room.input[0].data, x + 16);
    assert_int_equal(room.input[1].bytes, 8);
    dra_batches_destroy(b);
    dra_examples_close(e);
    dra_model_destroy(m);
}

/* ---- what comes before a text ---------------------------------------------------------------- */

#define EYE                                                                                        \
    "\"eye\":{\"dim\":8,\"depth\":1,\"heads\":2,\"visible\": \"bidirectional\",\"source\":"        \
    "{\"kind\":\"image\",\"size\":2,\"patch\":1,\"channels\":1}}"

#define SIZES "\"vocab\":10,\"dim\":8,\"depth\":1,\"heads\":2,"
static const char after_image[] = EYE
    ",\"encoder\":{" SIZES "\"visible\": \"bidirectional\",\"prepend\":\"eye\"},"
    "\"decoder\":{" SIZES "\"layout\":\"acf\",\"context\":\"encoder\"}";
static const char text_after[] = EYE ",\"text\":{" SIZES
                                     "\"visible\": \"bidirectional\",\"prepend\":\"eye\"}";

static dra_model *make_stacks(const char *stacks)
{
    char json[1000];
    CHECK_CONFIG(c);
    dra_model *m = NULL;
    dra_error  err = {0};
    snprintf(json, sizeof json, "{\"model_type\":\"dra\",\"stacks\":{%s}}", stacks);
    expect_ok(dra_model_config_parse("json", json, strlen(json), &c, &err), &err);
    expect_ok(dra_model_create(c, &m, &err), &err);
    return m;
}

static const float pictures[3][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};

/* Four patches come before a source: its marks have room for them, its ids have not. */
static void images_before_a_source(void **state)
{
    const int32_t         src[3][3] = {{1, 2, 3}, {4, 5, -100}, {6, -100, -100}};
    const int32_t         tgt[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
    const dra_tensor_item items[] = {{"img", DRA_F32, DRA_SHAPE(3, 1, 2, 2), pictures},
                                     {"src", DRA_I32, DRA_SHAPE(3, 3), src},
                                     {"tgt", DRA_I32, DRA_SHAPE(3, 3), tgt}};
    dra_examples         *e = put_examples(items, 3);
    dra_model            *m = make_stacks(after_image);
    dra_batches          *b = make_batches(m, e, 4, true);
    dra_batch             q = take(b, 0);
    assert_int_equal(q.T, 2);
    assert_int_equal(q.context.T, 4 + 3);
    const dra_real *img = input(&q, "img", 4 * 4 * sizeof *img);
    const int32_t  *ids = input(&q, "src", 4 * 3 * sizeof *ids);
    for (int r = 0; r < 4; r++) {
        const int which = q.ids[r * 2] / 3; /* 0 of the row without an example, too */
        const int n = q.mark[r * 2] & PAD ? 0 : 4 + 3 - which;
        for (int t = 0; t < 7; t++) assert_int_equal(q.context.mark[r * 7 + t], t < n ? 0 : PAD);
        for (int t = 0; t < 4 && n; t++) assert_true(img[r * 4 + t] == (dra_real)(4 * which + t));
        if (n) assert_int_equal(ids[r * 3], src[which][0]);
    }
    dra_batch_part room;
    dra_microbatch part = {0};
    assert_true(dra_batch_cut(&q, 1, 2, &room, &part) > 0);
    assert_ptr_equal(part.context->mark, q.context.mark + 7);
    dra_batches_destroy(b);
    dra_model_destroy(m);
    dra_examples_close(e);
}

/* The same before the text itself: targets have room for them, too, and the text starts with the
 * image. */
static void images_before_a_text(void **state)
{
    const int32_t         ids[3][3] = {{1, 2, 3}, {4, 5, -100}, {6, -100, -100}};
    const dra_tensor_item items[] = {{"img", DRA_F32, DRA_SHAPE(3, 1, 2, 2), pictures},
                                     {"ids", DRA_I32, DRA_SHAPE(3, 3), ids}};
    dra_examples         *e = put_examples(items, 2);
    dra_model            *m = make_stacks(text_after);
    dra_batches_config    c = {.model = m, .examples = e, .B = 4, .once = true};
    dra_batches          *b = NULL;
    dra_error             err = {0};
    c.objective = (dra_objective_config){.mask_share = 1};
    expect_ok(dra_objective_complete(&c.objective, m, &err), &err);
    expect_ok(dra_batches_create(&c, &b, &err), &err);
    assert_int_equal(dra_batches_longest(b), 3);
    const dra_batch q = take(b, 0);
    assert_int_equal(q.T, 4 + 3);
    assert_null(q.ids);
    assert_true(q.marked && q.total == 6 && q.tokens == 6);
    input(&q, "ids", 4 * 3 * sizeof(int32_t));
    const dra_real *img = input(&q, "img", 4 * 4 * sizeof *img);
    for (int r = 0; r < 4; r++) {
        const int32_t *mark = q.mark + r * 7, *targets = q.targets + r * 7;
        const int      which = (int)img[r * 4] / 4, n = (int)q.counts[r];
        assert_int_equal(mark[0], n ? RESET : PAD);
        for (int t = 1; t < 7; t++) assert_int_equal(mark[t], n && t < 4 + n ? 0 : PAD);
        for (int t = 0; t < 4; t++) assert_int_equal(targets[t], -1);
        for (int t = 0; t < 3; t++) assert_int_equal(targets[4 + t], t < n ? ids[which][t] : -1);
    }
    dra_batches_destroy(b);
    dra_model_destroy(m);
    dra_examples_close(e);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(const dra_model *m, const dra_tensor_item *items, size_t n, dra_status code,
                    const char *text)
{
    dra_examples      *e = put_examples(items, n);
    dra_batches_config c = {.model = m, .examples = e, .B = 2};
    dra_batches       *b = (dra_batches *)e;
    dra_error          err = {0};
    expect_ok(dra_objective_complete(&c.objective, m, &err), &err);
    assert_int_equal(dra_batches_create(&c, &b, &err), code);
    assert_null(b);
    check_error(&err, code, "e.safetensors", text);
    dra_examples_close(e);
}

static void refuses_by_name(void **state)
{
    static const int32_t  zeros[100], ten[2] = {0, 10}, three[2] = {0, 3};
    static const float    reals[200], nan[2] = {0, NAN};
    static const bool     hole[2][2] = {{true, true}, {false, true}};
    dra_model            *m = make_model(NULL, NULL, NULL);
    const dra_tensor_item ids = {"ids", DRA_I32, DRA_SHAPE(2, 2), zeros};
    refused(m, &(dra_tensor_item){"idz", DRA_I32, DRA_SHAPE(2, 2), zeros}, 1, DRA_ERR_NAME,
            ": no tensor 'ids', expected ids of tokens");
    refused(m, &(dra_tensor_item){"ids", DRA_I32, DRA_SHAPE(2, 2, 1), zeros}, 1, DRA_ERR_SHAPE,
            ": tensor 'ids': examples of shape (2, 1), expected (2): ids of tokens");
    refused(m, &(dra_tensor_item){"ids", DRA_F32, DRA_SHAPE(2, 2), reals}, 1, DRA_ERR_DTYPE,
            ": tensor 'ids': dtype F32, expected integers");
    refused(m, &(dra_tensor_item){"ids", DRA_I32, DRA_SHAPE(1, 2), ten}, 1, DRA_ERR_FORMAT,
            ": tensor 'ids', example 0: element 1 is 10, expected 0 to 9, or -100 where there is "
            "none");
    refused(m, &(dra_tensor_item){"ids", DRA_I32, DRA_SHAPE(2, 42), zeros}, 1, DRA_ERR_SHAPE,
            ": tensor 'ids': rows of 41, but the model has learned positions for 40");
    refused(m, &(dra_tensor_item){"ids", DRA_I32, DRA_SHAPE(2, 1), zeros}, 1, DRA_ERR_SHAPE,
            ": tensor 'ids': rows of 1, too few to predict one");
    refused(m, (dra_tensor_item[]){ids, {"mask", DRA_BOOL, DRA_SHAPE(2, 2), hole}}, 2,
            DRA_ERR_FORMAT,
            ": tensor 'mask', example 1: element 0 is 0, but later ones are not: expected pads at "
            "the end");
    dra_model_destroy(m);
    const dra_source_config source = {.kind = DRA_SOURCE_VECTORS, .dim = 1};
    const dra_head_config   head = {.kind = DRA_HEAD_CLASSES, .dim = 3};
    const dra_tensor_item   x = {"x", DRA_F32, DRA_SHAPE(2, 1, 1), reals};
    m = make_model(&source, &head, bidirectional_of_four);
    refused(m, &x, 1, DRA_ERR_NAME, ": no tensor 'labels', expected a class of each");
    refused(m, (dra_tensor_item[]){x, {"labels", DRA_I32, DRA_SHAPE(2), three}}, 2, DRA_ERR_FORMAT,
            ": tensor 'labels', example 1: element 0 is 3, expected 0 to 2, or -100 where there is "
            "none");
    refused(m, &(dra_tensor_item){"x", DRA_F32, DRA_SHAPE(2, 1, 1), nan}, 1, DRA_ERR_FORMAT,
            ": tensor 'x', example 1: element 0 is nan, expected a finite number");
    refused(m, &(dra_tensor_item){"x", DRA_F32, DRA_SHAPE(2, 1, 5), reals}, 1, DRA_ERR_SHAPE,
            ": tensor 'x': examples of shape (1, 5), expected (1, 1): vectors");
    dra_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_reads_all_but_the_last),
        cmocka_unit_test(gaps_are_not_predicted),
        cmocka_unit_test(rows_are_no_longer_than_needed),
        cmocka_unit_test(rows_are_cut),
        cmocka_unit_test(a_mask_says_which_are_there),
        cmocka_unit_test(prefixes_are_marked),
        cmocka_unit_test(conditions_come_along),
        cmocka_unit_test(vectors_predict_the_next),
        cmocka_unit_test(numbers_come_with_their_tokens),
        cmocka_unit_test(images_before_a_source),
        cmocka_unit_test(images_before_a_text),
        cmocka_unit_test(labels_of_images),
        cmocka_unit_test(refuses_by_name),
    };
    return cmocka_run_group_tests_name("batches", tests, folder_make, folder_remove);
}
