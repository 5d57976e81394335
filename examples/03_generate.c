/* Continues a text with a model and saves the state.
 *   03_generate FOLDER TEXT STATE_FILE
 * If STATE_FILE exists, it continues from that state instead, and reads TEXT after it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dra/dra.h"

static bool put(void *user, int64_t row, const char *text, size_t bytes)
{
    (void)user, (void)row;
    fwrite(text, 1, bytes, stdout);
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: 03_generate FOLDER TEXT STATE_FILE\n", stderr);
        return 2;
    }
    const char    *folder = argv[1], *text = argv[2], *file = argv[3];
    dra_error      err = {0};
    dra_device    *cpu = NULL;
    dra_model     *model = NULL;
    dra_weights   *weights = NULL;
    dra_tokenizer *tokenizer = NULL;
    dra_generator *writer = NULL;
    dra_ids        ids = {0};
    dra_generated  out;

    const unsigned how = access(file, F_OK) == 0 ? 0 : DRA_ENCODE_BEGIN; /* it goes on, or begins */
    dra_status     st = dra_device_create_cpu(NULL, &cpu, &err);
    if (st == DRA_OK) st = dra_folder_load(folder, &model, &weights, &err);
    if (st == DRA_OK)
        st = dra_tokenizer_open_folder(folder, dra_model_config_of(model)->vocab, &tokenizer, &err);

    dra_generator_config make = {model, weights, cpu, tokenizer, .sampler = {.temperature = 0.8}};
    if (st == DRA_OK) st = dra_generator_create(&make, &writer, &err);
    if (st == DRA_OK && !how) st = dra_generator_load(writer, file, &err);
    if (st == DRA_OK) st = dra_encode_as(tokenizer, text, strlen(text), how, &ids, &err);
    if (st == DRA_OK) st = dra_generator_read(writer, 0, ids.n, ids.data, &err);

    dra_generate_config go = {.tokens = 40, .write = put};
    if (st == DRA_OK) st = dra_generate(writer, &go, &out, &err);
    if (st == DRA_OK) st = dra_generator_save(writer, file, &err);
    if (st != DRA_OK) fprintf(stderr, "%s\n", err.text);

    dra_ids_free(&ids);
    dra_generator_destroy(writer);
    dra_tokenizer_destroy(tokenizer);
    dra_weights_destroy(weights);
    dra_model_destroy(model);
    dra_device_destroy(cpu);
    return st != DRA_OK;
}
