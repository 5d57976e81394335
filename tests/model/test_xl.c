/* Transformer-XL: what memories must do, and its loss and gradients against x-transformers.
 * tests/data/golden-xl.json has the loss of a text in several segments and the gradient of every
 * parameter; tests/parity/xl.py made it. That reading whole is reading in chunks, also in
 * gradients, is shown by model/test_stacks; numbers of the library also by
 * formats/xt/test_xt_golden. */
#include "formats/xt/xt_tensors.h"

#include "dra/generate.h"

#ifdef DRA_REAL_DOUBLE
#define EQUAL 1e-11
#define GOLDEN 1e-7 /* tensors of checkpoints are float32 */
#else
#define EQUAL 2e-5
#define GOLDEN 2e-5
#endif

enum { B = 2, N = 23, VOCAB = 11, L = 5 };

typedef struct xl {
    dra_model     *model;
    dra_weights   *weights;
    dra_device    *device;
    dra_view       view;
    dra_reader    *reader;
    dra_gradients *gradients;
    int32_t        ids[B * N], targets[B * N];
} xl;

static void open_xl(xl *x, const char *options)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    char      text[600];
    snprintf(text, sizeof text,
             "{\"model_type\": \"dra\", \"vocab\": 11, \"dim\": 12, \"depth\": 2, \"heads\": 3, "
             "\"context\": 5, \"ff\": {\"dim\": 16}%s}",
             options);
    *x = (xl){.device = check_device(2, dra_device_level_at(0))};
    expect_ok(dra_model_config_parse("xl", text, strlen(text), &c, &err), &err);
    expect_ok(dra_model_create(c, &x->model, &err), &err);
    expect_ok(dra_weights_draw(x->model, 3, &x->weights, &err), &err);
    for (int i = 0; i < B * N; i++) {
        x->ids[i] = (i * 5 + i * i * 3) % VOCAB;
        x->targets[i] = (i * 7 + 2) % VOCAB;
    }
}

static void open_reader(xl *x, dra_view view)
{
    dra_error err = {0};
    view.model = x->model;
    x->view = view;
    const dra_module module = dra_view_module(&x->view);
    dra_reader_destroy(x->reader);
    expect_ok(dra_reader_create(x->device, &module, &x->reader, &err), &err);
    expect_ok(dra_weights_bind(x->weights, x->reader, &err), &err);
}

static void open_gradients(xl *x, bool recompute)
{
    const dra_gradients_config c = {.model = x->model, .device = x->device, .recompute = recompute};
    dra_error                  err = {0};
    dra_gradients_destroy(x->gradients);
    expect_ok(dra_gradients_create(&c, &x->gradients, &err), &err);
    expect_ok(dra_gradients_bind(x->gradients, x->weights, &err), &err);
}

static void close_xl(xl *x)
{
    dra_reader_destroy(x->reader);
    dra_gradients_destroy(x->gradients);
    dra_weights_destroy(x->weights);
    dra_model_destroy(x->model);
}

static dra_states *new_states(const xl *x, int64_t rows)
{
    dra_error   err = {0};
    dra_states *s = NULL;
    expect_ok(dra_states_create(x->device, dra_model_state(x->model), rows, &s, &err), &err);
    return s;
}

/* An output of reading tokens first .. first + n - 1 of all rows, with further inputs. */
static const dra_real *read_some(xl *x, dra_states *s, int64_t first, int64_t n,
                                 const dra_named *more, const char *name)
{
    int32_t   ids[B * N];
    dra_error err = {0};
    for (int64_t b = 0; b < B; b++)
        memcpy(ids + b * n, x->ids + b * N + first, (size_t)n * sizeof *ids);
    const dra_named in[] = {{"ids", ids, (size_t)(B * n) * sizeof *ids},
                            more ? *more : (dra_named){0}};
    expect_ok(dra_reader_read(x->reader, s, n, NULL, more ? 2 : 1, in, &err), &err);
    const dra_real *y = dra_reader_result(x->reader, name);
    assert_non_null(y);
    return y;
}

static double worst_of(int64_t n, const dra_real *a, const dra_real *b)
{
    double worst = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d;
        most = fmax(most, fabs((double)b[i]));
    }
    return worst / most;
}

/* ---- what memories do ------------------------------------------------------------------------ */

/* A memory as long as the text sees what attention over all of it sees, since hidden states depend
 * on what came before alone; a shorter one does not. With one layer `down` changes nothing. */
