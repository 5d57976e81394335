/* Golden rows of x-transformers' wrappers and of stacks with a context: "models" of
 * tests/data/golden-xt.json, each computed through the folder format "x-transformers" and the
 * library's names. Inputs are X(n, phase): x_t = sin(0.9 t + 0.017 t t + phase). */
#include "xt_golden.h"

enum { MOST_ROWS = 40, MOST = 512, D = 16 };

static const int32_t ids[] = {1, 5, 3, 9, 0, 7, 2, 4}, back[] = {4, 2, 7, 0, 9, 3, 5, 1};
static const int32_t mixed[] = {1, 3, 3, 9, 3, 7, 2, 3}; /* 3 is a number */

typedef struct case_row {
    const json_t *row;
    dra_model    *model;
    dra_weights  *weights;
    dra_states   *states;
    dra_reader   *reader;
    dra_view      view;
    dra_module    module;
    dra_real      y[MOST];
    int64_t       n;
} case_row;

static void fill(dra_real *x, int n, double phase)
{
    for (int t = 0; t < n; t++)
        x[t] = (dra_real)(float)sin(0.9 * t + 0.017 * (double)t * t + phase);
}

static const char *text_of(const case_row *r, const char *key)
{
    return json_string_value(json_object_get(r->row, key));
}

static bool is_result(const case_row *r, const char *name)
{
    return strcmp(text_of(r, "result"), name) == 0;
}

/* ---- the model ------------------------------------------------------------------------------- */

static void write_tensors(const json_t *config)
{
    fixture   f;
    dra_error err = {0};
    char      name[FIXTURE_MOST][FIXTURE_NAME + 4];
    xt_model_tensors(&f, config);
    for (int i = 0; i < f.n && json_object_get(config, "net"); i++) {
        snprintf(name[i], sizeof name[i], "net.%s", f.name[i]);
        f.item[i].name = name[i];
    }
    const dra_status st = dra_tensors_write(in_folder("model.safetensors"), f.item, (size_t)f.n,
                                            NULL, 0, &err);
    fixture_free(&f);
    expect_ok(st, &err);
}

static void open_model(case_row *r)
{
    const json_t *config = json_object_get(r->row, "model");
    json_t       *full = json_copy((json_t *)(uintptr_t)config);
    CHECK_CONFIG(c);
    dra_error err = {0};
    json_object_set_new(full, "model_type", json_string("x-transformers"));
    char *text = json_dumps(full, 0);
    json_decref(full);
    expect_ok(dra_model_config_parse("golden", text, strlen(text), &c, &err), &err);
    free(text);
    expect_ok(dra_model_create(c, &r->model, &err), &err);
    write_tensors(config);
    expect_ok(dra_weights_load(r->model, in_folder("model.safetensors"), &r->weights, &err), &err);
}

static void open_reader(case_row *r)
{
    dra_device *device = check_device(1, "ref");
    dra_error   err = {0};
    const bool  tokens = dra_model_config_of(r->model)->source.kind == DRA_SOURCE_TOKENS;
    r->view = (dra_view){.model = r->model,
                         .hidden = is_result(r, "hidden"),
                         .losses = is_result(r, "losses"),
                         .logits = tokens && !is_result(r, "losses"),
                         .outs = true};
    r->module = dra_view_module(&r->view);
    expect_ok(dra_states_create(device, dra_model_state(r->model), 1, &r->states, &err), &err);
    expect_ok(dra_reader_create(device, &r->module, &r->reader, &err), &err);
    expect_ok(dra_weights_bind(r->weights, r->reader, &err), &err);
}

/* ---- what is read ---------------------------------------------------------------------------- */

/* Zeros of a text are pads. */
static const int32_t *pads(const char *mask, int64_t before, int64_t n, int32_t *mark)
{
    for (int64_t t = 0; t < before + n; t++)
        mark[t] = t >= before && mask && mask[t - before] == '0' ? DRA_MARK_PAD : 0;
    return mask ? mark : NULL;
}

