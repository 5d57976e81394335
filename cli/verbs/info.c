/* dra info: the parts of a model, the size of its state, and its half-lives. */
#include "report/decays.h"
#include "verbs/info/draw.h"
#include "verbs/info/info.h"
#include "io/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct args {
    cli_source  from;
    const char *draw;
    bool        json;
};

static const struct args defaults = {0};

static const cli_option options[] = {
    CLI_MODEL_OPTIONS(struct args),
    CLI_CACHE_OPTION(struct args, "cache"),
    {"draw", CLI_TEXT, offsetof(struct args, draw), 0, 0, "draw the model, as SVG", "FILE",
     .group = "Output", .flags = CLI_WRITES},
    CLI_THREADS_OPTION(struct args),
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

/* ---- sizes ----------------------------------------------------------------------------------- */

enum { PARTS = 5 };
static const char *const part_names[PARTS] = {"embedding", "positions", "mixers", "ff", "head"};

typedef struct sizes {
    int64_t    parameters, active, part[PARTS], other; /* numbers; those a token meets */
    int64_t    group[DRA_PARAM_GROUPS];                /* that are trained */
    info_state state;
} sizes;

static int part_of(const char *name)
{
    if (strstr(name, ".mixer.") || strstr(name, ".cross.")) return 2;
    if (strstr(name, ".ff.")) return 3;
    for (int i = 0; i < PARTS; i++)
        if (strcmp(name, part_names[i]) == 0) return i;
    return -1;
}

static sizes measure_model(const dra_model *m)
{
    const dra_specs *params = dra_model_params(m);
    sizes            s = {.parameters = dra_model_param_count(m),
                          .active = dra_model_active_count(m),
                          .state = info_state_of(m)};
    dra_model_groups(m, s.group);
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_spec *p = dra_specs_at(params, i);
        const int       part = part_of(p->name);
        *(part < 0 ? &s.other : &s.part[part]) += dra_shape_count(&p->shape);
    }
    return s;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void write_place(const char *name, int64_t i)
{
    if (i < 0)
        printf("\"%s\": null, ", name);
    else
        printf("\"%s\": %lld, ", name, (long long)i);
}

static bool is_language(const cli_model *m)
{
    return dra_model_config_is_language(dra_model_config_of(m->model));
}

static void write_json(const cli_model *m, const sizes *s, const outline *o, const cli_decays *d)
{
    int  bad = 0;
    char room[2][CLI_NUMBER];
    printf("{\"parameters\": %lld, \"active\": %lld, \"bytes\": %lld, \"parts\": {",
           (long long)s->parameters, (long long)s->active,
           (long long)s->parameters * (long long)sizeof(dra_real));
    for (int i = 0; i < PARTS; i++) printf("\"%s\": %lld, ", part_names[i], (long long)s->part[i]);
    printf("\"other\": %lld},\n \"groups\": {", (long long)s->other);
    for (int k = 1, n = 0; k < DRA_PARAM_GROUPS; k++)
        if (s->group[k])
            printf("%s\"%s\": %lld", n++ ? ", " : "", dra_param_group_name((dra_param_group)k),
                   (long long)s->group[k]);
    printf("},\n \"fingerprint\": \"%016llx\",\n",
           (unsigned long long)dra_model_fingerprint(m->model));
    printf(" \"state\": {\"bytes\": %zu, \"window_bytes\": %zu, \"bytes_per_token\": %zu",
           s->state.fixed, s->state.windows, s->state.per_token);
    if (s->state.per_context) printf(", \"bytes_per_context_token\": %zu", s->state.per_context);
    puts("},");
    info_layers_json(m->model);
    if (!is_language(m)) info_stacks_json(o);
    fputs(" \"gammas\": [", stdout);
    for (size_t i = 0; i < d->n; i++) {
        const dra_gamma_row *r = &d->rows[i];
        printf("%s\n  {\"layer\": %d, \"memory\": \"%s\", \"param\": \"%s\", ", i ? "," : "",
               r->layer, r->memory, r->param);
        write_place("head", r->head);
        write_place("unit", r->unit);
        write_place("channel", r->channel);
        printf("\"gamma\": %s, \"half_life\": %s, \"by_data\": %s}",
               cli_json_number(r->gamma, 9, room[0]), cli_json_number(r->half_life, 9, room[1]),
               r->by_data ? "true" : "false");
        bad += !isfinite(r->gamma) + !isfinite(r->half_life);
    }
    putchar(']');
    if (bad) printf(", \"not_finite\": %d", bad);
    puts("}");
}

static void write_row(const char *name, int64_t n, int64_t all)
{
    if (n)
        printf("  %-12s  %12lld  %5.1f %%\n", name, (long long)n, 100.0 * (double)n / (double)all);
}

/* Writes the groups of parameters that optimizers tell apart, and which decay by default. */
static void write_groups(const dra_model *m, const sizes *s)
{
    const dra_optimizer_config plain = {.decay = 1};
    char                       names[2][700] = {"", ""};
    for (int k = 1; k < DRA_PARAM_GROUPS; k++) {
        const dra_param_group group = (dra_param_group)k;
        char                 *to = names[dra_optimizer_group(&plain, m, group).wd > 0 ? 0 : 1];
        const size_t          n = strlen(to);
        if (s->group[k])
            snprintf(to + n, sizeof names[0] - n, "%s%s %lld", n ? ", " : "",
                     dra_param_group_name(group), (long long)s->group[k]);
    }
    cli_fold(14, stdout, "groups        %s%s%s%s", names[0],
             names[0][0] ? " with weight decay" : "", names[0][0] && names[1][0] ? "; " : "",
             names[1]);
}

static void write_state(const sizes *s)
{
    char windows[64] = "", tokens[64] = "", context[64] = "";
    if (s->state.windows)
        snprintf(windows, sizeof windows, ", %zu more when its windows are full", s->state.windows);
    if (s->state.per_token)
        snprintf(tokens, sizeof tokens, ", and %zu for each token", s->state.per_token);
    if (s->state.per_context)
        snprintf(context, sizeof context, ", and %zu for each token of its context",
                 s->state.per_context);
    cli_fold(14, stdout, "state         %zu bytes a sequence%s%s%s", s->state.fixed, windows,
             tokens, context);
}

/* Writes text line by line, wrapped at the width of the terminal. */
static void write_lines(const char *text)
{
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        cli_fold(39, stdout, "%.*s", (int)n, text);
    }
}

