/* Pointwise functions and programs of them, as plain data: what a kernel of any device needs to
 * know. A function makes element i of its result from element i of its operands. The ops of
 * unary.c, binary.c, compare.c and select.c are one function each; the pass in fuse.c joins
 * neighbours to the program of one `pointwise` instruction. */
#ifndef DRA_SRC_POINTWISE_H
#define DRA_SRC_POINTWISE_H

#include "base/shape.h"

typedef enum dra_function {
/* of one operand x */
#define DRA_UNARY(vectors, NAME, name, formula) DRA_FUNCTION_##NAME,
#include "device/functions.def"
#undef DRA_UNARY
    DRA_FUNCTION_AFFINE, /* a x + b */
    DRA_FUNCTION_CLAMP,  /* x within a..b */
    DRA_FUNCTION_IS_FINITE,
    DRA_FUNCTION_NOT,
    /* of two */
    DRA_FUNCTION_ADD,
    DRA_FUNCTION_SUB,
    DRA_FUNCTION_MUL,
    DRA_FUNCTION_DIV,
    DRA_FUNCTION_MOD,
    DRA_FUNCTION_POW,
    DRA_FUNCTION_MINIMUM,
    DRA_FUNCTION_MAXIMUM,
    DRA_FUNCTION_EQUAL,
    DRA_FUNCTION_NOT_EQUAL,
    DRA_FUNCTION_LESS,
    DRA_FUNCTION_LESS_EQUAL,
    DRA_FUNCTION_GREATER,
    DRA_FUNCTION_GREATER_EQUAL,
    DRA_FUNCTION_AND,
    DRA_FUNCTION_OR,
    /* of three */
    DRA_FUNCTION_SELECT, /* x ? y : z */
    DRA_FUNCTION_COUNT
} dra_function;

/* The attribute of an op that is one function: those flagged DRA_OP_POINTWISE. Its inputs have the
 * shape of its output, seen with any strides. */
typedef struct dra_function_attr {
    dra_function function;
    double       a, b; /* the numbers of affine and clamp */
} dra_function_attr;

/* Limits of a program. Every value has a strip of its own, and all strips together should stay in
 * the first cache; what is larger becomes two instructions, which costs little. */
enum {
    DRA_POINTWISE_INPUTS = 16,
    DRA_POINTWISE_OUTPUTS = 8,
    DRA_POINTWISE_STEPS = 24,
    DRA_POINTWISE_OPERANDS = 3
};

typedef struct dra_pointwise_step {
    dra_function function;
    dra_dtype    dtype;                     /* of its operands; of select, those after the first */
    int16_t      x[DRA_POINTWISE_OPERANDS]; /* values: the inputs, then the results of steps */
    int16_t      output;                    /* of the instruction, or -1: read by later steps
                                             * only */
    double       a, b;
} dra_pointwise_step;

typedef struct dra_pointwise_attr { /* only existing steps are stored */
    int32_t            inputs, steps;
    dra_pointwise_step step[DRA_POINTWISE_STEPS];
} dra_pointwise_attr;

static inline size_t dra_pointwise_bytes(const dra_pointwise_attr *p)
{
    return offsetof(dra_pointwise_attr, step) + (size_t)p->steps * sizeof *p->step;
}

/* An op followed by a program over the elements of its one output, while a tile of it is in the
 * cache: see `then` of dra_op. Its attribute is that of the op, then this. Its inputs are those of
 * the op, then those of the program except input 0, which is the result of the op. */
typedef struct dra_then_attr {
    int32_t            inputs; /* of the op */
    int32_t            home;   /* the output in whose memory the op writes before the program */
    dra_shape          shape;  /* of what the op makes */
    dra_pointwise_attr program;
} dra_then_attr;

/* Several nodes of an op that share their first input as one: see `several` of dra_op. Its
 * attribute is that of the op, the same for all, then this. Its inputs are the first one, then the
 * others of each node; its outputs one of each. */
enum { DRA_SEVERAL = 8, DRA_SEVERAL_INPUTS = 4 }; /* nodes; inputs of each: as many as ops have */

typedef struct dra_several_attr {
    int32_t n;
    int32_t inputs[DRA_SEVERAL]; /* of each node, with the first one */
} dra_several_attr;

/* Where the second part of such an attribute begins. */
static inline size_t dra_attr_end(size_t bytes) { return (bytes + 7) / 8 * 8; }

/* How many operands a function has. */
DRA_BOTH static inline int dra_function_operands(dra_function f)
{
    return f == DRA_FUNCTION_SELECT ? 3 : f >= DRA_FUNCTION_ADD ? 2 : 1;
}

/* For `takes` of a kernel: an output may take over the memory of an input that no later step reads,
 * since a step reads an element before it writes it. */
static inline uint32_t dra_pointwise_takes(const void *attr, int out)
{
    const dra_pointwise_attr *a = (const dra_pointwise_attr *)attr;
    uint32_t                  bits = 0;
    int                       at = 0;
    while (at < a->steps && a->step[at].output != out) at++;
    for (int k = 0; k <= at && k < a->steps; k++)
        for (int i = 0; i < dra_function_operands(a->step[k].function); i++)
            if (a->step[k].x[i] < a->inputs) bits |= 1u << a->step[k].x[i];
    for (int k = at + 1; k < a->steps; k++)
        for (int i = 0; i < dra_function_operands(a->step[k].function); i++)
            if (a->step[k].x[i] < a->inputs) bits &= ~(1u << a->step[k].x[i]);
    return bits;
}

#endif