static void long_memories_see_the_joint_text(void **unused)
{
    static const char *const how[] = {
        "", ", \"position\": {\"rotate\": \"rotary\"}, \"mixer\": {\"kv_heads\": 1}",
        ", \"position\": {\"distance\": \"alibi\"}, \"block\": {\"norm\": \"post\"}",
        ", \"position\": {\"rotate\": \"xpos\"}, \"layout\": \"af\", \"order\": [0, 1]",
        ", \"position\": {\"distance\": \"t5\"}, \"mixer\": {\"mem_kv\": 1}"};
    for (size_t i = 0; i < COUNT(how); i++)
        for (int memory = 4; memory <= 24; memory += 20) {
            const int   down = strstr(how[i], "order") != NULL; /* one layer */
            dra_real    joint[B * N * VOCAB];
            char        text[300];
            xl          plain, segments;
            dra_states *a, *b;
            snprintf(text, sizeof text, "%s, \"xl\": {\"memory\": %d, \"down\": %d}", how[i],
                     memory, down);
            open_xl(&plain, how[i]);
            open_xl(&segments, text);
            open_reader(&plain, (dra_view){.logits = true});
            open_reader(&segments, (dra_view){.logits = true});
            a = new_states(&plain, B), b = new_states(&segments, B);
            memcpy(joint, read_some(&plain, a, 0, N, NULL, "logits"), sizeof joint);
            const double off = worst_of(B * N * VOCAB,
                                        read_some(&segments, b, 0, N, NULL, "logits"), joint);
            if (memory > N ? !(off <= EQUAL) : !(off > 1e-3))
                fail_msg("%s, memory %d: differs by %g", how[i], memory, off);
            dra_states_destroy(a);
            dra_states_destroy(b);
            close_xl(&plain);
            close_xl(&segments);
        }
}

/* Memories of another sublayer are another matter, but only from the second segment on. */
static void down_begins_alike(void **unused)
{
    dra_real y[2][B * N * VOCAB];
    for (int i = 0; i < 2; i++) {
        xl x;
        open_xl(&x, i ? ", \"xl\": {\"memory\": 24, \"down\": 1}" : ", \"xl\": {\"memory\": 24}");
        open_reader(&x, (dra_view){.logits = true});
        dra_states *s = new_states(&x, B);
        memcpy(y[i], read_some(&x, s, 0, N, NULL, "logits"), sizeof y[i]);
        dra_states_destroy(s);
        close_xl(&x);
    }
    check_reals(y[1], y[0], L * VOCAB * sizeof(dra_real));
    for (int t = L; t < N; t++)
        assert_true(worst_of(VOCAB, y[1] + t * VOCAB, y[0] + t * VOCAB) > 1e-3);
}

/* ---- readers --------------------------------------------------------------------------------- */

/* Of a call that is read in several parts: the last tokens, and chosen ones in any order. */
static void logits_are_chosen(void **unused)
{
    enum { P = 3 };
    const int32_t   picks[B * P] = {17, 2, -1, 0, 22, 9};
    const dra_named in = {"picks", picks, sizeof picks};
    dra_real        all[B * N * VOCAB];
    xl              x;
    open_xl(&x, ", \"xl\": {\"memory\": 7}");
    open_reader(&x, (dra_view){.logits = true});
    dra_states *s = new_states(&x, B);
    memcpy(all, read_some(&x, s, 0, N, NULL, "logits"), sizeof all);
    for (int64_t keep = 1; keep <= N; keep += 3) {
        dra_error err = {0};
        dra_shape shape;
        open_reader(&x, (dra_view){.logits = true, .keep = keep});
        expect_ok(dra_states_reset(s, -1, &err), &err);
        const dra_real *y = read_some(&x, s, 0, N, NULL, "logits");
        assert_true(dra_reader_result_shape(x.reader, "logits", &shape));
        assert_int_equal(shape.dim[1], keep);
        for (int64_t b = 0; b < B; b++)
            assert_true(worst_of(keep * VOCAB, y + b * keep * VOCAB,
                                 all + (b * N + N - keep) * VOCAB) <= EQUAL);
    }
    dra_states_destroy(s);
    s = new_states(&x, B);
    open_reader(&x, (dra_view){.logits = true, .picks = P});
    const dra_real *y = read_some(&x, s, 0, N, &in, "logits");
    for (int64_t i = 0; i < B * P; i++)
        if (picks[i] >= 0)
            assert_true(worst_of(VOCAB, y + i * VOCAB, all + (i / P * N + picks[i]) * VOCAB) <=
                        EQUAL);
    dra_states_destroy(s);
    close_xl(&x);
}

