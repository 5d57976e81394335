/* Golden rows of x-transformers: tests/data/golden-xt.json has options of that library and what it
 * computes; here the same is computed through the folder format "x-transformers", from a config and
 * a checkpoint with the library's names (xt_tensors.h). A bare stack is a wrapper without positions
 * that reads vectors x_t = sin(0.9 t + 0.017 t t) and gives what its head would read. */
#include "xt_golden.h"

enum {
    MOST_ROWS = 150,
    STACK_T = 6,
    WRAPPER_T = 8,
    NUMBERS = 3,
    MEMORY = 3,
    SEGMENT = 4,
    MOST_T = 16
};

static const int32_t ids[WRAPPER_T] = {1, 5, 3, 9, 0, 7, 2, 4};

typedef struct xt_golden {
    const json_t *row;
    json_t       *config;
    bool          bare, loss;
    int64_t       T;
    dra_model    *model;
    dra_weights  *weights;
    dra_states   *states;
    dra_reader   *reader;
} xt_golden;

static json_t *config_of(const json_t *row)
{
    const json_t *type = json_object_get(row, "type"), *release = json_object_get(row, "release");
    json_t       *layers = json_pack("{s:i, s:i, s:i, s:i}", "dim", 16, "depth", 2, "heads", 4,
                                     "attn_dim_head", 8);
    json_t *config = json_pack("{s:s, s:s, s:i, s:i}", "model_type", "x-transformers", "wrapper",
                               "TransformerWrapper", "num_tokens", 10, "max_seq_len", 8);
    assert_non_null(layers);
    assert_non_null(config);
    json_object_set_new(layers, "type", json_string(json_string_value(type)));
    json_object_set_new(config, "release", json_string(release ? json_string_value(release) : "E"));
    json_object_update(layers, json_object_get(row, "stack"));
    json_object_update(layers, json_object_get(row, "layers"));
    json_object_update(config, json_object_get(row, "wrapper"));
    if (json_is_true(json_object_get(row, "mems"))) {
        json_object_set_new(config, "max_seq_len", json_integer(STACK_T));
        json_object_set_new(config, "max_mem_len", json_integer(MEMORY));
    }
    if (json_object_get(layers, "custom_layers")) json_object_del(layers, "depth");
    if (!json_object_get(row, "wrapper"))
        json_object_set_new(config, "use_abs_pos_emb", json_false());
    json_object_set_new(config, "attn_layers", layers);
    return config;
}

static void open_model(xt_golden *g)
{
    CHECK_CONFIG(parsed);
    dra_error err = {0};
    char     *text = json_dumps(g->config, JSON_INDENT(2));
    fixture   f;
    assert_non_null(text);
    expect_ok(dra_model_config_parse("golden", text, strlen(text), &parsed, &err), &err);
    free(text);
    expect_ok(dra_model_create(parsed, &g->model, &err), &err);
    xt_tensors(&f, g->config, g->bare);
    const dra_status st = dra_tensors_write(in_folder("model.safetensors"), f.item, (size_t)f.n,
                                            NULL, 0, &err);
    fixture_free(&f);
    expect_ok(st, &err);
    expect_ok(dra_weights_load(g->model, in_folder("model.safetensors"), &g->weights, &err), &err);
}

static void close_model(xt_golden *g)
{
    dra_reader_destroy(g->reader);
    dra_states_destroy(g->states);
    dra_weights_destroy(g->weights);
    dra_model_destroy(g->model);
    g->reader = NULL;
    g->states = NULL;
    g->weights = NULL;
    g->model = NULL;
}

/* Zeros of "mask" are pads; those of "keys" are tokens that no query sees, not even their own; the
 * first "prefix" ones see each other. */
static bool marks(const xt_golden *g, int32_t *mark)
{
    const char      *pads = json_string_value(json_object_get(g->row, "mask"));
    const char      *keys = json_string_value(json_object_get(g->row, "keys"));
    const json_int_t prefix = json_integer_value(json_object_get(g->row, "prefix"));
    for (int64_t t = 0; t < g->T; t++)
        mark[t] = (pads && pads[t] == '0' ? DRA_MARK_PAD : 0) |
                  (keys && keys[t] == '0' ? DRA_MARK_SKIP : 0) | (t < prefix ? DRA_MARK_PREFIX : 0);
    return pads || keys || prefix;
}

/* Row "mems": the state of a text of STACK_T tokens, the last of which came into attention l as
 * sin(0.9 t + 0.017 t t + 1 + l). */
static void write_memories(xt_golden *g)
{
    const size_t n = (MEMORY + STACK_T) * 16, kept = MEMORY * 16;
    dra_real     x[(MEMORY + STACK_T) * 16] = {0};
    char         name[32];
    dra_error    err = {0};
    if (!json_is_true(json_object_get(g->row, "mems"))) return;
    expect_ok(dra_states_place(g->states, 0, STACK_T, 0, &err), &err);
    for (int l = 0; l < 2; l++) {
        for (size_t t = 0; t < kept; t++)
            x[n - kept + t] = (dra_real)(float)sin(0.9 * (double)t + 0.017 * (double)(t * t) + 1 +
                                                   l);
        snprintf(name, sizeof name, "layers.%d.mixer.X", l);
        expect_ok(dra_states_write(g->states, dra_specs_find(dra_model_state(g->model), name), 0, x,
                                   n, &err),
                  &err);
    }
}

