/* Both models learn the same batches, step by step in turns. */
#include "demo.h"
#include "report/started.h"
#include "verbs/train/progress.h"
#include "options/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the models ------------------------------------------------------------------------------ */

/* All but the memory is the same: 2 layers, C = 128, the token before mixed into half of the
 * channels. Neither has positions, so neither has an end; with rotary ones the Transformer forgot
 * everything farther back than a training row. */
#define BASE                                                                                       \
    "{\"model_type\": \"dra\", \"dim\": 128, \"depth\": 2, \"heads\": 2, \"mixer\": "              \
    "{\"shift\": \"half\", "

static const struct {
    const char *name, *called, *title, *config;
} kinds[DEMO_MODELS] = {
    {"dra", "dra", "delta memory and slots: a state of constant size",
     BASE "\"memory\": \"delta\", \"decay\": \"data\", \"blend\": \"learned\", "
          "\"b\": {\"memory\": \"slots\", \"retrieval\": \"slots-own\", \"slots\": 16, "
          "\"gate\": \"routed\"}}}"},
    {"softmax", "The Transformer", "a Transformer: attends to all tokens before",
     BASE "\"memory\": \"append\", \"retrieval\": \"time\"}}"},
};

static dra_status make_model(demo *d, int i, dra_error *err)
{
    demo_model       *m = &d->model[i];
    dra_model_config *c = NULL;
    const char       *config = kinds[i].config;
    dra_status        st = dra_model_config_parse("demo", config, strlen(config), &c, err);
    m->name = kinds[i].name;
    m->called = kinds[i].called;
    m->title = kinds[i].title;
    if (st == DRA_OK) c->vocab = dra_tokenizer_size(d->tokenizer);
    if (st == DRA_OK) c->context = DEMO_CONTEXT;
    if (st == DRA_OK) st = demo_path(d, m->name, m->folder, err);
    if (st == DRA_OK) st = dra_model_create(c, &m->model, err);
    dra_model_config_destroy(c);
    m->lines = dra_stream_memory(&m->line_text, &m->line_bytes);
    return m->lines || st != DRA_OK ? st : cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

/* ---- learning -------------------------------------------------------------------------------- */

typedef struct learning {
    demo        *d;
    dra_trainer *trainer[DEMO_MODELS];
    dra_event    last[DEMO_MODELS];
    double      *losses[DEMO_MODELS]; /* of each step */
    int          turn;                /* whose step it is */
    bool         headed;              /* the table has its head */
} learning;

static bool on_event(void *user, const dra_event *e)
{
    learning *l = user;
    if (e->kind == DRA_EVENT_STEP) {
        l->last[l->turn] = *e;
        l->losses[l->turn][e->step - 1] = e->loss;
    }
    return !cli_progress_stopped();
}

static dra_status open_trainers(learning *l, dra_error *err)
{
    demo                  *d = l->d;
    const dra_train_config train = {.steps = d->steps,
                                    .batch = DEMO_BATCH,
                                    .lr = 0.002,
                                    .precision = DRA_PRECISION_BF16,
                                    .seed = (int64_t)d->seed,
                                    .log_every = 5,
                                    .save_every = -1,
                                    .keep = 1};
    dra_status             st = DRA_OK;
    for (int i = 0; i < DEMO_MODELS && st == DRA_OK; i++) {
        const dra_trainer_config c = {.folder = d->model[i].folder,
                                      .train = &train,
                                      .device = d->device,
                                      .model = d->model[i].model,
                                      .data = d->corpus,
                                      .tokenizer = d->tokenizer,
                                      .force = true};
        l->losses[i] = calloc((size_t)d->steps, sizeof *l->losses[i]);
        if (!l->losses[i]) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
        st = dra_trainer_create(&c, &l->trainer[i], err);
        if (st == DRA_OK) st = cli_started_note(c.folder, d->device, false, err);
    }
    return st;
}

static const char *speed_of(const learning *l, int i, char text[24])
{
    return cli_count_text((double)l->last[i].tokens / l->last[i].seconds, text);
}

/* A block that changes. */
static void show_block(learning *l, int64_t step)
{
    const demo    *d = l->d;
    cli_status    *s = &l->d->status;
    const cli_plot plots[] = {{"dra, loss", l->losses[0], (size_t)step, (size_t)d->steps},
                              {"softmax, loss", l->losses[1], (size_t)step, (size_t)d->steps}};
    char           speed[24];
    cli_status_row(s, "%s", "");
    cli_plots(s, DEMO_MODELS, plots, false);
    cli_status_field(s, 0, "  step %lld/%lld", (long long)step, (long long)d->steps);
    for (int i = 0; i < DEMO_MODELS; i++) {
        cli_status_field(s, 2, "%s %.3f", d->model[i].name, l->last[i].loss);
        cli_status_field(s, 3, "%s tokens/s", speed_of(l, i, speed));
    }
    cli_status_left(s, 1);
    cli_status_show(s);
}

/* Rows of a table, now and then. */
static void write_row(learning *l, int64_t step)
{
    FILE *out = demo_out(l->d);
    char  place[48], speed[DEMO_MODELS][24], left[24];
    for (int i = 0; i < DEMO_MODELS; i++) speed_of(l, i, speed[i]);
    if (!l->headed)
        fprintf(out, "  %11s  %12s %10s  %12s %10s  %8s\n", "step", "dra loss", "tokens/s",
                "softmax loss", "tokens/s", "left");
    l->headed = true;
    snprintf(place, sizeof place, "%lld/%lld", (long long)step, (long long)l->d->steps);
    fprintf(out, "  %11s  %12.3f %10s  %12.3f %10s  %8s\n", place, l->last[0].loss, speed[0],
            l->last[1].loss, speed[1],
            cli_time_text(fmax(0, cli_status_seconds_left(&l->d->status)), left));
    fflush(out);
}

static void show_learning(learning *l, int64_t step)
{
    const demo   *d = l->d;
    const int64_t tenth = d->steps < 10 ? 1 : d->steps / 10;
    const bool    last = step == d->steps;
    const bool    due = cli_status_at(&l->d->status, (double)step / (double)d->steps);
    if (d->status.terminal && (due || last))
        show_block(l, step);
    else if (!d->status.terminal && (step % tenth == 0 || last))
        write_row(l, step);
}

static dra_status take_turns(learning *l, dra_error *err)
{
    dra_status st = DRA_OK;
    bool       more[DEMO_MODELS] = {true, true};
    cli_status_restart(&l->d->status);
    for (int64_t step = 1; more[0] && st == DRA_OK; step++) {
        for (l->turn = 0; l->turn < DEMO_MODELS && st == DRA_OK; l->turn++)
            st = dra_trainer_step(l->trainer[l->turn], on_event, l, &more[l->turn], err);
        if (st == DRA_OK) show_learning(l, step);
    }
    cli_status_leave(&l->d->status);
    return st;
}

/* What is used from here on is what the folders hold. */
static dra_status load_weights(demo *d, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < DEMO_MODELS && st == DRA_OK; i++)
        st = dra_weights_load(d->model[i].model, d->model[i].folder, &d->model[i].weights, err);
    return st;
}

dra_status demo_train(demo *d, dra_error *err)
{
    const double began = cli_now();
    learning     l = {.d = d};
    char         count[24];
    dra_status   st = DRA_OK;
    demo_heading(d, "Two models that differ only in their memory learn them");
    for (int i = 0; i < DEMO_MODELS && st == DRA_OK; i++) {
        st = make_model(d, i, err);
        if (st == DRA_OK)
            fprintf(demo_out(d), "  %-8s %s parameters  %s\n", d->model[i].name,
                    cli_count_text((double)dra_model_param_count(d->model[i].model), count),
                    d->model[i].title);
    }
    fputs("\n", demo_out(d));
    if (st == DRA_OK) st = open_trainers(&l, err);
    if (st == DRA_OK) st = take_turns(&l, err);
    for (int i = 0; i < DEMO_MODELS; i++) {
        dra_trainer_destroy(l.trainer[i]);
        free(l.losses[i]);
    }
    if (st == DRA_OK) demo_took(d, began);
    return st == DRA_OK ? load_weights(d, err) : st;
}