/* Every output of a call in several parts, attention maps too, is that of its parts. */
static void outputs_are_joined(void **unused)
{
    static const char *const names[] = {"hidden", "losses", "stream.1", "add.1",
                                        "layers.1.attention"};
    dra_error                err = {0};
    CHECK_CONFIG(c);
    xl x;
    open_xl(&x, ", \"xl\": {\"memory\": 7, \"down\": 1}");
    expect_ok(dra_model_config_copy(dra_model_config_of(x.model), &c, &err), &err);
    c->maps = true;
    dra_weights_destroy(x.weights);
    dra_model_destroy(x.model);
    expect_ok(dra_model_create(c, &x.model, &err), &err);
    expect_ok(dra_weights_draw(x.model, 3, &x.weights, &err), &err);
    open_reader(
        &x,
        (dra_view){.hidden = true, .losses = true, .streams = true, .adds = true, .maps = true});
    for (size_t i = 0; i < COUNT(names); i++) {
        const dra_named whole = {"targets", x.targets, sizeof x.targets};
        dra_states     *a = new_states(&x, B), *b = new_states(&x, B);
        dra_shape       shape;
        read_some(&x, a, 0, N, &whole, names[i]);
        assert_true(dra_reader_result_shape(x.reader, names[i], &shape));
        const int64_t axis = shape.rank == 4 ? 2 : 1, rows = axis == 2 ? B * shape.dim[1] : B;
        const int64_t n = dra_shape_count(&shape), each = n / (rows * N);
        dra_real     *y = calloc((size_t)n, sizeof *y);
        memcpy(y, dra_reader_result(x.reader, names[i]), (size_t)n * sizeof *y);
        assert_int_equal(shape.dim[axis], N);
        for (int64_t t = 0; t < N; t++) {
            const int32_t   target[B] = {x.targets[t], x.targets[N + t]};
            const dra_named one = {"targets", target, sizeof target};
            const dra_real *z = read_some(&x, b, t, 1, &one, names[i]);
            for (int64_t r = 0; r < rows; r++)
                check_reals(z + r * each, y + (r * N + t) * each, (size_t)each * sizeof *y);
        }
        free(y);
        dra_states_destroy(a);
        dra_states_destroy(b);
    }
    close_xl(&x);
}

/* Learned positions start over in every segment, so that a text may be longer than they are. */
static void generates_beyond_the_context(void **unused)
{
    enum { MORE = 40 };
    dra_error      err = {0};
    dra_generator *g = NULL;
    int32_t        found[MORE], next = 4;
    xl             x;
    open_xl(&x, ", \"positions\": \"learned\", \"xl\": {\"memory\": 7}");
    open_reader(&x, (dra_view){.logits = true});
    const dra_generator_config c = {.model = x.model, .weights = x.weights, .device = x.device};
    expect_ok(dra_generator_create(&c, &g, &err), &err);
    expect_ok(dra_generator_read(g, 0, 1, &next, &err), &err);
    for (int i = 0; i < MORE; i++) {
        const dra_real *y;
        expect_ok(dra_generator_logits(g, 0, &y, &err), &err);
        found[i] = 0;
        for (int32_t v = 1; v < VOCAB; v++)
            if (y[v] > y[found[i]]) found[i] = v;
        expect_ok(dra_generator_read(g, 0, 1, &found[i], &err), &err);
    }
    dra_states *s = new_states(&x, 1);
    int32_t     ids[1 + MORE] = {4};
    memcpy(ids + 1, found, sizeof found);
    const dra_named in = {"ids", ids, MORE * sizeof *ids};
    expect_ok(dra_reader_read(x.reader, s, MORE, NULL, 1, &in, &err), &err);
    const dra_real *y = dra_reader_result(x.reader, "logits");
    for (int i = 0; i < MORE; i++)
        for (int v = 0; v < VOCAB; v++) assert_true(y[i * VOCAB + v] <= y[i * VOCAB + found[i]]);
    dra_states_destroy(s);
    dra_generator_destroy(g);
    close_xl(&x);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static dra_real *all_gradients(const xl *x, size_t *count)
{
    const dra_specs *specs = dra_model_params(x->model);
    *count = (size_t)dra_model_param_count(x->model);
    dra_real *all = calloc(*count, sizeof *all);
    size_t    at = 0;
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const size_t n = (size_t)dra_shape_count(&dra_specs_at(specs, i)->shape);
        memcpy(all + at, dra_gradients_of(x->gradients, i), n * sizeof *all);
        at += n;
    }
    return all;
}