static const dra_real *result(const case_row *r, const char *name, int64_t *n)
{
    dra_shape shape;
    assert_true(dra_reader_result_shape(r->reader, name, &shape));
    *n = dra_shape_count(&shape);
    return dra_reader_result(r->reader, name);
}

static void take(case_row *r, const char *name)
{
    const dra_real *y = result(r, name, &r->n);
    assert_true(y && r->n <= MOST);
    memcpy(r->y, y, (size_t)r->n * sizeof *y);
}

/* A stack on 6 vectors that sees 4 of 5 others. */
static void read_stack(case_row *r)
{
    dra_real               x[6 * D], other[5 * D];
    int32_t                mark[5];
    dra_error              err = {0};
    const dra_context_text context = {5, pads("11110", 0, 5, mark)};
    const dra_named        in[] = {{"x", x, sizeof x}, {"context", other, sizeof other}};
    fill(x, 6 * D, 0);
    fill(other, 5 * D, 0.4);
    expect_ok(dra_reader_read_context(r->reader, r->states, &context, 6, NULL, 2, in, &err), &err);
    take(r, "hidden");
}

static void read_image(case_row *r)
{
    dra_real        img[3 * 4 * 4];
    dra_error       err = {0};
    const dra_named in = {"img", img, sizeof img};
    fill(img, 3 * 4 * 4, 0);
    expect_ok(dra_reader_read(r->reader, r->states, 4, NULL, 1, &in, &err), &err);
    take(r, text_of(r, "result"));
}

/* From one text to the same backwards. */
static void read_pair(case_row *r)
{
    const int64_t P = json_integer_value(
        json_object_get(json_object_get(r->row, "model"), "src_prepend"));
    dra_real               before[3 * D];
    int32_t                mark[3 + 8];
    dra_error              err = {0};
    const dra_context_text context = {P + 8, pads(text_of(r, "mask"), P, 8, mark)};
    const dra_named        in[] = {{"ids", back, 7 * sizeof *back},
                                   {"targets", back + 1, 7 * sizeof *back},
                                   {"src", ids, sizeof ids},
                                   {"prepend", before, sizeof before}};
    fill(before, 3 * D, 0.7);
    expect_ok(dra_reader_read_context(r->reader, r->states, &context, 7, NULL, P ? 4 : 3, in, &err),
              &err);
    take(r, "losses");
}

/* The last output is the next input. */
static void generate(case_row *r, dra_real *x, int64_t length)
{
    dra_error err = {0};
    for (int64_t t = 0; t < 4; t++) {
        const dra_named in = {"x", x, (size_t)(3 * length) * sizeof *x};
        int64_t         n;
        expect_ok(dra_reader_read(r->reader, r->states, length, NULL, 1, &in, &err), &err);
        const dra_real *out = result(r, "out", &n);
        memcpy(x, out + n - 3, 3 * sizeof *x);
        memcpy(r->y + 3 * t, x, 3 * sizeof *x);
        length = 1;
    }
    r->n = 4 * 3;
}

/* The mean over kept positions of squared distances to the next vector. */
static void squares(case_row *r, const dra_real *x, const char *mask)
{
    double sum = 0, kept = 0;
    for (int t = 0; t < 5 * 3; t++) {
        const double d = (double)r->y[t] - (double)x[t + 3];
        if (mask && mask[t / 3] == '0') continue;
        sum += d * d;
        kept++;
    }
    r->y[0] = (dra_real)(sum / kept);
    r->n = 1;
}

