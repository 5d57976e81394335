/* dra forward: what a model makes of tokens, as tensors in a file. */
#include "inputs.h"
#include "value.h"

#include <stdlib.h>
#include <string.h>

struct args {
    cli_source  from;
    const char *tokens, *inputs, *chunks, *state_in, *state_out, *out, *outputs, *positions;
    int64_t     keep;
};

static const struct args defaults = {.from = {.state_limit = DRA_STATE_LIMIT}, .outputs = "logits"};

static const cli_option options[] = {
    CLI_MODEL_OPTIONS(struct args),
    {"tokens", CLI_TEXT, offsetof(struct args, tokens), 0, 0, "ids to read: 1,2,3 or @FILE",
     "LIST|@FILE", .group = "Input"},
    {"inputs", CLI_TEXT, offsetof(struct args, inputs), 0, 0,
     "or safetensors with ids (T) or (B, T), and mask (0 is a pad)", "FILE"},
    {"chunks", CLI_TEXT, offsetof(struct args, chunks), 0, 0,
     "read in chunks of these lengths, then the rest: 3,1,7", "LIST"},
    {"state-in", CLI_TEXT, offsetof(struct args, state_in), 0, 0, "continue from a state file",
     "FILE"},
    CLI_STATE_LIMIT_OPTION(struct args),
    {"out", CLI_TEXT, offsetof(struct args, out), 0, 0, "safetensors to write", "FILE",
     .flags = CLI_REQUIRED, .group = "Output"},
    {"outputs", CLI_TEXT, offsetof(struct args, outputs), 0, 0,
     "which of logits, hidden, streams, branches, attentions, state", "LIST"},
    {"keep", CLI_INT, offsetof(struct args, keep), 0, INT32_MAX,
     "only the logits of the last N tokens; 0: of all"},
    {"positions", CLI_TEXT, offsetof(struct args, positions), 0, 0,
     "or those of these positions, in this order: 0,5,7; negative ones count from the end", "LIST"},
    {"state-out", CLI_TEXT, offsetof(struct args, state_out), 0, 0, "save the state afterwards",
     "FILE"},
    CLI_DTYPE_OPTION(struct args),
    CLI_THREADS_OPTION(struct args),
};

typedef struct stack { /* an output of every layer, (n, B, T, C) */
    const char *each, *all;
    bool        wanted;
    int64_t     n;
    dra_real   *data;
} stack;

enum { STREAMS, BRANCHES, STACKS };

typedef struct work {
    const struct args *a;
    cli_model          m;
    bool               logits, hidden, maps, state; /* what is asked for */
    stack              stack[STACKS];
    cli_inputs         in;
    int                chunks;
    int64_t           *chunk;
    int64_t            V, C, keep; /* logits of the last `keep` tokens go out, or */
    dra_ids            positions;  /* of these */
    int32_t           *picks;      /* (B, view.picks): those of a chunk */
    dra_view           view;
    dra_reader        *reader;
    dra_context        context;
    dra_real          *out_logits, *out_hidden; /* (B, keep, V), (B, T, C) */
} work;

/* ---- what is asked for ----------------------------------------------------------------------- */

static int read_outputs(work *w)
{
    static const char *const names[] = {"logits",   "hidden",     "streams",
                                        "branches", "attentions", "state"};
    bool *const              wanted[] = {
                     &w->logits, &w->hidden, &w->stack[STREAMS].wanted, &w->stack[BRANCHES].wanted,
                     &w->maps,   &w->state};
    char quoted[80], word[32];
    for (const char *at = w->a->outputs; *at;) {
        const size_t n = strcspn(at, ",");
        size_t       i = 0;
        while (i < COUNT(names) && (strlen(names[i]) != n || strncmp(names[i], at, n) != 0)) i++;
        if (i == COUNT(names)) {
            snprintf(word, sizeof word, "%.*s", (int)(n < 31 ? n : 31), at);
            return cli_misused("forward",
                               "--outputs: expected logits, hidden, streams, branches, "
                               "attentions, state, found %s",
                               cli_quote(word, quoted, sizeof quoted));
        }
        *wanted[i] = true;
        at += n + (at[n] == ',');
    }
    return CLI_OK;
}

static int check(work *w)
{
    const struct args *a = w->a;
    const int          status = cli_source_check("forward", &a->from);
    if (status != CLI_OK) return status;
    if (!a->tokens == !a->inputs)
        return cli_misused("forward", "expected one of --tokens and --inputs");
    if (a->positions && a->keep)
        return cli_misused("forward", "expected only one of --keep and --positions");
    return read_outputs(w);
}