/* Rows longer than a segment, with pads and resets, in any chunks, recomputed, from a state; what
 * is dropped out does not depend on it. */
static void expect_same_gradients(const char *options)
{
    static const int64_t some[] = {2, 9, 1, 11}, late[] = {21, 2};
    const struct {
        int            n;
        const int64_t *length;
        bool           recompute, states;
    } ways[] = {{0}, {4, some}, {2, late, true}, {0, NULL, true, true}, {4, some, false, true}};
    int32_t   mark[B * N] = {0};
    dra_real *first = NULL;
    double    loss = 0;
    xl        x;
    mark[8] = DRA_MARK_RESET, mark[N + 3] = mark[N + 4] = DRA_MARK_PAD;
    open_xl(&x, options);
    x.targets[N + 3] = x.targets[N + 4] = -1;
    for (size_t i = 0; i < COUNT(ways); i++) {
        dra_error             err = {0};
        dra_microbatch_result r;
        size_t                n, bytes;
        open_gradients(&x, ways[i].recompute);
        dra_states          *s = ways[i].states ? new_states(&x, B) : NULL;
        const dra_microbatch q = {.B = B,
                                  .T = N,
                                  .ids = x.ids,
                                  .targets = x.targets,
                                  .mark = mark,
                                  .states = s,
                                  .chunks = ways[i].n,
                                  .chunk = ways[i].length,
                                  .seed = 8};
        expect_ok(dra_gradients_bytes(x.gradients, &q, s != NULL, &bytes, &err), &err);
        expect_ok(dra_gradients_run(x.gradients, &q, &r, &err), &err);
        dra_real *d = all_gradients(&x, &n);
        if (s) assert_int_equal(dra_states_tokens(s, 0), N - 8);
        if (i == 0) first = d, loss = r.loss;
        assert_true(fabs(r.loss - loss) <= EQUAL);
        const double off = worst_of((int64_t)n, d, first);
        if (!(off <= EQUAL)) fail_msg("%s, way %zu: gradients differ by %g", options, i, off);
        if (i) free(d);
        dra_states_destroy(s);
    }
    free(first);
    close_xl(&x);
}

static void chunks_give_the_same_gradients(void **unused)
{
    expect_same_gradients(", \"xl\": {\"memory\": 7, \"down\": 1}, \"positions\": \"learned\"");
    expect_same_gradients(
        ", \"xl\": {\"memory\": 7}, \"dropout\": 0.1, \"attention_dropout\": 0.3, "
        "\"block\": {\"drop\": 0.2}");
    expect_same_gradients(", \"xl\": {\"memory\": 4, \"down\": 1}, \"attention_dropout\": 0.3, "
                          "\"position\": {\"distance\": \"alibi\"}, \"embed_dropout\": 0.2");
}

#ifdef DRA_REAL_DOUBLE
/* The loss of one segment after a state, with all parameters moved along a direction. */
static double moved_loss(xl *x, const dra_states *start, double by, dra_microbatch_result *r)
{
    const dra_specs *specs = dra_model_params(x->model);
    dra_states      *s = NULL;
    uint64_t         seed = 9;
    dra_error        err = {0};
    for (int i = 0; i < dra_specs_count(specs); i++) {
        dra_real *w = dra_weights_edit(x->weights, i);
        for (int64_t k = 0; k < dra_shape_count(&dra_specs_at(specs, i)->shape); k++)
            w[k] += by * (2 * check_random(&seed) - 1);
    }
    expect_ok(dra_gradients_bind(x->gradients, x->weights, &err), &err);
    expect_ok(dra_states_fork(start, &s, &err), &err);
    const dra_microbatch q = {
        .B = 1, .T = L, .ids = x->ids + 10, .targets = x->targets, .states = s};
    expect_ok(dra_gradients_run(x->gradients, &q, r, &err), &err);
    dra_states_destroy(s);
    return r->loss;
}

/* Of a segment whose memory is given they are derivatives, also with respect to what makes keys and
 * values of the memory. */
