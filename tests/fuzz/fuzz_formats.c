/* fuzz_formats SECONDS [SEED]: configs, indices of shards and rwkv.cpp files, damaged at random.
 * What must hold:
 *   - no crash, no leak, nothing a sanitizer finds;
 *   - as made, each is accepted;
 *   - damaged, it is accepted or refused by one line that begins with its name.
 * Try number n of a run has seed SEED + n; SECONDS 0 makes that one try. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dra/model.h"
#include "model/tensor_source.h"
#include "fuzz/fuzzer.h"

enum { ROOM = 1 << 15, DAMAGES = 8 };

typedef struct maker {
    unsigned char at[ROOM];
    size_t        n;
} maker;

static char folder[256];

static void add(maker *m, const void *data, size_t bytes)
{
    if (m->n + bytes > ROOM) broken("the fuzzer's own room is too small");
    memcpy(m->at + m->n, data, bytes);
    m->n += bytes;
}

static void say(maker *m, const char *text) { add(m, text, strlen(text)); }

/* Bytes changed, cut out, doubled; or the end cut off. */
static void damage(maker *m)
{
    static const char marks[] = "{}[]\",:-0919.eEnulltrue\\ \x00\xff";
    for (uint32_t i = below(DAMAGES); i > 0 && m->n > 1; i--) {
        const size_t at = below((uint32_t)m->n);
        const size_t some = 1 + below(8) % (m->n - at);
        switch (below(5)) {
        case 0: m->at[at] = (unsigned char)below(256); break;
        case 1: m->at[at] = (unsigned char)marks[below(sizeof marks)]; break;
        case 2: m->at[at] = (unsigned char)(m->at[at] ^ 1 << below(8)); break;
        case 3: m->n = at + 1; break;
        default: memmove(m->at + at, m->at + at + some, m->n - at - some); m->n -= some;
        }
    }
}

static const char *put(const maker *m, const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(m->at, 1, m->n, f) != m->n || fclose(f) != 0) broken("cannot write a file");
    return path;
}

static void judge(dra_status st, const dra_error *err, bool good, const char *place)
{
    if (st != DRA_OK && good) broken(err->text);
    fuzz_accepted += st == DRA_OK && !good;
    if (st == DRA_OK) return;
    if (!err->text[0] || strchr(err->text, '\n')) broken("an error is not one line");
    if (!strstr(err->text, place)) broken(err->text);
}

/* ---- configs --------------------------------------------------------------------------------- */

/* Options of x-transformers of which any may stand together. */
static void make_xt_config(maker *m)
{
    static const char *const top[] = {"\"emb_dim\": 12",        "\"emb_dropout\": 0.1",
                                      "\"l2norm_embed\": true", "\"post_emb_norm\": true",
                                      "\"release\": \"N\"",     "\"num_memory_tokens\": 2",
                                      "\"logits_dim\": null",   "\"max_mem_len\": 0"};
    static const char *const stack[] = {
        "\"use_rmsnorm\": true",      "\"ff_glu\": true",
        "\"ff_mult\": 2.5",           "\"ff_no_bias\": true",
        "\"attn_qk_norm\": true",     "\"attn_num_mem_kv\": 2",
        "\"attn_gate_values\": true", "\"rotary_pos_emb\": true",
        "\"shift_tokens\": [1, 0]",   "\"layer_dropout\": 0.2",
        "\"scale_residual\": true",   "\"alibi_pos_bias\": true",
        "\"cross_attend\": false",    "\"layers_execute_order\": [0, 1, 0]"};
    say(m, "{\"model_type\": \"x-transformers\", \"num_tokens\": 9, \"max_seq_len\": 8");
    for (size_t i = 0; i < sizeof top / sizeof *top; i++) {
        if (below(2)) continue;
        say(m, ", ");
        say(m, top[i]);
    }
    say(m, ", \"attn_layers\": {\"dim\": 16, \"heads\": 2, \"attn_dim_head\": 8, ");
    say(m, below(2) ? "\"type\": \"Decoder\", \"depth\": 1"
                    : "\"type\": \"Encoder\", \"custom_layers\": [\"a\", \"f\"]");
    for (size_t i = 0; i < sizeof stack / sizeof *stack; i++) {
        if (below(2)) continue;
        say(m, ", ");
        say(m, stack[i]);
    }
    say(m, "}}");
}

static void make_config(maker *m)
{
    static const char *const keys[] = {
        "vocab_size",        "n_positions",      "n_embd",
        "hidden_size",       "n_layer",          "n_head",
        "num_hidden_layers", "n_inner",          "n_ctx",
        "rescale_every",     "context_length",   "layer_norm_epsilon",
        "torch_dtype",       "use_cache",        "tie_word_embeddings",
        "resid_pdrop",       "bos_token_id",     "task_special",
        "summary_type",      "intermediate_size"};
    static const char *const values[] = {"1", "12.0", "null", "0", "4096"};
    say(m, below(2) ? "{\"model_type\": \"gpt2\"" : "{\"model_type\": \"rwkv\"");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (below(2)) continue;
        say(m, ", \"");
        say(m, keys[i]);
        say(m, "\": ");
        say(m, strstr(keys[i], "use") || strstr(keys[i], "tie")        ? "true"
               : strstr(keys[i], "epsilon") || strstr(keys[i], "drop") ? "0.001"
                                                                       : values[below(5)]);
    }
    say(m, "}");
}

