/* LoRA: which matrices get factors of low rank. The graph of a module adds their product where the
 * matrix is asked for (sequence/module.c). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/model.h"
#include "sequence/module.h"

static const char START[] = "W_"; /* of the last part of a matrix's name */

/* The last part of the name of a layer's matrix, without W_; NULL: it is none. */
static const char *target_of(const dra_spec *p)
{
    const char *dot = strrchr(p->name, '.');
    const bool  matrix = p->product && p->shape.rank == 2 && !p->added && !p->experts;
    return matrix && dot && strncmp(dot + 1, START, strlen(START)) == 0 ? dot + 1 + strlen(START)
                                                                        : NULL;
}

/* Whether a name is in a list with commas. */
static bool is_listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; *at;) {
        const size_t m = strcspn(at, ",");
        if (m == n && strncmp(at, name, n) == 0) return true;
        at += m + (at[m] == ',');
    }
    return false;
}

/* All targets of the model, each once, for an error. */
static void list_targets(const dra_specs *params, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < dra_specs_count(params) && used < size; i++) {
        const char *t = target_of(dra_specs_at(params, i));
        if (t && !is_listed(text, t))
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "," : "", t);
    }
}

/* Every name of the list is one of a matrix. */
static dra_status check_targets(const dra_model *m, const char *list, dra_error *err)
{
    char known[200];
    list_targets(m->params, known, sizeof known);
    for (const char *at = list; *at;) {
        char         name[sizeof m->config.lora->targets];
        const size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (!is_listed(known, name))
            return dra_fail(err, DRA_ERR_VALUE,
                            "lora: targets has %s, expected some of the model's matrices: %s, or "
                            "all",
                            n ? name : "an empty name", known[0] ? known : "there are none");
        at += n + (at[n] == ',');
    }
    return DRA_OK;
}

dra_status dra_lora_declare(dra_model *m, dra_error *err)
{
    dra_lora_config *c = dra_arena_copy(&m->arena, m->config.lora, sizeof *c);
    const int        n = dra_specs_count(m->params);
    if (!c) return dra_fail(err, DRA_ERR_MEMORY, "lora: out of memory");
    m->config.lora = c;
    if (!c->targets[0]) snprintf(c->targets, sizeof c->targets, "q,k,v,o");
    if (c->alpha == 0) c->alpha = (double)c->rank;
    const bool all = strcmp(c->targets, "all") == 0;
    if (c->rank < 1 || !(c->alpha > 0) || isinf(c->alpha))
        return dra_fail(err, DRA_ERR_VALUE, "lora: r is %lld, alpha %g, expected 1 or more and > 0",
                        (long long)c->rank, c->alpha);
    const dra_status st = all ? DRA_OK : check_targets(m, c->targets, err);
    if (st != DRA_OK) return st;
    dra_specs_freeze(m->params);
    for (int i = 0; i < n; i++) {
        const char *t = target_of(dra_specs_at(m->params, i));
        if (t && (all || is_listed(c->targets, t)))
            dra_specs_adapt(m->params, i, c->rank, c->alpha / (double)c->rank);
    }
    if (dra_specs_count(m->params) > n) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "lora: the model has no matrix to adapt");
}
