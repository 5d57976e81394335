/* dra presets: configs that come with the library. */
#include "model.h"

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
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object"},
};

typedef struct size { /* of a preset's model */
    dra_model_config config;
    int64_t          parameters;
} size;

static dra_status measure(const char *name, size *out, dra_error *err)
{
    dra_model *m = NULL;
    dra_status st = dra_preset_config(name, &out->config, err);
    if (st == DRA_OK) st = dra_model_create(&out->config, &m, err);
    if (st == DRA_OK) out->parameters = dra_model_param_count(m);
    if (st == DRA_OK) out->config = *dra_model_config_of(m);
    dra_model_destroy(m);
    return st;
}

static dra_status write_all(bool json, dra_error *err)
{
    const dra_preset *p;
    size              s;
    if (json)
        fputs("{\"presets\": [", stdout);
    else
        printf("%s%-20s  %10s  %6s  %5s  %5s  %7s%s\n", cli_bold(stdout), "preset", "parameters",
               "vocab", "dim", "depth", "context", cli_plain(stdout));
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        const dra_status st = measure(p->name, &s, err);
        if (st != DRA_OK) return st;
        const dra_model_config *c = &s.config;
        printf(json ? "%s\n  {\"name\": \"%s\", \"parameters\": %lld, \"vocab\": %lld, \"dim\": "
                      "%lld, \"depth\": %lld, \"context\": %lld}"
                    : "%.0s%-20s  %10lld  %6lld  %5lld  %5lld  %7lld\n",
               i ? "," : "", p->name, (long long)s.parameters, (long long)c->vocab,
               (long long)c->dim, (long long)c->depth, (long long)c->context);
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
    {"dra presets", "all of them, with sizes"},
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
