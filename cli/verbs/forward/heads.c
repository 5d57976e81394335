/* dra forward: outputs of heads other than the head of tokens, and losses. */
#include "forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which there are ------------------------------------------------------------------------- */

static void describe_heads(forward_work *w)
{
    const dra_head_config *h = &dra_model_config_of(w->m.model)->head;
    const int64_t          width = dra_model_head_width(w->m.model);
    const bool             classes = h->kind == DRA_HEAD_CLASSES;
    forward_head          *out = &w->head[FORWARD_OUT], *numbers = &w->head[FORWARD_NUMBERS];
    w->tokens = h->kind == DRA_HEAD_TOKENS;
    out->name = "out";
    out->there = h->kind == DRA_HEAD_VECTORS || (classes && !h->dim);
    out->pooled = classes;
    out->width = width;
    numbers->name = "numbers";
    numbers->there = h->numbers;
    w->head[FORWARD_CLASSES] = (forward_head){.name = "logits",
                                              .wanted = w->logits && !w->tokens,
                                              .there = classes && h->dim,
                                              .pooled = true,
                                              .width = width};
}

static bool has_answers(const forward_work *w)
{
    return w->in.targets || w->in.labels || w->in.goals;
}

/* Without --outputs: the output of the head, and the loss if there are targets. */
static void choose_outputs(forward_work *w)
{
    w->logits = w->tokens || w->head[FORWARD_CLASSES].there;
    w->head[FORWARD_CLASSES].wanted = w->head[FORWARD_CLASSES].there;
    w->head[FORWARD_OUT].wanted = w->head[FORWARD_OUT].there;
    w->head[FORWARD_NUMBERS].wanted = w->head[FORWARD_NUMBERS].there;
    w->hidden = !w->logits && !w->head[FORWARD_OUT].there;
    w->loss = w->in.n_named && has_answers(w);
}

static dra_status check_loss(const forward_work *w, dra_error *err)
{
    const dra_head_config *h = &dra_model_config_of(w->m.model)->head;
    const bool             each = h->kind == DRA_HEAD_TOKENS || h->kind == DRA_HEAD_VECTORS;
    const char *name = w->head[FORWARD_CLASSES].there ? "labels" : each ? "targets" : NULL;
    if (!name)
        return cli_error(err, DRA_ERR_VALUE,
                         "--outputs loss: the model has no output that a loss could compare");
    if (!has_answers(w) || (w->tokens && !w->in.targets) || (h->numbers && !w->in.goals))
        return cli_error(err, DRA_ERR_VALUE, "--outputs loss: expected a tensor %s%s in --inputs",
                         name, h->numbers ? " and target_nums" : "");
    if (w->a->keep || w->a->positions)
        return cli_error(err, DRA_ERR_VALUE, "--outputs loss: needs all tokens, expected no %s",
                         w->a->keep ? "--keep" : "--positions");
    return DRA_OK;
}

dra_status forward_heads_open(forward_work *w, dra_error *err)
{
    describe_heads(w);
    if (!w->a->outputs) choose_outputs(w);
    for (int i = 0; i < FORWARD_HEADS; i++) {
        const forward_head *h = &w->head[i];
        if (h->wanted && !h->there)
            return cli_error(err, DRA_ERR_VALUE, "--outputs %s: the model has no output %s",
                             h->name, h->name);
        if (h->wanted && h->pooled && w->chunks > 1)
            return cli_error(err, DRA_ERR_VALUE, "%s: a mean over all tokens needs a single chunk",
                             h->name);
    }
    return w->loss ? check_loss(w, err) : DRA_OK;
}

bool forward_heads_made(const forward_work *w)
{
    bool any = w->loss && !w->tokens;
    for (int i = 0; i < FORWARD_HEADS; i++) any |= w->head[i].wanted;
    return any || (w->loss && w->head[FORWARD_NUMBERS].there);
}

