/* A long text is read once. What it left in the model's memory is saved, and several texts continue
 * from copies of that state, without reading it again. Each is compared with a generator that reads
 * all of its text: the same tokens and the same bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dra/dra.h"

enum { LONG = 2 * DRA_GENERATOR_PIECE, FORKS = 3 };
static const char *const   ends[FORKS] = {" And then?", " Why?", " Says who?"};
static const char          file[] = "long-text.state";
static dra_generate_config go = {.tokens = 16};
static dra_error           err;

static void must(dra_status status) /* a program may stop at the first error */
{
    if (status == DRA_OK) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

/* Whether a row that wrote `a` now stands where the only row of another generator does. */
static bool same(dra_generator *g, int64_t row, const dra_generated *a, dra_generator *whole,
                 const dra_generated *b, size_t vocab)
{
    const dra_real *x, *y;
    must(dra_generator_logits(g, row, &x, &err));
    must(dra_generator_logits(whole, 0, &y, &err));
    return a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof *a->ids) == 0 &&
           memcmp(x, y, vocab * sizeof *x) == 0;
}

int main(void)
{
    char              text[LONG];
    dra_model_config *config = NULL;
    dra_device       *cpu;
    dra_model        *model;
    dra_weights      *weights;
    dra_tokenizer    *tokenizer;
    dra_generator    *reader, *forks, *whole;
    dra_generated     forked[FORKS], read;
    dra_ids           ids = {0};
    must(dra_abi_check(&err)); /* the library is one that this was compiled for */
    must(dra_device_create_cpu(NULL, &cpu, &err));
    must(dra_preset_config("dra-delta-tiny", &config, &err));
    config->depth = 1; /* weights are drawn, so more would only take longer */
    must(dra_model_create(config, &model, &err));
    must(dra_weights_draw(model, 1, &weights, &err));
    must(dra_tokenizer_bytes(&tokenizer, &err));

    dra_generator_config make = {model, weights, cpu, tokenizer, .sampler = {.temperature = 0.8}};
    must(dra_generator_create(&make, &reader, &err));
    must(dra_generator_create(&make, &whole, &err));
    make.rows = FORKS, make.samples = 1; /* rows draw with one seed, as each would alone */
    must(dra_generator_create(&make, &forks, &err));

    for (int i = 0; i < LONG; i++) text[i] = "It was a long day. "[i * i % 361 % 19];
    must(dra_encode(tokenizer, text, LONG, &ids, &err));
    must(dra_generator_read(reader, 0, LONG, ids.data, &err)); /* the long part, once */
    must(dra_generator_save(reader, file, &err));
    must(dra_generator_load(forks, file, &err)); /* a file of one sequence: every row gets it */
    remove(file);                                /* within one generator: dra_generator_copy() */
    for (int i = 0; i < FORKS; i++) {
        ids.n = LONG; /* dra_encode() appends */
        must(dra_encode(tokenizer, ends[i], strlen(ends[i]), &ids, &err));
        must(dra_generator_read(forks, i, ids.n - LONG, ids.data + LONG, &err));
    }
    must(dra_generate(forks, &go, forked, &err));

    int equal = 0;
    for (int i = 0; i < FORKS; i++) {
        ids.n = LONG;
        must(dra_encode(tokenizer, ends[i], strlen(ends[i]), &ids, &err));
        must(dra_generator_reset(whole, 0, &err));
        must(dra_generator_read(whole, 0, ids.n, ids.data, &err));
        must(dra_generate(whole, &go, &read, &err));
        equal += same(forks, i, &forked[i], whole, &read, (size_t)config->vocab);
    }
    printf("%d tokens read once, %zu bytes of state; %d of %d continuations: the same bits\n", LONG,
           dra_generator_state_bytes(reader), equal, FORKS);

    dra_ids_free(&ids);
    dra_generator_destroy(reader), dra_generator_destroy(forks), dra_generator_destroy(whole);
    dra_tokenizer_destroy(tokenizer), dra_weights_destroy(weights), dra_model_destroy(model);
    dra_model_config_destroy(config), dra_device_destroy(cpu);
    return equal != FORKS;
}