/* ---- reading --------------------------------------------------------------------------------- */

static dra_status open_context(work *w, dra_error *err)
{
    dra_context  *c = &w->context;
    const int64_t B = w->in.B;
    if (w->a->state_in) {
        dra_status st = dra_context_load(w->m.device, w->m.model, w->m.weights, w->a->state_in, c,
                                         err);
        if (st == DRA_OK && dra_states_batch(c->states) != B)
            st = cli_error(err, DRA_ERR_SHAPE, "%.200s: %lld sequences, expected %lld",
                           w->a->state_in, (long long)dra_states_batch(c->states), (long long)B);
        return st;
    }
    c->logits = calloc((size_t)(B * w->V), sizeof *c->logits);
    c->seen = calloc((size_t)(B * w->V), sizeof *c->seen);
    if (!c->logits || !c->seen) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    return dra_states_create(w->m.device, dra_model_state(w->m.model), B, &c->states, err);
}

static dra_status check_positions(const work *w, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t b = 0; b < w->in.B && st == DRA_OK; b++)
        st = cli_positions_check(w->m.model, dra_states_tokens(w->context.states, b), w->in.T, err);
    return st;
}

/* Numbers of tokens, those below 0 from the end. */
static dra_status read_positions(work *w, dra_error *err)
{
    const int64_t T = w->in.T;
    if (!w->a->positions) return DRA_OK;
    dra_status st = cli_ids_read("--positions", w->a->positions, &w->positions, err);
    for (size_t i = 0; i < w->positions.n && st == DRA_OK; i++) {
        const int64_t at = w->positions.data[i];
        if (at < -T || at >= T)
            st = cli_error(err, DRA_ERR_VALUE, "--positions: %lld, expected %lld to %lld",
                           (long long)at, (long long)-T, (long long)T - 1);
        if (at < 0) w->positions.data[i] += (int32_t)T;
    }
    if (st == DRA_OK && !w->positions.n)
        st = cli_error(err, DRA_ERR_VALUE, "--positions: expected a list, found none");
    w->keep = (int64_t)w->positions.n;
    return st;
}

/* What the model shall put out. A row that ends with pads continues from the logits of an earlier
 * token, so all are computed; with a list of positions one more is, that of the last real token. */
static void choose_view(work *w)
{
    const struct args *a = w->a;
    w->view = (dra_view){.model = w->m.model,
                         .logits = w->logits || a->state_out,
                         .keep = w->in.mark ? 0 : w->keep,
                         .picks = a->positions ? w->keep + 1 : 0,
                         .hidden = w->hidden,
                         .streams = w->stack[STREAMS].wanted,
                         .branches = w->stack[BRANCHES].wanted,
                         .maps = w->maps};
    if (a->positions && !a->state_out) w->view.picks = w->keep;
    if (!w->view.logits && !w->view.hidden) w->view.hidden = true; /* a graph has an output */
}

