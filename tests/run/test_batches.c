/* Batches of examples: what is made of tensors by name, what is refused of them; and runs on them:
 * evaluation, resuming. */
#include "file/folder.h"

#include <math.h>

#include "base/shape.h"
#include "dra/train.h"

enum { PAD = DRA_MARK_PAD, RESET = DRA_MARK_RESET };

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static dra_model *make_model(const dra_source_config *source, const dra_head_config *head,
                             const char *const *settings)
{
    dra_model_config c;
    dra_model       *m = NULL;
    dra_error        err = {0};
    char             key[100];
    expect_ok(dra_preset_config("gpt2-tiny", &c, &err), &err);
    c.dim = 8, c.heads = 2, c.depth = 2, c.vocab = 10, c.context = 40;
    if (source) c.source = *source;
    if (head) c.head = *head;
    for (; settings && *settings; settings++) {
        const char *equals = strchr(*settings, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - *settings), *settings);
        expect_ok(dra_model_config_set(&c, key, equals + 1, &err), &err);
    }
    expect_ok(dra_model_create(&c, &m, &err), &err);
    return m;
}

static dra_examples *put_examples(const dra_tensor_item *items, size_t n)
{
    const dra_examples_config c = {.path = in_folder("e.safetensors"), .B = 1};
    dra_examples             *e = NULL;
    dra_error                 err = {0};
    expect_ok(dra_tensors_write(c.path, items, n, NULL, 0, &err), &err);
    expect_ok(dra_examples_open(&c, &e, &err), &err);
    return e;
}

static dra_batches *make_batches(const dra_model *m, const dra_examples *e, int64_t B, bool once)
{
    dra_batches_config c = {.model = m, .examples = e, .B = B, .once = once};
    dra_batches       *b = NULL;
    dra_error          err = {0};
    expect_ok(dra_objective_complete(&c.objective, m, &err), &err);
    expect_ok(dra_batches_create(&c, &b, &err), &err);
    return b;
}

static dra_batch take(dra_batches *b, int64_t i)
{
    dra_batch q;
    dra_error err = {0};
    expect_ok(dra_batches_read(b, i, i + 1, &q, &err), &err);
    return q;
}

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
              *encoder = make_model(NULL, NULL, (const char *const[]){"visible=whole", NULL});
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
    dra_model      *m = make_model(&source, &head, (const char *const[]){"visible=whole", NULL});
    dra_examples   *e = put_examples(items, 2);
    dra_batches    *b = make_batches(m, e, 3, true);
    const dra_batch q = take(b, 0);
    const dra_real *x = input(&q, "img", 48 * sizeof *x);
    const int32_t  *label = input(&q, "labels", 12);
    dra_batch_part  room;
    dra_microbatch  part = {0};
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
    m = make_model(&source, &head, (const char *const[]){"visible=whole", NULL});
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

/* ---- runs ------------------------------------------------------------------------------------ */

/* Rows of different lengths that count upwards. */
static dra_examples *counting_rows(void)
{
    static int32_t ids[24][12];
    for (int i = 0; i < 24; i++)
        for (int t = 0; t < 12; t++) ids[i][t] = t < 4 + i % 9 ? (i + t) % 10 : -100;
    return put_examples(&(dra_tensor_item){"ids", DRA_I32, DRA_SHAPE(24, 12), ids}, 1);
}

typedef struct course {
    dra_device   *device;
    dra_model    *model;
    dra_examples *examples;
} course;

static void open_course(course *c)
{
    dra_error err = {0};
    c->model = make_model(NULL, NULL, NULL);
    c->examples = counting_rows();
    expect_ok(check_cpu(NULL, &c->device, &err), &err);
}

static void close_course(course *c)
{
    dra_examples_close(c->examples);
    dra_model_destroy(c->model);
    dra_device_destroy(c->device);
}