static void gradients_are_derivatives(void **unused)
{
    const double          h = 1e-5;
    dra_error             err = {0};
    dra_microbatch_result r;
    size_t                n;
    uint64_t              seed = 9;
    double                slope = 0;
    xl                    x;
    open_xl(&x, ", \"xl\": {\"memory\": 7, \"down\": 1}, \"norm\": \"layer\"");
    open_reader(&x, (dra_view){.hidden = true});
    open_gradients(&x, false);
    dra_states     *start = new_states(&x, 1);
    const dra_named in = {"ids", x.ids, 10 * sizeof *x.ids};
    expect_ok(dra_reader_read(x.reader, start, 10, NULL, 1, &in, &err), &err);
    moved_loss(&x, start, 0, &r);
    dra_real *d = all_gradients(&x, &n);
    for (size_t i = 0; i < n; i++) slope += d[i] * (2 * check_random(&seed) - 1);
    const double up = moved_loss(&x, start, h, &r), down = moved_loss(&x, start, -2 * h, &r);
    assert_true(fabs((up - down) / (2 * h) - slope) <= 1e-8 * (1 + fabs(slope)));
    free(d);
    dra_states_destroy(start);
    close_xl(&x);
}
#endif

/* ---- against x-transformers ------------------------------------------------------------------ */

static void compare_gradient(const dra_tensors *file, const char *name, const json_t *should)
{
    const dra_tensor_info *t = dra_tensors_find(file, name);
    if (!t) fail_msg("no gradient of %s", name);
    const int64_t n = dra_shape_count(&t->shape);
    double       *g = calloc((size_t)n, sizeof *g), sum[2] = {0};
    assert_true(dra_tensor_copy(t, 0, (size_t)n, DRA_F64, g));
    for (int64_t i = 0; i < n; i++) sum[0] += fabs(g[i]), sum[1] += g[i] * cos((double)i);
    for (size_t k = 0; k < 2; k++) {
        const double is = json_number_value(json_array_get(should, k));
        const double size = fmax(1, json_number_value(json_array_get(should, 0)));
        if (!(fabs(sum[k] - is) <= GOLDEN * size))
            fail_msg("%s: number %zu is %.12g, should be %.12g", name, k, sum[k], is);
    }
    free(g);
}

static void open_golden(xl *x, const json_t *row)
{
    json_t *layers = json_pack("{s:s, s:i, s:i, s:i, s:i}", "type", "Decoder", "dim", 16, "depth",
                               2, "heads", 4, "attn_dim_head", 8);
    json_t *config = json_pack("{s:s, s:s, s:i, s:s}", "model_type", "x-transformers", "wrapper",
                               "TransformerWrapper", "num_tokens", 10, "release", "E");
    CHECK_CONFIG(c);
    dra_error err = {0};
    fixture   f;
    json_object_update(layers, json_object_get(row, "layers"));
    json_object_update(config, json_object_get(row, "wrapper"));
    json_object_set_new(config, "attn_layers", layers);
    char *text = json_dumps(config, 0);
    *x = (xl){.device = check_device(2, dra_device_level_at(0))};
    expect_ok(dra_model_config_parse("golden", text, strlen(text), &c, &err), &err);
    expect_ok(dra_model_create(c, &x->model, &err), &err);
    xt_tensors(&f, config, false);
    expect_ok(dra_tensors_write(in_folder("model.safetensors"), f.item, (size_t)f.n, NULL, 0, &err),
              &err);
    expect_ok(dra_weights_load(x->model, in_folder("model.safetensors"), &x->weights, &err), &err);
    fixture_free(&f);
    json_decref(config);
    free(text);
}

static void check_golden(const json_t *row)
{
    static const int32_t  ids[] = {1, 5, 3, 9, 0, 7, 2, 4};
    const dra_microbatch  q = {.B = 1, .T = 7, .ids = ids, .targets = ids + 1};
    const dra_real       *values[200];
    dra_error             err = {0};
    dra_microbatch_result r;
    dra_tensors          *file = NULL;
    const char           *name;
    json_t               *should;
    xl                    x;
    open_golden(&x, row);
    open_gradients(&x, false);
    expect_ok(dra_gradients_run(x.gradients, &q, &r, &err), &err);
    assert_true(fabs(r.loss - json_number_value(json_object_get(row, "loss"))) <= GOLDEN);
    for (int i = 0; i < dra_specs_count(dra_model_params(x.model)); i++)
        values[i] = dra_gradients_of(x.gradients, i);
    const char *path = in_folder("gradients.safetensors");
    expect_ok(dra_weights_save_like(x.weights, values, 0, NULL, path, &err), &err);
    expect_ok(dra_tensors_open(in_folder("gradients.safetensors"), &file, &err), &err);
    json_object_foreach(json_object_get(row, "gradients"), name, should)
    {
        compare_gradient(file, name, should);
    }
    dra_tensors_close(file);
    close_xl(&x);
}

