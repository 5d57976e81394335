/* dra presets: configs that come with the library. */
#include "verbs/info/info.h"
#include "options/units.h"

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

/* Summaries by name without -tiny; memory and state are taken from the model. */
static const char *const words[][2] = {
    {"adr", "GRU, read jointly"},
    {"dra-delta", "the delta rule"},
    {"dra-ema", "averages that fade"},
    {"dra-gru", "GRU cells"},
    {"dra-moment", "linear attention"},
    {"dra-pooled", "one slot, pooled"},
    {"dra-slot-gru", "one slot, GRU"},
    {"dra-slots", "16 slots, routed"},
    {"gpt2", "GPT-2"},
    {"hybrid", "append and slots"},
    {"retention", "RetNet, fading"},
    {"rwkv4", "RWKV-4"},
    {"rwkv5", "RWKV 5.2"},
    {"rwkv6", "RWKV-6"},
    {"rwkv7", "RWKV-7"},
    {"series", "continues numbers"},
    {"vit", "names 8 x 8 images"},
    {"xt-decoder", "decoder"},
    {"xt-encoder", "fills masked bytes"},
    {"xt-modern", "rotary, SwiGLU"},
    {"xt-seq2seq", "translates"},
};

static const char *preset_summary(const char *name)
{
    const char  *tiny = strstr(name, "-tiny");
    const size_t n = tiny ? (size_t)(tiny - name) : strlen(name);
    for (size_t i = 0; i < COUNT(words); i++)
        if (strlen(words[i][0]) == n && strncmp(words[i][0], name, n) == 0) return words[i][1];
    return "";
}

typedef struct preset { /* what the list shows */
    int64_t    vocab, dim, depth, context, parameters;
    info_state state;
    char       memory[48]; /* of the first layer: "append", "delta", "append+slots" */
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

static dra_status measure_preset(const char *name, preset *out, dra_error *err)
{
    dra_model_config *config;
    dra_model        *m = NULL;
    dra_status        st = dra_preset_config(name, &config, err);
    if (st == DRA_OK) st = dra_model_create(config, &m, err);
    dra_model_config_destroy(config);
    if (st != DRA_OK) return st;
    const dra_model_config *c = dra_model_config_of(m);
    *out = (preset){.vocab = c->vocab,
                    .dim = c->dim,
                    .depth = c->depth,
                    .context = c->context,
                    .parameters = dra_model_param_count(m),
                    .state = info_state_of(m)};
    name_memory(m, out);
    dra_model_destroy(m);
    return DRA_OK;
}

static void write_json(const char *name, const preset *p)
{
    printf(
        "\n  {\"name\": \"%s\", \"parameters\": %lld, \"vocab\": %lld, \"dim\": %lld, \"depth\": "
        "%lld, \"context\": %lld",
        name, (long long)p->parameters, (long long)p->vocab, (long long)p->dim, (long long)p->depth,
        (long long)p->context);
    printf(", \"state_bytes\": %zu, \"state_bytes_per_token\": %zu",
           p->state.fixed + p->state.windows, p->state.per_token);
    printf(", \"memory\": \"%s\", \"about\": \"%s\"}", p->memory, preset_summary(name));
}

/* The size of a state: for one that grows, how much for each token; the rest is small then. */
static const char *state_text(const info_state *s, char text[48])
{
    char         room[24];
    const size_t constant = s->fixed + s->windows;
    if (s->per_token)
        snprintf(text, 48, "+%s/token", cli_bytes_text(s->per_token, room));
    else
        snprintf(text, 48, "%s", constant ? cli_bytes_text(constant, room) : "none");
    return text;
}

static void write_row(const char *name, const preset *p)
{
    char count[24], layers[48], state[48];
    snprintf(layers, sizeof layers, "%lld x %lld", (long long)p->depth, (long long)p->dim);
    printf("%-17s  %6s  %-8s  %-6s  %-15s  %s\n", name,
           cli_count_text((double)p->parameters, count), layers,
           strchr(p->memory, '+') ? "blend" : p->memory, /* the column is narrow */
           state_text(&p->state, state), preset_summary(name));
}

static dra_status write_all(bool json, dra_error *err)
{
    const dra_preset *p;
    preset            found;
    if (json)
        fputs("{\"presets\": [", stdout);
    else
        printf("%s%-17s  %6s  %-8s  %-6s  %-15s  %s%s\n", cli_bold(stdout), "preset", "params",
               "layers", "memory", "state", "what it is", cli_plain(stdout));
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        const dra_status st = measure_preset(p->name, &found, err);
        if (st != DRA_OK) return st;
        if (json && i) putchar(',');
        (json ? write_json : write_row)(p->name, &found);
    }
    if (json) puts("\n]}");
    return DRA_OK;
}

static int run_presets(const void *args)
{
    const struct args *a = args;
    const dra_preset  *p;
    dra_model_config  *config = NULL;
    dra_error          err = {0};
    if (!a->name) return write_all(a->json, &err) == DRA_OK ? CLI_OK : cli_fail(&err);
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        if (strcmp(p->name, a->name) != 0) continue;
        fputs(p->json, stdout);
        return CLI_OK;
    }
    dra_preset_config(a->name, &config, &err); /* the error suggests a name */
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
    .run = run_presets,
    .group = "Make",
    .about = "A preset is a config that comes with dra. Those with names ending in -tiny have "
             "about two million parameters and read bytes; the others have the sizes and "
             "vocabularies of the models they are named after. xt-seq2seq-tiny translates bytes "
             "(token 256 starts and ends a text), vit-tiny names digits of 8 x 8 pixels, "
             "series-tiny continues a series of numbers; the last two are smaller.\n"
             "The state is the memory that a sequence needs: 99.0 KiB is constant, +6.0 KiB/token "
             "grows with the text, and an encoder has none. The memory append is attention, which "
             "keeps every token.\n"
             "With a name, prints the config as JSON. Saved to a file, it can be passed to "
             "--config; --set changes single keys without a file.",
    .examples = examples,
    .also = "init info train",
};