/* The same as the mean of all losses that a reader sees. */
static void evaluation_is_the_mean_loss(void **state)
{
    course         c;
    dra_error      err = {0};
    dra_weights   *w = NULL;
    dra_gradients *l = NULL;
    dra_evaluation found;
    open_course(&c);
    expect_ok(dra_weights_draw(c.model, 3, &w, &err), &err);
    const dra_gradients_config g = {.model = c.model, .device = c.device, .smoothing = 0.3};
    expect_ok(dra_gradients_create(&g, &l, &err), &err);
    expect_ok(dra_gradients_bind(l, w, &err), &err);
    dra_batches *b = make_batches(c.model, c.examples, 5, true);
    expect_ok(dra_batches_evaluate(b, l, &found, &err), &err);
    const dra_view   view = {.model = c.model, .losses = true};
    const dra_module module = dra_view_module(&view);
    dra_reader      *r = NULL;
    dra_states      *s = NULL;
    double           sum = 0, n = 0;
    expect_ok(dra_reader_create(c.device, &module, &r, &err), &err);
    expect_ok(dra_weights_bind(w, r, &err), &err);
    expect_ok(dra_states_create(c.device, module.state, 5, &s, &err), &err);
    for (int64_t i = 0; i < dra_batches_steps(b); i++) {
        const dra_batch q = take(b, i);
        const size_t    bytes = (size_t)(q.B * q.T) * sizeof *q.ids;
        const dra_named in[] = {{"ids", q.ids, bytes}, {"targets", q.targets, bytes}};
        expect_ok(dra_states_reset(s, -1, &err), &err);
        expect_ok(dra_reader_read(r, s, q.T, q.mark, 2, in, &err), &err);
        const dra_real *losses = dra_reader_result(r, "losses");
        for (int64_t k = 0; k < q.B * q.T; k++)
            if (q.targets[k] >= 0) sum += (double)losses[k], n++;
    }
    assert_true(found.count == n);
    assert_true(fabs(found.loss - sum / n) <= 1e-6 * found.loss);
    assert_true(found.measure[0] == exp(found.loss));
    dra_states_destroy(s);
    dra_reader_destroy(r);
    dra_batches_destroy(b);
    dra_gradients_destroy(l);
    dra_weights_destroy(w);
    close_course(&c);
}

static bool stop_at(void *user, const dra_event *e)
{
    assert_string_equal(e->measure_name[0], "perplexity");
    assert_null(e->measure_name[1]);
    assert_true(e->measure[0] == exp(e->loss));
    if (e->kind == DRA_EVENT_EVAL) assert_true(e->eval_measure[0] == exp(e->eval_loss));
    return e->step < *(const int64_t *)user;
}

static dra_status train(const course *c, const char *name, int64_t until, bool resume,
                        const dra_train_config *train, dra_error *err)
{
    dra_trainer             *t = NULL;
    const dra_trainer_config config = {.folder = in_folder(name),
                                       .train = train,
                                       .device = c->device,
                                       .model = c->model,
                                       .examples = c->examples,
                                       .resume = resume};
    dra_status               st = dra_trainer_create(&config, &t, err);
    if (st == DRA_OK) st = dra_trainer_run(t, stop_at, &until, err);
    dra_trainer_destroy(t);
    return st;
}

static void expect_same_file(const char *a, const char *b)
{
    char  *x[2];
    size_t n[2];
    assert_int_equal(dra_file_read(in_folder(a), 1 << 24, &x[0], &n[0], NULL), DRA_OK);
    assert_int_equal(dra_file_read(in_folder(b), 1 << 24, &x[1], &n[1], NULL), DRA_OK);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(x[0], x[1], n[0]);
    free(x[0]), free(x[1]);
}

static int remove_runs(void **state)
{
    char text[700];
    snprintf(text, sizeof text, "rm -rf '%s'/*", folder);
    return system(text);
}

