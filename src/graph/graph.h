/* The inside of a graph. */
#ifndef DRA_SRC_GRAPH_H
#define DRA_SRC_GRAPH_H

#include "base/arena.h"
#include "base/names.h"
#include "graph/program.h"

typedef struct dra_value_info {
    dra_type    type;
    dra_role    role;
    const char *name;   /* of an input, parameter or state */
    uint32_t    node;   /* the node that computes it, if role is NODE */
    uint32_t    output; /* as which of its outputs         */
    bool        given;  /* its memory, to an output        */

    const struct dra_factors *factors; /* that it was made of; or NULL */
} dra_value_info;

typedef struct dra_output_info {
    const char *name;
    dra_value   value;
    dra_value   donor; /* the state whose memory it takes over, or none */
} dra_output_info;

/* Growing arrays of pointers; their targets stay in place in the arena. */
typedef struct dra_list {
    void **at;
    size_t n, room;
} dra_list;

struct dra_graph {
    dra_arena     arena;
    dra_error     error;
    dra_list      values;  /* dra_value_info *; slot 0 is the null value */
    dra_list      nodes;   /* dra_node *, in an order in which they can run */
    dra_list      outputs; /* dra_output_info * */
    dra_names     inputs;  /* named values by name, and numbers of outputs */
    dra_names     output_names;
    dra_list      bodies;    /* dra_graph *: sub-graphs owned by this one */
    dra_graph    *parent;    /* NULL for the outermost */
    uint32_t      tag;       /* high bits of every handle: tells the graphs of one family apart */
    uint32_t      tags;      /* of the outermost graph: how many were handed out */
    dra_precision precision; /* of products built from here on */
    char          scope[256];
    char          type_text[4][64];
    unsigned      next_text;
};

enum {
    DRA_TAG_SHIFT = 22,
    DRA_INDEX_MASK = (1u << DRA_TAG_SHIFT) - 1,
    DRA_MOST_TAGS = (1u << (32 - DRA_TAG_SHIFT)) - 1 /* then they repeat */
};

bool dra_list_push(dra_list *l, void *item);

static inline uint32_t dra_index(dra_value v) { return v.id & DRA_INDEX_MASK; }
static inline size_t   dra_value_count(const dra_graph *g) { return g->values.n; }

static inline dra_value_info *dra_info(const dra_graph *g, dra_value v)
{
    return g->values.at[dra_index(v)];
}

static inline dra_node *dra_node_at(const dra_graph *g, size_t i) { return g->nodes.at[i]; }

static inline dra_output_info *dra_output_at(const dra_graph *g, size_t i)
{
    return g->outputs.at[i];
}

/* Marks, by value, all that the marked values depend on. */
void dra_mark_used(const dra_graph *g, bool *used);

/* Whether `v` is a live handle of this very graph. */
bool dra_owns(const dra_graph *g, dra_value v);

#endif