static void gradients_are_those_of_x_transformers(void **unused)
{
    json_error_t  e;
    json_t       *file = json_load_file("tests/data/golden-xl.json", 0, &e);
    const json_t *row;
    size_t        i;
    assert_true(json_array_size(json_object_get(file, "rows")) > 3);
    json_array_foreach(json_object_get(file, "rows"), i, row) { check_golden(row); }
    json_decref(file);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void impossible_models_are_refused(void **unused)
{
    static const struct {
        const char *options, *why;
    } rows[] = {
        {", \"xl\": {\"down\": 1}", "xl.down without xl.memory"},
        {", \"xl\": {\"memory\": 4, \"down\": 3}", "xl.down is 3, expected at most 2"},
        {", \"xl\": {\"memory\": 4}, \"memory_tokens\": 2", "xl.memory and memory_tokens exclude"},
        {", \"xl\": {\"memory\": 4}, \"visible\": \"bidirectional\"",
         "xl.memory and visible bidirectional exclude"},
        {", \"xl\": {\"memory\": 4}, \"mixer\": {\"memory\": \"delta\"}",
         "xl_memory needs memory append with retrieval time, found delta with formula"},
        {", \"xl\": {\"memory\": 4}, \"mixer\": {\"retrieval\": \"window\", \"window\": 3}",
         "found append with window"},
        {", \"xl\": {\"memory\": 4}, \"mixer\": {\"shift\": \"half\"}",
         "xl_memory and shift exclude"},
        {", \"xl\": {\"memory\": 4}, \"mixer\": {\"norm\": true}", "xl_memory and norm exclude"},
        {", \"xl\": {\"memory\": 4}, \"mixer\": {\"blend\": \"learned\", \"b\": {\"memory\": "
         "\"ema\"}}",
         "xl_memory"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_CONFIG(c);
        dra_model *m = NULL;
        dra_error  err = {0};
        char       text[600];
        snprintf(
            text, sizeof text,
            "{\"model_type\": \"dra\", \"vocab\": 11, \"dim\": 12, \"depth\": 2, \"heads\": 3, "
            "\"context\": 5%s}",
            rows[i].options);
        expect_ok(dra_model_config_parse("xl", text, strlen(text), &c, &err), &err);
        assert_int_equal(dra_model_create(c, &m, &err), DRA_ERR_VALUE);
        if (!strstr(err.text, rows[i].why)) fail_msg("%s: %s", rows[i].options, err.text);
    }
}

static void skipped_tokens_are_refused(void **unused)
{
    const int32_t mark[B * N] = {0, 0, DRA_MARK_SKIP};
    dra_error     err = {0};
    xl            x;
    open_xl(&x, ", \"xl\": {\"memory\": 4}");
    open_reader(&x, (dra_view){.logits = true});
    dra_states     *s = new_states(&x, B);
    const dra_named in = {"ids", x.ids, sizeof x.ids};
    assert_int_equal(dra_reader_read(x.reader, s, N, mark, 1, &in, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "skipped tokens cannot be read in segments"));
    dra_states_destroy(s);
    close_xl(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_memories_see_the_joint_text),
        cmocka_unit_test(down_begins_alike),
        cmocka_unit_test(logits_are_chosen),
        cmocka_unit_test(outputs_are_joined),
        cmocka_unit_test(generates_beyond_the_context),
        cmocka_unit_test(chunks_give_the_same_gradients),
#ifdef DRA_REAL_DOUBLE
        cmocka_unit_test(gradients_are_derivatives),
#endif
        cmocka_unit_test(gradients_are_those_of_x_transformers),
        cmocka_unit_test(impossible_models_are_refused),
        cmocka_unit_test(skipped_tokens_are_refused),
    };
    return cmocka_run_group_tests_name("xl", tests, folder_make, folder_remove);
}
