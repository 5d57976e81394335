/* dra init: a model folder with fresh weights. */
#include "io/model.h"

#include <unistd.h>

struct args {
    cli_source  from;
    const char *out;
    int64_t     seed;
    int         start;
    bool        force;
};

static const struct args defaults = {0};

static const char *const starts[] = {"usual", "rwkv", NULL};

static const cli_option options[] = {
    CLI_CONFIG_OPTIONS(struct args),
    {"out", CLI_TEXT, offsetof(struct args, out), 0, 0,
     "folder to write; created if it does not "
     "exist",
     "DIR", .flags = CLI_REQUIRED, .group = "Folder", .brief = 'o'},
    {"force", CLI_FLAG, offsetof(struct args, force), 0, 0,
     "replace an existing model and its tokenizer"},
    {"tokenizer", CLI_TEXT, offsetof(struct args, from.tokenizer), 0, 0,
     "file or folder of a tokenizer to copy to the model", "PATH"},
    {"seed", CLI_INT, offsetof(struct args, seed), 0, 9e15, "seed of the weights",
     .group = "Weight", .brief = 's'},
    {"start", CLI_CHOICE, offsetof(struct args, start), 0, 0,
     "initial values; rwkv: those of RWKV's original trainers", .choices = starts},
    CLI_THREADS_OPTION(struct args),
};

static bool is_run(const char *folder)
{
    char path[4096];
    return dra_trainer_saved(folder) >= 0 ||
           (cli_path(folder, "train/config.json", path, sizeof path) && access(path, F_OK) == 0);
}

/* An existing model is replaced only by --force, and a run never: its weights belong to its
 * checkpoints. */
static dra_status check_free(const char *folder, bool force, dra_error *err)
{
    char        path[4096];
    const char *found = dra_folder_model(folder);
    if (!cli_path(folder, "model.safetensors", path, sizeof path))
        return cli_error(err, DRA_ERR_FILE, "%.80s...: the path is too long", folder);
    if (is_run(folder))
        return cli_error(err, DRA_ERR_FILE, "%.400s is a run; take another folder", folder);
    if (!found || force) return DRA_OK;
    return cli_error(err, DRA_ERR_FILE, "%.400s/%s is there already; --force replaces it", folder,
                     found);
}

/* Makes the weights; everything that can be refused is refused before the first file is written. */
static dra_status make_weights(const struct args *a, cli_model *m, dra_model_config **config,
                               dra_error *err)
{
    dra_status st = cli_source_config(&a->from, config, err);
    if (st == DRA_OK) st = dra_model_create(*config, &m->model, err);
    if (st == DRA_OK && a->from.tokenizer) st = cli_model_tokenizer(&a->from, m, err);
    if (st == DRA_OK) st = check_free(a->out, a->force, err);
    if (st == DRA_OK) st = cli_draw_check(&a->from, m->model, err);
    if (st != DRA_OK) return st;
    return (a->start ? dra_weights_draw_rwkv : dra_weights_draw)(m->model, (uint64_t)a->seed,
                                                                 &m->weights, err);
}

static dra_status save_to(const char *folder, const cli_model *m, const dra_model_config *config,
                          dra_error *err)
{
    char       path[4096];
    dra_status st = dra_folder_save_config_like(folder, config, NULL, err);
    if (st == DRA_OK) st = dra_folder_save_tokenizer(folder, m->tokenizer, config->vocab, err);
    if (st == DRA_OK && !cli_path(folder, "model.safetensors", path, sizeof path))
        st = cli_error(err, DRA_ERR_FILE, "%.80s...: the path is too long", folder);
    return st == DRA_OK ? dra_weights_save(m->weights, path, err) : st;
}

/* The new model is complete before the old one is removed, including what a killed process left in
 * its folder. */
static dra_status save_model(const struct args *a, const cli_model *m,
                             const dra_model_config *config, dra_error *err)
{
    char stage[4096];
    if (!cli_is_there(a->out)) return save_to(a->out, m, config, err);
    dra_status st = dra_folder_stage(a->out, stage, sizeof stage, err);
    if (st != DRA_OK) return st;
    st = save_to(stage, m, config, err);
    if (st == DRA_OK) return dra_folder_replace(a->out, stage, err);
    dra_folder_drop(stage);
    return st;
}

static int run_init(const void *args)
{
    const struct args *a = args;
    cli_model          m = {0};
    dra_model_config  *config = NULL;
    dra_error          err = {0};
    const int          status = cli_config_check("init", &a->from);
    if (status != CLI_OK) return status;
    dra_status st = make_weights(a, &m, &config, &err);
    if (st == DRA_OK) st = save_model(a, &m, config, &err);
    if (st == DRA_OK)
        cli_line(stdout, "%s: %lld parameters", a->out, (long long)dra_model_param_count(m.model));
    cli_model_close(&m);
    dra_model_config_destroy(config);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note files[] = {
    {"DIR/config.json", "the config, with everything that was set"},
    {"DIR/model.safetensors", "the weights"},
    {"DIR/tokenizer.json", "the tokenizer, if one was given; that of RWKV World as its own file"},
    {0},
};

static const cli_note examples[] = {
    {"dra init --preset dra-slots-tiny --out new", "a model folder from a preset"},
    {"dra init --preset dra-gru-tiny --set dim=96 --set depth=2 --seed 7 --out small",
     "a smaller one with other weights"},
    {"dra init --preset rwkv4-tiny --start rwkv --out rwkv",
     "initial values of RWKV's own trainer"},
    {0},
};

const cli_verb cmd_init = {
    .name = "init",
    .summary = "make a model folder with fresh weights",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_init,
    .group = "Make",
    .about =
        "Initialises the weights of a preset or a config at random and writes them as a model "
        "folder. The same seed gives the same weights on every machine.\n"
        "An existing model is replaced only with --force, and a run never is. Training does not "
        "need this step: 'dra train --preset' initialises weights by itself.",
    .files = files,
    .examples = examples,
    .also = "presets info train",
};