static dra_status make_room(work *w, dra_error *err)
{
    const size_t each = (size_t)(w->in.B * w->in.T * w->C);
    bool         room = true;
    w->out_logits = calloc((size_t)(w->in.B * w->keep * w->V) + 1, sizeof *w->out_logits);
    w->out_hidden = calloc(each + 1, sizeof *w->out_hidden);
    w->picks = calloc((size_t)(w->in.B * w->view.picks) + 1, sizeof *w->picks);
    for (int i = 0; i < STACKS; i++) {
        stack *s = &w->stack[i];
        s->n = dra_model_layers(w->m.model) + (i == STREAMS);
        s->each = i == STREAMS ? "stream" : "branch";
        s->all = i == STREAMS ? "streams" : "branches";
        s->data = calloc(s->wanted ? (size_t)s->n * each + 1 : 1, sizeof *s->data);
        room &= s->data != NULL;
    }
    room &= w->out_logits && w->out_hidden && w->picks;
    return room ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

static dra_status open_all(work *w, dra_error *err)
{
    const struct args *a = w->a;
    cli_source         source = a->from;
    source.maps = w->maps;
    dra_status st = cli_model_open(&source, &w->m, err);
    if (st != DRA_OK) return st;
    w->V = dra_model_config_of(w->m.model)->vocab;
    w->C = dra_model_config_of(w->m.model)->dim;
    st = cli_inputs_read(a->tokens, a->inputs, w->V, &w->in, err);
    if (st == DRA_OK) st = cli_chunks_read(a->chunks, w->in.T, &w->chunks, &w->chunk, err);
    if (st == DRA_OK && w->maps && w->chunks > 1)
        st = cli_error(err, DRA_ERR_VALUE, "attentions need a single chunk, found %d", w->chunks);
    if (st == DRA_OK) st = open_context(w, err);
    if (st == DRA_OK) st = check_positions(w, err);
    w->keep = !w->logits ? 1 : a->keep > 0 && a->keep < w->in.T ? a->keep : w->in.T;
    if (st == DRA_OK) st = read_positions(w, err);
    if (st != DRA_OK) return st;
    choose_view(w);
    const dra_module module = dra_view_module(&w->view);
    st = dra_reader_create(w->m.device, &module, &w->reader, err);
    if (st == DRA_OK) cli_guard_set(&a->from, w->reader);
    if (st == DRA_OK) st = dra_weights_bind(w->m.weights, w->reader, err);
    return st == DRA_OK ? make_room(w, err) : st;
}

/* Which tokens of the chunk from..from+n-1 are picked: those of the list that are no pads, then the
 * last one that is none. */
static void choose_picks(work *w, int64_t from, int64_t n)
{
    const int64_t P = w->view.picks, T = w->in.T;
    for (int64_t b = 0; b < w->in.B; b++) {
        const int32_t *mark = w->in.mark ? w->in.mark + b * T : NULL;
        int32_t       *pick = w->picks + b * P;
        for (int64_t i = 0; i < P; i++) {
            int64_t at = i < w->keep ? w->positions.data[i] : from + n - 1;
            while (i == w->keep && mark && at >= from && mark[at]) at--;
            const bool here = at >= from && at < from + n && !(mark && mark[at]);
            pick[i] = here ? (int32_t)(at - from) : -1;
        }
    }
}

static void keep_picked(work *w, int64_t b, const dra_real *x)
{
    const size_t row = (size_t)w->V * sizeof *x;
    for (int64_t i = 0; i < w->view.picks; i++, x += w->V) {
        if (w->picks[b * w->view.picks + i] < 0) continue;
        dra_real *to = i < w->keep ? w->out_logits + (b * w->keep + i) * w->V
                                   : w->context.logits + b * w->V;
        memcpy(to, x, row);
    }
}

/* Puts logits of row b and tokens from..from+n-1, of which the last `made` were made, in place. */
static void keep_logits(work *w, int64_t b, int64_t from, int64_t n, int64_t made,
                        const dra_real *x)
{
    const int64_t T = w->in.T, first = T - w->keep;
    const size_t  row = (size_t)w->V * sizeof *x;
    for (int64_t t = from + n - made; t < from + n; t++, x += w->V) {
        const int64_t i = b * T + t;
        if (w->in.mark && w->in.mark[i]) continue;
        if (t >= first) memcpy(w->out_logits + (b * w->keep + t - first) * w->V, x, row);
        memcpy(w->context.logits + b * w->V, x, row);
    }
}

static void keep_stack(work *w, const stack *s, int64_t from, int64_t n)
{
    const int64_t B = w->in.B, T = w->in.T;
    char          name[32];
    for (int64_t l = 0; l < s->n && s->wanted; l++) {
        snprintf(name, sizeof name, "%s.%lld", s->each, (long long)l);
        const dra_real *x = dra_reader_result(w->reader, name);
        for (int64_t b = 0; b < B && x; b++)
            memcpy(s->data + ((l * B + b) * T + from) * w->C, x + b * n * w->C,
                   (size_t)(n * w->C) * sizeof *x);
    }
}

static void keep_results(work *w, int64_t from, int64_t n)
{
    const int64_t   B = w->in.B, T = w->in.T, P = w->view.picks;
    const int64_t   made = w->view.keep > 0 && w->view.keep < n ? w->view.keep : n;
    const dra_real *logits = dra_reader_result(w->reader, "logits");
    const dra_real *hidden = dra_reader_result(w->reader, "hidden");
    for (int64_t b = 0; b < B; b++) {
        if (logits && P) keep_picked(w, b, logits + b * P * w->V);
        if (logits && !P) keep_logits(w, b, from, n, made, logits + b * made * w->V);
        if (hidden)
            memcpy(w->out_hidden + (b * T + from) * w->C, hidden + b * n * w->C,
                   (size_t)(n * w->C) * sizeof *hidden);
        for (int64_t t = from; t < from + n; t++)
            if (!w->in.mark || !w->in.mark[b * T + t])
                w->context.seen[b * w->V + w->in.ids[b * T + t]] = true;
    }
    for (int i = 0; i < STACKS; i++) keep_stack(w, &w->stack[i], from, n);
}

/* Columns from..from+n-1 of (B, T), dense. */
static void slice(const work *w, const int32_t *x, int64_t from, int64_t n, int32_t *to)
{
    for (int64_t b = 0; b < w->in.B; b++)
        memcpy(to + b * n, x + b * w->in.T + from, (size_t)n * sizeof *to);
}

static dra_status read_all(work *w, dra_error *err)
{
    const size_t size = (size_t)(w->in.B * w->in.T);
    int32_t     *ids = calloc(size, sizeof *ids), *mark = calloc(size, sizeof *mark);
    dra_status   st = ids && mark ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    int64_t      from = 0;
    for (int i = 0; i < w->chunks && st == DRA_OK; i++) {
        const int64_t   n = w->chunk[i];
        const size_t    picks = (size_t)(w->in.B * w->view.picks) * sizeof *w->picks;
        const dra_named in[] = {{"ids", ids, (size_t)(w->in.B * n) * sizeof *ids},
                                {"picks", w->picks, picks}};
        slice(w, w->in.ids, from, n, ids);
        if (w->in.mark) slice(w, w->in.mark, from, n, mark);
        if (picks) choose_picks(w, from, n);
        st = dra_reader_read(w->reader, w->context.states, n, w->in.mark ? mark : NULL,
                             picks ? 2 : 1, in, err);
        if (st == DRA_OK) keep_results(w, from, n);
        from += n;
    }
    free(ids);
    free(mark);
    return st;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A state of all rows: (B, ...), items (B, n, ...), n the most that any row has. */
static dra_status copy_state(const work *w, int i, dra_tensor_item *item, dra_error *err)
{
    const dra_states *s = w->context.states;
    const dra_spec   *p = dra_specs_at(dra_model_state(w->m.model), i);
    const size_t      one = (size_t)dra_shape_count(&p->shape);
    size_t            most = p->items ? 0 : one;
    dra_shape         shape = {1, {w->in.B}};
    char             *name = malloc(strlen(p->name) + 8);
    for (int64_t b = 0; b < w->in.B; b++)
        if (dra_states_size(s, i, b) > most) most = dra_states_size(s, i, b);
    if (p->items) shape.dim[shape.rank++] = one ? (int64_t)(most / one) : 0;
    for (int32_t k = 0; k < p->shape.rank && shape.rank < DRA_MAX_RANK; k++)
        shape.dim[shape.rank++] = p->shape.dim[k];
    dra_real *data = calloc((size_t)w->in.B * most + 1, sizeof *data);
    if (name) snprintf(name, strlen(p->name) + 8, "state.%s", p->name);
    *item = (dra_tensor_item){name, DRA_REAL, shape, data};
    if (!name || !data) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    dra_status st = DRA_OK;
    for (int64_t b = 0; b < w->in.B && st == DRA_OK; b++)
        st = dra_states_read(s, i, b, data + (size_t)b * most, dra_states_size(s, i, b), err);
    return st;
}

static dra_tensor_item result(const work *w, const char *name, int64_t n, int64_t width,
                              const dra_real *data)
{
    const dra_shape shape = w->in.batched ? DRA_SHAPE(w->in.B, n, width) : DRA_SHAPE(n, width);
    return (dra_tensor_item){name, DRA_REAL, shape, data};
}

typedef struct map_list {
    char (*name)[48];
    dra_tensor_item *item;
    size_t           n;
} map_list;

/* What the layers have shown of the one chunk; names of a blend's memories have a part more. */
static dra_status list_maps(const work *w, map_list *m, dra_error *err)
{
    static const char *const part[] = {"", "a.", "b."};
    const int64_t            L = w->maps ? dra_model_layers(w->m.model) : 0;
    const size_t             most = (size_t)(L * 3 * DRA_SHOW_COUNT);
    m->name = calloc(most + 1, sizeof *m->name);
    m->item = calloc(most + 1, sizeof *m->item);
    if (!m->name || !m->item) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < most; i++) {
        dra_shape s;
        char     *name = m->name[m->n];
        snprintf(name, sizeof *m->name, "layers.%zu.%s%s", i / 3 / DRA_SHOW_COUNT, part[i % 3],
                 dra_show_name((dra_show_kind)(i / 3 % DRA_SHOW_COUNT)));
        const dra_real *data = dra_reader_result(w->reader, name);
        if (!data || !dra_reader_result_shape(w->reader, name, &s)) continue;
        if (!w->in.batched) memmove(s.dim, s.dim + 1, (size_t)--s.rank * sizeof *s.dim);
        m->item[m->n++] = (dra_tensor_item){name, DRA_REAL, s, data};
    }
    return DRA_OK;
}

static dra_status write_all(const work *w, dra_error *err)
{
    map_list         maps = {0};
    const int        states = w->state ? dra_specs_count(dra_model_state(w->m.model)) : 0;
    dra_status       st = list_maps(w, &maps, err);
    dra_tensor_item *items = calloc((size_t)states + maps.n + 2 + STACKS, sizeof *items);
    size_t           n = (size_t)states;
    if (!items) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int i = 0; i < states && st == DRA_OK; i++) st = copy_state(w, i, &items[i], err);
    if (st == DRA_OK && w->logits) items[n++] = result(w, "logits", w->keep, w->V, w->out_logits);
    if (st == DRA_OK && w->hidden) items[n++] = result(w, "hidden", w->in.T, w->C, w->out_hidden);
    for (int i = 0; i < STACKS && st == DRA_OK; i++) {
        const stack    *s = &w->stack[i];
        const dra_shape shape = w->in.batched ? DRA_SHAPE(s->n, w->in.B, w->in.T, w->C)
                                              : DRA_SHAPE(s->n, w->in.T, w->C);
        if (s->wanted) items[n++] = (dra_tensor_item){s->all, DRA_REAL, shape, s->data};
    }
    for (size_t i = 0; i < maps.n && st == DRA_OK; i++) items[n++] = maps.item[i];
    if (st == DRA_OK && !n)
        st = cli_error(err, DRA_ERR_VALUE, "nothing to write: this model has no attentions");
    if (st == DRA_OK) st = dra_tensors_write(w->a->out, items, n, NULL, 0, err);
    free(maps.name);
    free(maps.item);
    for (int i = 0; items && i < states; i++) {
        free((void *)items[i].name);
        free((void *)items[i].data);
    }
    free(items);
    if (st != DRA_OK || !w->a->state_out) return st;
    return dra_context_save(w->m.model, w->m.weights, &w->context, w->a->state_out, err);
}

