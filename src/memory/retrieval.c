/* The table of retrievals, and the two that only hand on what the memory made. */
#include <string.h>

#include "memory/memory.h"
#include "memory/part.h"

static dra_value read_value(dra_graph *g, const dra_read_call *c, dra_value *state_out)
{
    return c->value;
}

static const dra_retrieval none = {"none", NULL, read_value}; /* the memory is the output */
static const dra_retrieval formula = {                        /* it has read itself */
                                      "formula", NULL, read_value,
                                      .parts = (const dra_part *const[]){&dra_qk_norm_part, NULL}};

extern const dra_retrieval dra_retrieval_time, dra_retrieval_window, dra_retrieval_joint,
    dra_retrieval_slots_own, dra_retrieval_slots_all, dra_retrieval_pooled;

static const dra_retrieval *const table[DRA_RETRIEVALS] = {&dra_retrieval_time,
                                                           &dra_retrieval_window,
                                                           &none,
                                                           &formula,
                                                           &dra_retrieval_joint,
                                                           &dra_retrieval_slots_own,
                                                           &dra_retrieval_slots_all,
                                                           &dra_retrieval_pooled};

const dra_retrieval *dra_retrieval_at(size_t i) { return table[i]; }

const dra_retrieval *dra_retrieval_find(const char *name)
{
    for (size_t i = 0; i < DRA_RETRIEVALS; i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}
