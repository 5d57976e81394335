/* Surgery on a GPT-2: every layer gets GRU cells next to its attention,
 * y = a y_attention + (1-a) y_gru.
 *
 * The GPT-2 is a small one with drawn weights, written as Hugging Face's library would write it; a
 * folder of a trained one works the same. At a = 1 the logits are GPT-2's, bit for bit. `dra train`
 * on the new folder takes a to 0, so that the memory learns to do what attention did. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dra/dra.h"

enum { T = 24, V = 256 };

static dra_error err;

static void must(dra_status st)
{
    if (st == DRA_OK) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

/* A folder as Hugging Face has them. */
static void write_gpt2(const char *folder)
{
    char              path[300];
    dra_model_config *c = NULL;
    dra_model        *model;
    dra_weights      *weights;
    must(dra_preset_config("gpt2-tiny", &c, &err));
    c->format = DRA_FORMAT_GPT2;
    must(dra_model_create(c, &model, &err));
    must(dra_weights_draw(model, 1, &weights, &err));
    must(dra_folder_save_config(folder, c, &err));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    must(dra_weights_save(weights, path, &err));
    dra_weights_destroy(weights);
    dra_model_destroy(model), dra_model_config_destroy(c);
}

/* Logits (T, V) of a folder's model for some text; a: the blend, where it has one. */
static void read_text(dra_device *device, const char *folder, double a, dra_real *logits)
{
    int32_t      ids[T];
    dra_model   *model;
    dra_weights *weights;
    dra_reader  *reader;
    dra_states  *states;
    for (int i = 0; i < T; i++) ids[i] = "Reading a text in pieces."[i];
    must(dra_folder_load(folder, &model, &weights, &err));
    const int blend = dra_specs_find(dra_model_params(model), "blend");
    if (blend >= 0) *dra_weights_edit(weights, blend) = (dra_real)a;
    const dra_view   view = {.model = model, .logits = true};
    const dra_module module = dra_view_module(&view);
    must(dra_reader_create(device, &module, &reader, &err));
    must(dra_weights_bind(weights, reader, &err));
    must(dra_states_create(device, dra_model_state(model), 1, &states, &err));
    must(dra_reader_read(reader, states, T, NULL, 1, &(dra_named){"ids", ids, sizeof ids}, &err));
    memcpy(logits, dra_reader_result(reader, "logits"), T * V * sizeof *logits);
    dra_states_destroy(states), dra_reader_destroy(reader);
    dra_weights_destroy(weights), dra_model_destroy(model);
}

static void remove_folder(const char *folder)
{
    static const char *const names[] = {"/config.json", "/model.safetensors", ""};
    char                     path[300];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", folder, names[i]);
        remove(path);
    }
}

int main(void)
{
    static dra_real   before[T * V], after[T * V];
    const char       *gpt2 = "example-gpt2", *grafted = "example-gpt2-gru";
    dra_model_config *c = NULL;
    dra_device       *device;
    must(dra_device_create_cpu(NULL, &device, &err));
    remove_folder(gpt2), remove_folder(grafted);
    write_gpt2(gpt2);
    must(dra_folder_config(gpt2, &c, &err));
    must(dra_model_config_graft(c, "gru", &err));
    must(dra_convert(&(dra_convert_config){.from = gpt2, .to = grafted, .config = c}, &err));
    dra_model_config_destroy(c);
    read_text(device, gpt2, 1, before);
    for (int i = 0; i < 4; i++) {
        const double a = (double[]){1, 0.9, 0.5, 0}[i];
        double       most = 0;
        read_text(device, grafted, a, after);
        for (int k = 0; k < T * V; k++) most = fmax(most, fabs((double)(after[k] - before[k])));
        printf("a = %.1f: logits differ from GPT-2's by %.3g\n", a, most);
        if (a == 1 && memcmp(before, after, sizeof before) != 0) return 1;
    }
    remove_folder(gpt2), remove_folder(grafted);
    dra_device_destroy(device);
    return 0;
}