static void read_vectors(case_row *r)
{
    dra_real        x[6 * 3];
    int32_t         mark[6];
    dra_error       err = {0};
    const char     *mask = text_of(r, "mask");
    const bool      loss = is_result(r, "squares");
    const int64_t   length = loss ? 5 : 6;
    const dra_named in = {"x", x, (size_t)(3 * length) * sizeof *x};
    fill(x, 6 * 3, 0);
    if (is_result(r, "generated")) {
        generate(r, x, 2);
        return;
    }
    expect_ok(
        dra_reader_read(r->reader, r->states, length, pads(mask, 0, length, mark), 1, &in, &err),
        &err);
    take(r, "out");
    if (loss) squares(r, x, mask);
}

/* Cross entropy, and where the target is a number its squared error: the mean over targets. */
static void both(case_row *r, const dra_real *nums)
{
    int64_t         n;
    const dra_real *numbers = result(r, "numbers", &n);
    double          loss = 0;
    take(r, "logits");
    for (int t = 0; t < 7; t++) {
        double all = 0, d = (double)numbers[t] - (double)nums[t + 1];
        for (int v = 0; v < 10; v++) all += exp((double)r->y[10 * t + v]);
        loss += log(all) - (double)r->y[10 * t + mixed[t + 1]];
        if (mixed[t + 1] == 3) loss += d * d;
    }
    r->y[0] = (dra_real)(loss / 7);
    r->n = 1;
}

static void read_mixed(case_row *r)
{
    dra_real        nums[8];
    dra_error       err = {0};
    const int64_t   length = is_result(r, "both") ? 7 : 8;
    const dra_named in[] = {{"ids", mixed, (size_t)length * sizeof *mixed},
                            {"nums", nums, (size_t)length * sizeof *nums}};
    fill(nums, 8, 0);
    expect_ok(dra_reader_read(r->reader, r->states, length, NULL, 2, in, &err), &err);
    if (is_result(r, "both"))
        both(r, nums);
    else
        take(r, text_of(r, "result"));
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void check_row(void **state)
{
    case_row               *r = *state;
    const dra_model_config *c;
    double                  found[XT_MEASURES];
    open_model(r);
    open_reader(r);
    c = dra_model_config_of(r->model);
    if (c->source.kind == DRA_SOURCE_IMAGE)
        read_image(r);
    else if (c->source.numbers)
        read_mixed(r);
    else if (c->source.kind == DRA_SOURCE_TOKENS)
        read_pair(r);
    else if (c->context_stack)
        read_stack(r);
    else
        read_vectors(r);
    const json_t *should = json_object_get(r->row, "should");
    xt_measure(r->y, r->n, json_array_size(should) == 1, found);
    xt_compare(should, found);
}

static int close_row(void **state)
{
    case_row *r = *state;
    dra_reader_destroy(r->reader);
    dra_states_destroy(r->states);
    dra_weights_destroy(r->weights);
    dra_model_destroy(r->model);
    return 0;
}

static char *title(const json_t *row)
{
    char        *text = json_dumps(json_object_get(row, "model"), 0);
    const char  *result = json_string_value(json_object_get(row, "result"));
    const size_t size = (text ? strlen(text) : 0) + 100;
    char        *name = malloc(size);
    assert_non_null(name);
    snprintf(name, size, "%s: %s", result, text);
    free(text);
    return name;
}

int main(void)
{
    static case_row          all[MOST_ROWS];
    static struct CMUnitTest tests[MOST_ROWS];
    json_error_t             e;
    const json_t            *one;
    size_t                   n;
    json_t                  *file = json_load_file("tests/data/golden-xt.json", 0, &e);
    json_array_foreach(json_object_get(file, "models"), n, one)
    {
        if (n == MOST_ROWS) break;
        all[n].row = one;
        tests[n] = (struct CMUnitTest){title(one), check_row, NULL, close_row, &all[n]};
    }
    const int failed = n == 0 || n >= MOST_ROWS
                           ? 1
                           : _cmocka_run_group_tests("wrappers of x-transformers", tests, n,
                                                     folder_make, folder_remove);
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)tests[i].name);
    json_decref(file);
    return failed;
}
