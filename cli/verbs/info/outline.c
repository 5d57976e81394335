/* A model part by part. */
#include "outline.h"

#include "io/inputs.h"

#include <stdlib.h>
#include <string.h>

const char *outline_kind_name(outline_kind kind)
{
    static const char *const names[] = {"source", "positions", "start", "layers", "attention",
                                        "cross",  "ff",        "norm",  "head"};
    return (unsigned)kind < OUTLINE_KINDS ? names[kind] : "other";
}

/* ---- numbers --------------------------------------------------------------------------------- */

static int64_t count_specs(const dra_specs *s)
{
    int64_t n = 0;
    for (int i = 0; i < dra_specs_count(s); i++) n += dra_shape_count(&dra_specs_at(s, i)->shape);
    return n;
}

static bool begins_with(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Whether a parameter of m is one of another stack of it. */
static bool is_other(const dra_model *m, const char *name)
{
    const dra_model *others[] = {dra_model_context_stack(m), dra_model_prepend_stack(m)};
    for (int i = 0; i < 2; i++) {
        const char  *stack = others[i] ? dra_model_config_of(others[i])->name : "";
        const size_t n = strlen(stack);
        if (n && strncmp(name, stack, n) == 0 && name[n] == '.') return true;
    }
    return false;
}

static outline_kind kind_of(const char *name)
{
    if (begins_with(name, "layers.") || strcmp(name, "blend") == 0) return OUTLINE_LAYERS;
    if (begins_with(name, "position")) return OUTLINE_POSITIONS;
    if (begins_with(name, "memory_tokens")) return OUTLINE_START;
    if (begins_with(name, "norm_")) return OUTLINE_NORM;
    return begins_with(name, "head") || begins_with(name, "cls_") || begins_with(name, "numbers_")
               ? OUTLINE_HEAD
               : OUTLINE_SOURCE;
}

static int64_t params_of(const dra_model *m, int kind)
{
    const dra_specs *s = dra_model_params(m);
    int64_t          n = 0;
    for (int i = 0; i < dra_specs_count(s); i++) {
        const dra_spec *p = dra_specs_at(s, i);
        if (is_other(m, p->name)) continue;
        if (kind < 0 || kind_of(p->name) == (outline_kind)kind) n += dra_shape_count(&p->shape);
    }
    return n;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static outline_part *add_part(outline_stack *s, outline_kind kind, const char *title,
                              int64_t params)
{
    outline_part *p = &s->part[s->n++];
    *p = (outline_part){.kind = kind, .params = params, .count = 1};
    snprintf(p->title, sizeof p->title, "%s", title);
    return p;
}

#define SAY(p, ...) snprintf((p)->detail, sizeof(p)->detail, __VA_ARGS__)

static void add_source(outline_stack *s)
{
    static const char *const titles[] = {"tokens", "vectors", "image"};
    _Static_assert(sizeof titles / sizeof *titles == DRA_SOURCE_COUNT, "a name for each");
    const dra_model_config  *c = dra_model_config_of(s->model);
    const dra_source_config *from = &c->source;
    const int64_t            W = c->embed_dim ? c->embed_dim : c->dim;
    outline_part            *p = add_part(s, OUTLINE_SOURCE, titles[from->kind],
                                          params_of(s->model, OUTLINE_SOURCE));
    if (from->kind == DRA_SOURCE_TOKENS)
        SAY(p, "%s (%lld, %lld)%s", from->shared ? "shared table" : "table", (long long)c->vocab,
            (long long)W, from->numbers ? ", with numbers" : "");
    if (from->kind == DRA_SOURCE_VECTORS && from->dim)
        SAY(p, "map from %lld to %lld", (long long)from->dim, (long long)W);
    if (from->kind == DRA_SOURCE_VECTORS && !from->dim)
        SAY(p, "of %lld, as they are", (long long)W);
    if (from->kind == DRA_SOURCE_IMAGE)
        SAY(p, "%lld patches of %lld x %lld, map to %lld",
            (long long)(from->size / from->patch * (from->size / from->patch)),
            (long long)from->patch, (long long)from->patch, (long long)W);
}

static void add_positions(outline_stack *s)
{
    static const char *const rotates[] = {"", "rotary", "xpos"};
    _Static_assert(sizeof rotates / sizeof *rotates == DRA_ROTATE_COUNT, "a name for each");
    static const char *const distances[] = {"", "t5 bias", "dynamic bias", "alibi"};
    _Static_assert(sizeof distances / sizeof *distances == DRA_DISTANCE_COUNT, "a name for each");
    const dra_model_config *c = dra_model_config_of(s->model);
    const bool              learned = c->positions == DRA_POSITIONS_LEARNED;
    const char             *more = c->position.distance ? distances[c->position.distance]
                                                        : rotates[c->position.rotate];
    if (learned || more[0]) {
        outline_part *p = add_part(s, OUTLINE_POSITIONS, "positions",
                                   params_of(s->model, OUTLINE_POSITIONS));
        if (learned)
            SAY(p, "learned, %lld%s%s", (long long)c->context, more[0] ? ", " : "", more);
        else
            SAY(p, "%s", more);
    }
    if (c->memory_tokens)
        SAY(add_part(s, OUTLINE_START, "memory tokens", params_of(s->model, OUTLINE_START)),
            "%lld before every text", (long long)c->memory_tokens);
}

static void add_head(outline_stack *s)
{
    static const char *const titles[] = {"logits", "classes", "vectors", ""};
    _Static_assert(sizeof titles / sizeof *titles == DRA_HEAD_COUNT, "a name for each");
    const dra_model_config *c = dra_model_config_of(s->model);
    const dra_head_config  *h = &c->head;
    const int64_t           norm = params_of(s->model, OUTLINE_NORM);
    if (norm) add_part(s, OUTLINE_NORM, "norm", norm);
    if (h->kind == DRA_HEAD_NONE) return;
    outline_part *p = add_part(s, OUTLINE_HEAD, titles[h->kind], params_of(s->model, OUTLINE_HEAD));
    const bool    map = h->kind == DRA_HEAD_TOKENS || h->dim;
    SAY(p, "%s%lld%s%s",
        h->kind == DRA_HEAD_CLASSES ? "of the mean, "
        : map                       ? ""
                                    : "as they are, ",
        (long long)dra_model_head_width(s->model),
        h->kind == DRA_HEAD_TOKENS && c->tied == DRA_ON ? ", by the table of tokens" : "",
        h->numbers ? ", and numbers" : "");
}

/* ---- sublayers ------------------------------------------------------------------------------- */

static const char *memory_name(const dra_memory_config *m)
{
    return m->own ? m->own->name : m->memory ? m->memory : "append";
}

static void say_mixer(outline_part *p, const dra_mixer_config *c)
{
    const char *name = memory_name(&c->a), *retrieval = c->a.retrieval ? c->a.retrieval : "";
    const bool  by_time = !*retrieval || strcmp(retrieval, "time") == 0;
    const bool  plain = strcmp(name, "append") == 0 && by_time;
    char        groups[24] = "";
    if (p->kind == OUTLINE_CROSS)
        snprintf(p->title, sizeof p->title, "cross-attention");
    else if (c->blend != DRA_BLEND_NONE)
        snprintf(p->title, sizeof p->title, "%s and %s", name, memory_name(&c->b));
    else
        snprintf(p->title, sizeof p->title, "%s", name);
    if (c->kv_heads && c->kv_heads != c->heads)
        snprintf(groups, sizeof groups, ", %lld of keys", (long long)c->kv_heads);
    SAY(p, "%lld head%s of %lld%s%s%s", (long long)c->heads, c->heads == 1 ? "" : "s",
        (long long)c->key_dim, groups, plain || !*retrieval ? "" : ", retrieval ",
        plain ? "" : retrieval);
}

static void say_ff(outline_part *p, const dra_ff_config *c)
{
    static const char *const kinds[] = {"gelu",   "gelu", "relu", "relu squared",
                                        "swiglu", "mix",  "none", "silu"};
    _Static_assert(sizeof kinds / sizeof *kinds == DRA_FF_COUNT, "a name for each");
    snprintf(p->title, sizeof p->title, "feed-forward");
    char experts[80] = "";
    if (c->experts.count)
        snprintf(experts, sizeof experts, ", %lld of %lld experts%s", (long long)c->experts.top,
                 (long long)c->experts.count, c->experts.shared ? " and a shared one" : "");
    SAY(p, "%s%s, %lld wide%s", c->gated ? "gated " : "", kinds[c->kind], (long long)c->dim,
        experts);
}

outline_part outline_sublayer(const dra_model *m, const dra_model_step *step)
{
    static const outline_kind  kinds[] = {[DRA_SUBLAYER_MIXER] = OUTLINE_ATTENTION,
                                          [DRA_SUBLAYER_FF] = OUTLINE_FF,
                                          [DRA_SUBLAYER_CROSS] = OUTLINE_CROSS};
    const dra_sublayer_config *c = dra_sublayer_config_of(step->sublayer);
    outline_part               p = {.kind = kinds[c->kind], .count = 1};
    if (c->kind == DRA_SUBLAYER_FF)
        say_ff(&p, &dra_model_config_of(m)->ff);
    else
        say_mixer(&p, dra_mixer_config_of(dra_sublayer_mixer(step->sublayer)));
    p.params = count_specs(dra_sublayer_module(step->sublayer)->params);
    return p;
}

static bool is_same(const outline_part *a, const outline_part *b)
{
    return a->kind == b->kind && a->params == b->params && strcmp(a->title, b->title) == 0 &&
           strcmp(a->detail, b->detail) == 0;
}

/* How many times parts from .. from + n - 1 repeat in a row. */
static int count_repeats(const outline_part *all, int total, int from, int n)
{
    int count = 1;
    for (int at = from + n; at + n <= total; at += n, count++)
        for (int k = 0; k < n; k++)
            if (!is_same(&all[from + k], &all[at + k])) return count;
    return count;
}

/* The shortest run of sublayers at `from` whose repetitions cover the most. */
static int best_run(const outline_part *all, int total, int from, int *count)
{
    int best = 1, most = count_repeats(all, total, from, 1);
    for (int n = 2; n <= 16 && from + 2 * n <= total; n++) {
        const int times = count_repeats(all, total, from, n);
        if (times > 1 && times * n > most * best) best = n, most = times;
    }
    *count = most;
    return best;
}

typedef struct execution {
    const dra_sublayer *sublayer;
    int                 at;
} execution;

static int by_sublayer(const void *a, const void *b)
{
    const execution *x = a, *y = b;
    if (x->sublayer != y->sublayer) return (uintptr_t)x->sublayer < (uintptr_t)y->sublayer ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* Parameters of each sublayer; shared ones are counted once, for the first of them. (total), to be
 * freed; NULL: no memory. */
static int64_t *own_params(const dra_model *m, int total)
{
    int64_t       *params = calloc((size_t)total + 1, sizeof *params);
    execution     *all = calloc((size_t)total + 1, sizeof *all);
    dra_model_step step;
    for (int i = 0; params && all && i < total && dra_model_step_at(m, i, &step); i++)
        all[i] = (execution){step.sublayer, i};
    if (params && all) qsort(all, (size_t)total, sizeof *all, by_sublayer);
    for (int i = 0; params && all && i < total; i++)
        if (!i || all[i].sublayer != all[i - 1].sublayer)
            params[all[i].at] = count_specs(dra_sublayer_module(all[i].sublayer)->params);
    if (!all) free(params), params = NULL;
    free(all);
    return params;
}

static void add_layers(outline_stack *s, const outline_part *all, const int64_t *own, int total)
{
    for (int from = 0; from < total;) {
        int       count = 1;
        const int n = best_run(all, total, from, &count);
        char      title[32];
        snprintf(title, sizeof title, "%d times", count);
        int64_t params = 0;
        for (int i = from; i < from + n * count; i++) params += own[i];
        outline_part *frame = add_part(s, OUTLINE_LAYERS, title, params);
        frame->count = count;
        frame->n = n;
        for (int k = 0; k < n; k++) s->part[s->n++] = all[from + k];
        from += n * count;
    }
}

static dra_status make_parts(outline_stack *s, dra_error *err)
{
    const int      total = (int)dra_model_sublayers(s->model);
    outline_part  *all = calloc((size_t)total + 1, sizeof *all);
    int64_t       *own = own_params(s->model, total);
    dra_model_step step;
    s->part = calloc(2 * (size_t)total + 8, sizeof *s->part);
    if (!all || !own || !s->part) {
        free(own);
        free(all);
        return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    }
    for (int i = 0; i < total && dra_model_step_at(s->model, i, &step); i++)
        all[i] = outline_sublayer(s->model, &step);
    s->params = params_of(s->model, -1);
    add_source(s);
    add_positions(s);
    add_layers(s, all, own, total);
    add_head(s);
    free(own);
    free(all);
    return DRA_OK;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static void say_ends(outline_stack *s, bool context)
{
    const dra_model_config  *c = dra_model_config_of(s->model);
    char                     T[24];
    dra_model_input          in = {0};
    const long long          width = (long long)dra_model_head_width(s->model);
    static const char *const names[] = {"logits", "logits", "out", "hidden"};
    const bool               pooled = c->head.kind == DRA_HEAD_CLASSES;
    const bool               model = !s->role, prepended = !model && strstr(s->role, "prepended");
    dra_model_input_at(s->model, 0, &in);
    const int64_t length = in.prepended ? 0 /* these and its own */
                           : in.length  ? in.length
                           : prepended  ? c->source.length
                                        : 0;
    snprintf(T, sizeof T, length ? "%lld" : context ? "S" : "T", (long long)length);
    cli_named_source(s->model, context, s->reads, sizeof s->reads);
    if (!model)
        snprintf(s->gives, sizeof s->gives, "hidden (B, %s, %lld)", T, (long long)c->dim);
    else if (pooled)
        snprintf(s->gives, sizeof s->gives, "%s (B, %lld)", c->head.dim ? "logits" : "out", width);
    else
        snprintf(s->gives, sizeof s->gives, "%s (B, %s, %lld)%s", names[c->head.kind], T, width,
                 c->head.numbers ? ", numbers (B, T)" : "");
}

/* Adds a stack after those that it reads. Returns its number; below 0: out of memory. */
static int add_stack(outline *o, const dra_model *m, const char *role, bool context, dra_error *err)
{
    const dra_model *others[] = {dra_model_prepend_stack(m), dra_model_context_stack(m)};
    const char      *roles[] = {"prepended to", "context of"};
    int              at[2] = {-1, -1};
    for (int i = 0; i < 2; i++) {
        if (!others[i]) continue;
        at[i] = add_stack(o, others[i], roles[i], context || i == 1, err);
        if (at[i] < 0) return -1;
    }
    outline_stack *s = &o->stack[o->n];
    *s = (outline_stack){m, dra_model_config_of(m)->name, role, .reader = -1};
    for (int i = 0; i < 2; i++)
        if (at[i] >= 0) o->stack[at[i]].reader = o->n;
    say_ends(s, context);
    return make_parts(s, err) == DRA_OK ? o->n++ : -1;
}

dra_status outline_make(const dra_model *m, outline *out, dra_error *err)
{
    *out = (outline){0};
    if (add_stack(out, m, NULL, false, err) >= 0) return DRA_OK;
    outline_free(out);
    return err->code;
}

void outline_free(outline *o)
{
    for (int i = 0; i < OUTLINE_STACKS; i++) free(o->stack[i].part);
    *o = (outline){0};
}