dra_status forward_heads_room(forward_work *w, dra_error *err)
{
    for (int i = 0; i < FORWARD_HEADS; i++) {
        forward_head *h = &w->head[i];
        h->each = (h->pooled ? 1 : w->in.T) * (h->width ? h->width : 1);
        if (!h->there) continue;
        h->data = calloc((size_t)(w->in.B * h->each) + 1, sizeof *h->data);
        if (!h->data) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    }
    return DRA_OK;
}

/* ---- keeping and listing --------------------------------------------------------------------- */

void forward_heads_keep(forward_work *w, int64_t from, int64_t n)
{
    for (int i = 0; i < FORWARD_HEADS; i++) {
        const forward_head *h = &w->head[i];
        const dra_real     *x = h->there ? forward_result(w, h->name) : NULL;
        const int64_t       width = h->width ? h->width : 1;
        const int64_t       one = (h->pooled ? 1 : n) * width;
        for (int64_t b = 0; x && b < w->in.B; b++)
            memcpy(h->data + b * h->each + (h->pooled ? 0 : from * width), x + b * one,
                   (size_t)one * sizeof *x);
    }
}

size_t forward_heads_list(const forward_work *w, dra_tensor_item *items)
{
    const int64_t B = w->in.B, T = w->in.T;
    size_t        n = 0;
    for (int i = 0; i < FORWARD_HEADS; i++) {
        const forward_head *h = &w->head[i];
        const dra_shape     s = h->pooled  ? DRA_SHAPE(B, h->width)
                                : h->width ? DRA_SHAPE(B, T, h->width)
                                           : DRA_SHAPE(B, T);
        if (h->wanted) items[n++] = (dra_tensor_item){h->name, DRA_REAL, s, h->data};
    }
    if (w->loss) items[n++] = (dra_tensor_item){"loss", DRA_REAL, (dra_shape){0}, &w->out_loss};
    return n;
}

void forward_heads_close(forward_work *w)
{
    for (int i = 0; i < FORWARD_HEADS; i++) free(w->head[i].data);
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* -ln of the probability that logits (V) give to a class. */
static double class_loss(const dra_real *x, int64_t V, int32_t class)
{
    double most = (double)x[0], sum = 0;
    for (int64_t i = 1; i < V; i++) most = fmax(most, (double)x[i]);
    for (int64_t i = 0; i < V; i++) sum += exp((double)x[i] - most);
    return log(sum) + most - (double)x[class];
}

/* The mean over classes that count, and for xVal the squared error of their numbers. */
static double loss_of_classes(const forward_work *w, const int32_t *classes, int64_t n, int64_t V,
                              const dra_real *logits)
{
    const dra_real *numbers = w->head[FORWARD_NUMBERS].data;
    const int64_t   token = dra_model_config_of(w->m.model)->source.number_token;
    double          sum = 0;
    int64_t         count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (classes[i] < 0) continue;
        sum += class_loss(logits + i * V, V, classes[i]);
        if (numbers && classes[i] == token) sum += pow((double)(numbers[i] - w->in.goals[i]), 2);
        count++;
    }
    return count ? sum / (double)count : 0;
}

/* The mean over tokens that are not pads and over all their channels. */
static double loss_of_vectors(const forward_work *w)
{
    const forward_head *h = &w->head[FORWARD_OUT];
    double              sum = 0;
    int64_t             count = 0;
    for (int64_t i = 0; i < w->in.B * w->in.T; i++) {
        if (cli_is_pad(&w->in, i)) continue;
        for (int64_t k = i * h->width; k < (i + 1) * h->width; k++)
            sum += pow((double)(h->data[k] - w->in.goals[k]), 2);
        count += h->width;
    }
    return count ? sum / (double)count : 0;
}

void forward_loss(forward_work *w)
{
    const int64_t B = w->in.B, T = w->in.T;
    const double  loss = w->in.labels
                             ? loss_of_classes(w, w->in.labels, B, w->head[FORWARD_CLASSES].width,
                                               w->head[FORWARD_CLASSES].data)
                         : w->in.targets
                             ? loss_of_classes(w, w->in.targets, B * T, w->V, w->out_logits)
                             : loss_of_vectors(w);
    w->out_loss = (dra_real)loss;
}