static void a_resumed_run_is_the_same(void **state)
{
    const dra_train_config settings = {
        .steps = 8, .batch = 4, .accumulate = 2, .lr = 0.01, .split = 0.25, .eval_every = 4};
    const dra_train_config same = {0}, other = {.cross = true},
                           stages = {.stages = 2, .stage = {{8, 0}, {9, 1}}};
    course    c;
    dra_error err = {0};
    open_course(&c);
    expect_ok(train(&c, "whole", 8, false, &settings, &err), &err);
    expect_ok(train(&c, "cut", 3, false, &settings, &err), &err);
    expect_ok(train(&c, "cut", 8, true, &same, &err), &err);
    expect_same_file("whole/model.safetensors", "cut/model.safetensors");
    assert_int_equal(train(&c, "none", 1, false, &other, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "train: cross: the data are examples, expected texts");
    assert_int_equal(train(&c, "none", 1, false, &stages, &err), DRA_ERR_VALUE);
    assert_int_equal(access(in_folder("none"), F_OK), -1);
    close_course(&c);
}

/* ---- preferences ----------------------------------------------------------------------------- */

static dra_examples *make_pairs(void)
{
    static int32_t a[6][8], b[6][8];
    static bool    prompt[6][8];
    for (int i = 0; i < 6; i++)
        for (int t = 0; t < 8; t++) {
            a[i][t] = (i + t) % 10, b[i][t] = t < 3 ? (i + t) % 10 : (i + 7 * t) % 10;
            prompt[i][t] = t < 3;
            if (t > 6 - i % 2) b[i][t] = -100;
        }
    const dra_tensor_item items[] = {{"preferred", DRA_I32, DRA_SHAPE(6, 8), a},
                                     {"unpreferred", DRA_I32, DRA_SHAPE(6, 8), b},
                                     {"prompt_mask", DRA_BOOL, DRA_SHAPE(6, 8), prompt}};
    return put_examples(items, 3);
}

static void rows_are_pairs(void **state)
{
    course       c;
    dra_error    err = {0};
    dra_batches *b = NULL;
    open_course(&c);
    dra_examples      *pairs = make_pairs();
    dra_batches_config config = {.model = c.model, .examples = pairs, .B = 4};
    config.objective.kind = DRA_OBJECTIVE_DPO;
    expect_ok(dra_objective_complete(&config.objective, c.model, &err), &err);
    expect_ok(dra_batches_create(&config, &b, &err), &err);
    assert_int_equal(dra_batches_steps(b), 3);
    const dra_batch q = take(b, 0);
    assert_int_equal(q.T, 7);
    for (int r = 0; r < 4; r += 2) {
        const int32_t *x = q.ids + r * 7, *y = x + 7, *target = q.targets + r * 7;
        assert_memory_equal(x, y, 3 * sizeof *x); /* the prompt */
        assert_int_equal(y[3], (x[0] + 21) % 10);
        for (int t = 0; t < 7; t++) assert_int_equal(target[t], t < 3 ? -1 : (x[0] + t + 1) % 10);
        assert_true(q.counts[r] == 4 && q.counts[r + 1] == 3 - x[0] % 2);
    }
    dra_batches_destroy(b);
    config.B = 3;
    assert_int_equal(dra_batches_create(&config, &b, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "objective dpo: 3 rows of a microbatch, expected pairs of rows");
    dra_examples_close(pairs);
    close_course(&c);
}

typedef struct watching {
    int64_t until;
    double  first, last, accuracy;
} watching;

static bool watch(void *user, const dra_event *e)
{
    watching *w = user;
    assert_string_equal(e->measure_name[0], "accuracy");
    if (e->kind == DRA_EVENT_STEP && e->step == 1) w->first = e->loss;
    w->last = e->loss, w->accuracy = e->measure[0];
    return e->step < w->until;
}

static watching prefer(const course *c, const char *name, int64_t until, bool resume)
{
    const dra_train_config first = {.steps = 20,
                                    .batch = 4,
                                    .accumulate = 2,
                                    .lr = 0.01,
                                    .objective = {.kind = DRA_OBJECTIVE_DPO, .beta = 2}},
                           again = {0};
    const dra_trainer_config config = {.folder = in_folder(name),
                                       .train = resume ? &again : &first,
                                       .device = c->device,
                                       .model = c->model,
                                       .examples = c->examples,
                                       .resume = resume};
    dra_trainer             *t = NULL;
    dra_error                err = {0};
    watching                 w = {.until = until};
    expect_ok(dra_trainer_create(&config, &t, &err), &err);
    expect_ok(dra_trainer_run(t, watch, &w, &err), &err);
    dra_trainer_destroy(t);
    return w;
}

/* It starts from ln 2: nothing is preferred to what the model of the start does. */
static void preferences_are_learned(void **state)
{
    course c;
    open_course(&c);
    dra_examples_close(c.examples);
    c.examples = make_pairs();
    const watching whole = prefer(&c, "whole", 20, false);
    assert_true(fabs(whole.first - log(2)) < 1e-6);
    assert_true(whole.last < 0.6 && whole.accuracy == 1);
    prefer(&c, "cut", 7, false);
    prefer(&c, "cut", 20, true);
    expect_same_file("whole/model.safetensors", "cut/model.safetensors");
    close_course(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_reads_all_but_the_last),
        cmocka_unit_test(rows_are_no_longer_than_needed),
        cmocka_unit_test(rows_are_cut),
        cmocka_unit_test(a_mask_says_which_are_there),
        cmocka_unit_test(vectors_predict_the_next),
        cmocka_unit_test(numbers_come_with_their_tokens),
        cmocka_unit_test(labels_of_images),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(evaluation_is_the_mean_loss),
        cmocka_unit_test(rows_are_pairs),
        cmocka_unit_test_setup_teardown(preferences_are_learned, remove_runs, remove_runs),
        cmocka_unit_test_setup_teardown(a_resumed_run_is_the_same, remove_runs, remove_runs),
    };
    return cmocka_run_group_tests_name("batches", tests, folder_make, folder_remove);
}
