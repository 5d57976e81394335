/* append: items are the keys and values themselves; the retrieval keeps them. */
#include "memory/memory.h"

static const char *const retrievals[] = {"time", "window", "none", NULL};

static dra_status check_append(const dra_memory_sizes *s, dra_error *err)
{
    if (!s->config->joined) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "append: there is no state that keys and values could share");
}

static void declare_append(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                           dra_specs *state)
{}

static void append_items(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    for (int i = 0; i < c->sizes->streams; i++) r->item[i] = c->x[i];
}

const dra_memory dra_memory_append = {"append",
                                      retrievals,
                                      check_append,
                                      declare_append,
                                      append_items,
                                      append_items,
                                      .chunks = DRA_CHUNK_SKIPS};
