/* dra presets: configs that come with the library. */
#include "outline.h"
#include "units.h"

#include <stdlib.h>
#include <string.h>

struct args {
    cli_source  from; /* for its threads: every verb takes them */
    const char *name;
    bool        json;
};

static const struct args defaults = {0};

static const cli_option options[] = {
    {"name", CLI_TEXT, offsetof(struct args, name), 0, 0, "print this preset as a config", "NAME",
     .flags = CLI_POSITIONAL | CLI_A_PRESET},
    CLI_THREADS_OPTION(struct args),
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

/* What they are, by the name without -tiny; their memory is read off the model. */
static const char *const words[][2] = {
    {"adr", "gru, read jointly"},
    {"dra-delta", "corrected by each token"},
    {"dra-ema", "averages that fade"},
    {"dra-gru", "recurrent cells (GRU)"},
    {"dra-moment", "linear attention"},
    {"dra-pooled", "one slot, read pooled"},
    {"dra-slot-gru", "one slot with a gru"},
    {"dra-slots", "16 slots, routed"},
    {"gpt2", "GPT-2's architecture"},
    {"hybrid", "both, blended"},
    {"retention", "linear, fading (RetNet)"},
    {"rwkv4", "RWKV-4's architecture"},
    {"rwkv5", "RWKV 5.2"},
    {"rwkv6", "RWKV-6, decays by data"},
    {"rwkv7", "RWKV-7"},
    {"series", "continues numbers"},
    {"vit", "names 8 x 8 images"},
    {"xt-decoder", "x-transformers' decoder"},
    {"xt-encoder", "fills in masked bytes"},
    {"xt-modern", "rotary, SwiGLU, RMSNorm"},
    {"xt-seq2seq", "translates, two stacks"},
};

static const char *about(const char *name)
{
    const char  *tiny = strstr(name, "-tiny");
    const size_t n = tiny ? (size_t)(tiny - name) : strlen(name);
    for (size_t i = 0; i < COUNT(words); i++)
        if (strlen(words[i][0]) == n && strncmp(words[i][0], name, n) == 0) return words[i][1];
    return "";
}

typedef struct preset { /* what is shown of one */
    dra_model_config config;
    int64_t          parameters;
    char             memory[48]; /* of the first layer: "attention", "delta", "attention+slots" */
} preset;

static void name_memory(const dra_model *m, preset *out)
{
    dra_model_step step;
    for (int64_t i = 0; dra_model_step_at(m, i, &step) && !out->memory[0]; i++) {
        const outline_part part = outline_sublayer(m, &step);
        const char *and = strstr(part.title, " and ");
        if (part.kind == OUTLINE_FF) continue;
        snprintf(out->memory, sizeof out->memory, "%.*s%s%s",
                 and? (int)(and-part.title) : (int)strlen(part.title), part.title, and? "+" : "",
                 and? and+5 : "");
    }
}

static dra_status measure(const char *name, preset *out, dra_error *err)
{
    dra_model *m = NULL;
    *out = (preset){0};
    dra_status st = dra_preset_config(name, &out->config, err);
    if (st == DRA_OK) st = dra_model_create(&out->config, &m, err);
    if (st == DRA_OK) out->parameters = dra_model_param_count(m);
    if (st == DRA_OK) out->config = *dra_model_config_of(m);
    if (st == DRA_OK) name_memory(m, out);
    dra_model_destroy(m);
    return st;
}

static void write_json(const char *name, const preset *p)
{
    const dra_model_config *c = &p->config;
    printf(
        "\n  {\"name\": \"%s\", \"parameters\": %lld, \"vocab\": %lld, \"dim\": %lld, \"depth\": "
        "%lld, \"context\": %lld",
        name, (long long)p->parameters, (long long)c->vocab, (long long)c->dim, (long long)c->depth,
        (long long)c->context);
    printf(", \"memory\": \"%s\", \"about\": \"%s\"}", p->memory, about(name));
}

static void write_row(const char *name, const preset *p)
{
    const dra_model_config *c = &p->config;
    char                    count[24], layers[48];
    snprintf(layers, sizeof layers, "%lld x %lld", (long long)c->depth, (long long)c->dim);
    printf("%-17s  %6s  %5lld  %-8s  %-9s  %s\n", name,
           cli_count_text((double)p->parameters, count), (long long)c->vocab, layers, p->memory,
           about(name));
}

static dra_status write_all(bool json, dra_error *err)
{
    const dra_preset *p;
    preset            found;
    if (json)
        fputs("{\"presets\": [", stdout);
    else
        printf("%s%-17s  %6s  %5s  %-8s  %-9s  %s%s\n", cli_bold(stdout), "preset", "params",
               "vocab", "layers", "memory", "what it is", cli_plain(stdout));
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        const dra_status st = measure(p->name, &found, err);
        if (st != DRA_OK) return st;
        if (json && i) putchar(',');
        (json ? write_json : write_row)(p->name, &found);
    }
    if (json) puts("\n]}");
    return DRA_OK;
}

static int run(const void *args)
{
    const struct args *a = args;
    const dra_preset  *p;
    dra_model_config   config;
    dra_error          err = {0};
    if (!a->name) return write_all(a->json, &err) == DRA_OK ? CLI_OK : cli_fail(&err);
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        if (strcmp(p->name, a->name) != 0) continue;
        fputs(p->json, stdout);
        return CLI_OK;
    }
    dra_preset_config(a->name, &config, &err); /* says what it is not, and perhaps is */
    return cli_fail(&err);
}

static const cli_note examples[] = {
    {"dra presets", "all of them: size, memory, what they are"},
    {"dra presets dra-gru-tiny > config.json", "one as a config, to edit by hand"},
    {"dra presets --json", "all sizes as JSON"},
    {0},
};

const cli_verb cmd_presets = {
    .name = "presets",
    .summary = "list the presets, or print one as a config",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run,
    .group = "Make",
    .about = "A preset is a config that comes with dra. Those with names ending in -tiny have "
             "about two million parameters and read bytes; the others have the sizes and "
             "vocabularies of the models they are named after. xt-seq2seq-tiny translates bytes "
             "(token 256 starts and ends a text), vit-tiny names digits of 8 x 8 pixels, "
             "series-tiny continues a series of numbers; the last two are smaller.\n"
             "With a name, prints the config as JSON. Saved to a file, it can be passed to "
             "--config; --set changes single keys without a file.",
    .examples = examples,
    .also = "init info train",
};