static void write_text(const cli_model *m, const sizes *s, const outline *o, const cli_decays *d)
{
    const dra_model_config *c = dra_model_config_of(m->model);
    if (!is_language(m)) info_stacks_text(m->model, o);
    const bool tokens = c->source.kind == DRA_SOURCE_TOKENS || c->head.kind == DRA_HEAD_TOKENS;
    fputs("model         ", stdout);
    if (tokens) printf("vocab %lld, ", (long long)c->vocab);
    printf("dim %lld, depth %lld, heads %lld, context %lld\n", (long long)c->dim,
           (long long)c->depth, (long long)c->heads, (long long)c->context);
    printf("parameters    %lld, %.4g MB\n", (long long)s->parameters,
           (double)s->parameters * sizeof(dra_real) / 1e6);
    if (s->active != s->parameters)
        printf("active        %lld, those that a token meets: it has %lld of %lld experts\n",
               (long long)s->active, (long long)c->ff.experts.top, (long long)c->ff.experts.count);
    for (int i = 0; i < PARTS; i++) write_row(part_names[i], s->part[i], s->parameters);
    write_row("other", s->other, s->parameters);
    write_groups(m->model, s);
    write_state(s);
    if (is_language(m)) info_layers_text(m->model);
    const size_t n = d->n ? dra_gammas_text(d->rows, d->n, NULL, 0) : 0;
    char        *text = n ? cli_room(n + 1, 1) : NULL;
    if (!text) return;
    dra_gammas_text(d->rows, d->n, text, n + 1);
    puts("decays");
    write_lines(text);
    free(text);
}

/* A config has sizes and decays; no weights are initialised for it. */
static dra_status open_model(const cli_source *s, cli_model *m, dra_error *err)
{
    dra_model_config *config = NULL;
    if (s->model) return cli_model_open(s, m, err);
    dra_status st = cli_source_config(s, &config, err);
    if (st == DRA_OK) st = dra_model_create(config, &m->model, err);
    dra_model_config_destroy(config);
    return st;
}

static dra_status draw_file(const struct args *a, const outline *o, dra_error *err)
{
    const cli_source *s = &a->from;
    char             *text = NULL;
    size_t            bytes = 0;
    FILE             *out = dra_stream_memory(&text, &bytes);
    if (!out) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    draw_model(out, o, s->model ? s->model : s->preset ? s->preset : s->config);
    dra_status st = fclose(out) == 0 ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK) st = dra_file_write(a->draw, text, bytes, err);
    free(text);
    return st;
}

static int run_info(const void *args)
{
    const struct args *a = args;
    cli_model          m = {0};
    cli_decays         d = {0};
    outline            o = {0};
    dra_error          err = {0};
    const int          status = cli_source_check("info", &a->from);
    if (status != CLI_OK) return status;
    const bool is_state = info_is_state(a->from.model);
    if (is_state && a->from.cache)
        return cli_misused("info", "--cache is of a model, and %s is a state", a->from.model);
    if (is_state)
        return info_show_state(a->from.model, a->json, &err) == DRA_OK ? CLI_OK : cli_fail(&err);
    dra_status st = open_model(&a->from, &m, &err);
    if (st == DRA_OK) st = cli_decays_find(m.model, m.weights, &d, &err);
    if (st == DRA_OK) st = outline_make(m.model, &o, &err);
    if (st == DRA_OK && a->draw) st = draw_file(a, &o, &err);
    if (st == DRA_OK) {
        const sizes s = measure_model(m.model);
        (a->json ? write_json : write_text)(&m, &s, &o, &d);
    }
    free(d.rows);
    outline_free(&o);
    cli_model_close(&m);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note examples[] = {
    {"dra info --model model", "a trained model"},
    {"dra info --preset dra-ema-tiny --json", "a preset, as JSON"},
    {"dra info --preset xt-seq2seq-tiny --draw model.svg", "encoder and decoder as a picture"},
    {0},
};

const cli_verb cmd_info = {
    .name = "info",
    .summary = "show parameters, bytes of state and half-lives of a model",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_info,
    .group = "Look",
    .about = "Prints the parts of a model: its sizes, its parameters by part, the bytes of state "
             "per sequence (a fixed number, and more for each token where a memory keeps all "
             "items), the memory of each layer, and the decay and half-life of every memory that "
             "fades.\n"
             "For a model that is not a language model, also its inputs and outputs, and its "
             "stacks: source, sublayers and head of each, with their parameters. --draw writes "
             "the same as a picture, of any model.\n"
             "For a state file (dra info FILE.state) it prints the tokens that each sequence has "
             "read, the fingerprint of its model and weights, and its tensors.",
    .examples = examples,
    .also = "presets report",
};