static void try_config(maker *m, bool good)
{
    dra_model_config c;
    dra_error        err = {0};
    char             text[4096];
    const dra_status st = dra_model_config_parse("config", (const char *)m->at, m->n, &c, &err);
    judge(st, &err, good, "config");
    if (st == DRA_OK) dra_model_config_text(&c, text, sizeof text);
}

/* ---- rwkv.cpp -------------------------------------------------------------------------------- */

static void say_number(maker *m, uint32_t n) { add(m, &n, sizeof n); }

static void make_cpp(maker *m)
{
    static const unsigned char data[64];
    const uint32_t             head[] = {0x67676d66, 100 + below(2), 5, 4, 1, below(2)};
    add(m, head, sizeof head);
    for (uint32_t i = 0, n = below(6); i < n; i++) {
        char           name[32];
        const uint32_t axes = 1 + below(3), dtype = below(2);
        uint32_t       count = 1, dim[3];
        snprintf(name, sizeof name, "blocks.%u.att.key", i);
        say_number(m, axes);
        say_number(m, (uint32_t)strlen(name));
        say_number(m, dtype);
        for (uint32_t k = 0; k < axes; k++) {
            dim[k] = 1 + below(2);
            count *= dim[k];
            say_number(m, dim[k]);
        }
        say(m, name);
        add(m, data, count * (dtype ? 2 : 4));
    }
}

static void try_file(maker *m, const char *name, bool good)
{
    dra_tensor_source *o;
    dra_model         *model = NULL;
    dra_weights       *weights = NULL;
    dra_error          err = {0};
    const char        *path = put(m, name);
    dra_status         st = dra_tensor_source_open(path, &o, &err);
    judge(st, &err, good, folder);
    for (size_t i = 0; st == DRA_OK && i < o->count; i++) { /* all of it can be touched */
        const unsigned char *data = o->entry[i].info->data;
        volatile unsigned    sum = 0;
        for (size_t k = 0; k < o->entry[i].info->bytes; k++) sum += data[k];
    }
    if (st == DRA_OK) dra_tensor_source_close(o);
    if (st == DRA_OK && dra_folder_load(path, &model, &weights, NULL) == DRA_OK) {
        dra_weights_destroy(weights);
        dra_model_destroy(model);
    }
}

/* ---- indices --------------------------------------------------------------------------------- */

static void make_index(maker *m)
{
    say(m, "{\"metadata\": {\"total_size\": 8}, \"weight_map\": {");
    say(m, below(2) ? "\"a\": \"one.safetensors\"" : "\"b\": \"two.safetensors\"");
    say(m, below(2) ? ", \"c\": \"two.safetensors\"}}" : "}}");
}

static void make_shards(void)
{
    static const float    x[2];
    const dra_tensor_item a = {"a", DRA_F32, DRA_SHAPE(2), x},
                          b[] = {{"b", DRA_F32, {0}, x}, {"c", DRA_F32, {0}, x}};
    char path[400];
    snprintf(path, sizeof path, "%s/one.safetensors", folder);
    if (dra_tensors_write(path, &a, 1, NULL, 0, NULL) != DRA_OK) broken("cannot write a shard");
    snprintf(path, sizeof path, "%s/two.safetensors", folder);
    if (dra_tensors_write(path, b, 2, NULL, 0, NULL) != DRA_OK) broken("cannot write a shard");
}

/* ---- tries ----------------------------------------------------------------------------------- */

static void try_one(void)
{
    static maker m;
    m.n = 0;
    const uint32_t kind = below(3);
    if (kind == 0)
        (below(3) ? make_config : make_xt_config)(&m);
    else if (kind == 1)
        make_cpp(&m);
    else
        make_index(&m);
    for (int damaged = 0; damaged < 2; damaged++) {
        if (damaged) damage(&m);
        fuzz_damaged += damaged;
        if (kind == 0)
            try_config(&m, !damaged);
        else
            try_file(&m, kind == 1 ? "model.bin" : "model.safetensors.index.json", !damaged);
    }
}

static void clean(void)
{
    static const char *const names[] = {"model.bin", "model.safetensors.index.json",
                                        "one.safetensors", "two.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

int main(int argc, char **argv)
{
    fuzz_begin(&(fuzzer){"fuzz_formats", try_one, clean});
    snprintf(folder, sizeof folder, "%s/fuzz-formats-%ld", fuzz_folder(), (long)getpid());
    if (mkdir(folder, 0700) != 0) broken("cannot make a folder");
    make_shards();
    return fuzz_all(argc, argv);
}