/* Segment k begins as the ids, moved right by k. */
static const int32_t *ids_of(const xt_golden *g, int32_t *room)
{
    if (!json_object_get(g->row, "segments")) return ids;
    for (int t = 0; t < g->T; t++)
        room[t] = ids[(t % SEGMENT - t / SEGMENT + WRAPPER_T) % WRAPPER_T];
    return room;
}

/* The output that is compared, of `count` numbers. */
static const dra_real *compute(xt_golden *g, const dra_view *view, int64_t *count)
{
    const dra_module module = dra_view_module(view);
    const char      *name = g->loss ? "losses" : g->bare ? "hidden" : "logits";
    dra_real         x[STACK_T * 16];
    int32_t          mark[MOST_T], room[MOST_T];
    dra_error        err = {0};
    dra_shape        shape;
    for (int t = 0; t < STACK_T * 16; t++) x[t] = (dra_real)(float)sin(0.9 * t + 0.017 * t * t);
    const int64_t adapts = dra_model_config_of(g->model)->condition.dim;
    dra_real      condition[16];
    for (int t = 0; t < 16; t++) condition[t] = (dra_real)(float)sin(0.9 * t + 0.017 * t * t + 2);
    const dra_named in[] = {
        g->bare ? (dra_named){"x", x, sizeof x}
                : (dra_named){"ids", ids_of(g, room), (size_t)g->T * sizeof *ids},
        g->loss ? (dra_named){"targets", ids + 1, (size_t)g->T * sizeof *ids}
                : (dra_named){"condition", condition, (size_t)adapts * sizeof *condition},
    };
    dra_device *device = check_device(1, "ref");
    expect_ok(dra_states_create(device, dra_model_state(g->model), 1, &g->states, &err), &err);
    write_memories(g);
    expect_ok(dra_reader_create(device, &module, &g->reader, &err), &err);
    expect_ok(dra_weights_bind(g->weights, g->reader, &err), &err);
    expect_ok(dra_reader_read(g->reader, g->states, g->T, marks(g, mark) ? mark : NULL,
                              1 + (g->loss || adapts), in, &err),
              &err);
    assert_true(dra_reader_result_shape(g->reader, name, &shape));
    const dra_real *y = dra_reader_result(g->reader, name);
    *count = dra_shape_count(&shape);
    if (!json_object_get(g->row, "segments")) return y;
    const int64_t last = *count / g->T * SEGMENT;
    y += *count - last;
    *count = last;
    return y;
}

static void check_row(void **state)
{
    xt_golden *g = *state;
    int64_t    n = 0;
    double     found[XT_MEASURES];
    open_model(g);
    const bool      pooled = dra_model_config_of(g->model)->head.kind == DRA_HEAD_CLASSES;
    const dra_view  view = {.model = g->model,
                            .embedded = g->bare,
                            .hidden = g->bare,
                            .losses = g->loss,
                            .logits = !g->bare && !g->loss && !pooled,
                            .outs = pooled};
    const dra_real *y = compute(g, &view, &n);
    assert_non_null(y);
    assert_int_equal(json_array_size(json_object_get(g->row, "should")), g->loss ? 1 : XT_MEASURES);
    xt_measure(y, n, g->loss, found);
    xt_compare(json_object_get(g->row, "should"), found);
}

static int close_row(void **state)
{
    close_model(*state);
    return 0;
}

/* "Decoder ff_glu=true", ... */
static char *title(const json_t *row)
{
    const json_t *options = json_object_get(row, "stack");
    char         *text = json_dumps(options ? options : json_object_get(row, "wrapper"), 0);
    const size_t  size = (text ? strlen(text) : 0) + 100;
    const bool    mems = json_is_true(json_object_get(row, "mems"));
    char         *name = malloc(size);
    const char   *release = json_string_value(json_object_get(row, "release"));
    const char   *pads = json_string_value(json_object_get(row, "mask"));
    assert_non_null(text);
    assert_non_null(name);
    snprintf(name, size, "%s%s%s %s%s%s%s%s%s", options ? "" : "wrapper of ",
             json_string_value(json_object_get(row, "type")),
             json_object_get(row, "loss") ? ", loss" : "", text, release ? " release " : "",
             release ? release : "", pads ? " mask " : "", pads ? pads : "",
             mems ? " with memories" : "");
    free(text);
    return name;
}

int main(void)
{
    static xt_golden         all[MOST_ROWS];
    static struct CMUnitTest tests[MOST_ROWS];
    json_error_t             e;
    const json_t            *row;
    size_t                   n;
    json_t                  *file = json_load_file("tests/data/golden-xt.json", 0, &e);
    json_array_foreach(json_object_get(file, "rows"), n, row)
    {
        if (n == MOST_ROWS) break;
        const bool loss = json_is_true(json_object_get(row, "loss"));
        const bool bare = json_object_get(row, "stack") != NULL;
        const int  segments = (int)json_integer_value(json_object_get(row, "segments"));
        all[n] = (xt_golden){.row = row,
                             .config = config_of(row),
                             .bare = bare,
                             .loss = loss,
                             .T = bare       ? STACK_T
                                  : segments ? segments * SEGMENT
                                             : WRAPPER_T - loss};
        tests[n] = (struct CMUnitTest){title(row), check_row, NULL, close_row, &all[n]};
    }
    printf("# %zu golden rows\n", n);
    const int failed = n == 0 || n > MOST_ROWS
                           ? 1
                           : _cmocka_run_group_tests("x-transformers", tests, n, folder_make,
                                                     folder_remove);
    for (size_t i = 0; i < n; i++) {
        json_decref(all[i].config);
        free((void *)(uintptr_t)tests[i].name);
    }
    json_decref(file);
    return failed;
}
