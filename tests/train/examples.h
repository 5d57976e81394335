/* Examples and batches for tests. */
#ifndef DRA_TESTS_TRAIN_EXAMPLES_H
#define DRA_TESTS_TRAIN_EXAMPLES_H

#include "file/folder.h"

#include "base/shape.h"
#include "dra/train.h"

static inline void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static inline dra_model *make_model(const dra_source_config *source, const dra_head_config *head,
                                    const char *const *settings)
{
    CHECK_CONFIG(c);
    dra_model *m = NULL;
    dra_error  err = {0};
    char       key[100];
    expect_ok(dra_preset_config("gpt2-tiny", &c, &err), &err);
    c->dim = 8, c->heads = 2, c->depth = 2, c->vocab = 10, c->context = 40;
    if (source) c->source = *source;
    if (head) c->head = *head;
    for (; settings && *settings; settings++) {
        const char *equals = strchr(*settings, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - *settings), *settings);
        expect_ok(dra_model_config_set(c, key, equals + 1, &err), &err);
    }
    expect_ok(dra_model_create(c, &m, &err), &err);
    return m;
}

static inline dra_examples *put_examples(const dra_tensor_item *items, size_t n)
{
    const dra_examples_config c = {.path = in_folder("e.safetensors"), .B = 1};
    dra_examples             *e = NULL;
    dra_error                 err = {0};
    expect_ok(dra_tensors_write(c.path, items, n, NULL, 0, &err), &err);
    expect_ok(dra_examples_open(&c, &e, &err), &err);
    return e;
}

static inline dra_batches *make_batches(const dra_model *m, const dra_examples *e, int64_t B,
                                        bool once)
{
    dra_batches_config c = {.model = m, .examples = e, .B = B, .once = once};
    dra_batches       *b = NULL;
    dra_error          err = {0};
    expect_ok(dra_objective_complete(&c.objective, m, &err), &err);
    expect_ok(dra_batches_create(&c, &b, &err), &err);
    return b;
}

static inline dra_batch take(dra_batches *b, int64_t i)
{
    dra_batch q;
    dra_error err = {0};
    expect_ok(dra_batches_read(b, i, i + 1, &q, &err), &err);
    return q;
}

#endif