static int run(const void *args)
{
    work      w = {.a = args};
    dra_error err = {0};
    const int status = check(&w);
    if (status != CLI_OK) return status;
    dra_status st = open_all(&w, &err);
    if (st == DRA_OK) st = read_all(&w, &err);
    if (st == DRA_OK) st = write_all(&w, &err);
    if (w.reader) cli_guard_report("forward", &w.a->from, dra_reader_clamped(w.reader));
    free(w.out_logits);
    free(w.out_hidden);
    for (int i = 0; i < STACKS; i++) free(w.stack[i].data);
    free(w.picks);
    dra_ids_free(&w.positions);
    free(w.chunk);
    dra_context_free(&w.context);
    dra_reader_destroy(w.reader);
    cli_inputs_free(&w.in);
    cli_model_close(&w.m);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note examples[] = {
    {"dra forward --model model --tokens 1,2,3,4,5 --out whole.safetensors",
     "logits of five tokens"},
    {"dra forward --model model --tokens 1,2,3,4,5 --chunks 3,1 --out parts.safetensors",
     "the same, read in chunks"},
    {"dra forward --model model --tokens 1,2 --outputs hidden,state --out two.safetensors",
     "hidden states and the state"},
    {0},
};

const cli_verb cmd_forward = {
    .name = "forward",
    .summary = "run a model on tokens and write its outputs",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run,
    .group = "Use",
    .about =
        "Runs a model on tokens and writes its outputs to a safetensors file: logits (T, V) "
        "and, with --outputs, also hidden (T, C), streams (L + 1, T, C), branches (L, T, C), "
        "the layers' attentions and the state. With ids (B, T) there is an axis B in front; "
        "in streams and branches it follows that of the layers.\n"
        "Reading the tokens whole, in --chunks, or in several calls through state files "
        "gives the same numbers: bit for bit, or up to rounding with a moment or delta memory.",
    .examples = examples,
    .also = "grad generate",
};
