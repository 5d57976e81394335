/* The bench of the graph fuzzer: a repeatable stream of chances, the values built so far, and ways
 * to pick or make a value of a wanted type. Everything follows from the seed. */
#ifndef DRA_TESTS_FUZZ_BENCH_H
#define DRA_TESTS_FUZZ_BENCH_H

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "dra/dra.h"
#include "graph/op.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum {
    VALUES = 48,    /* kept for picking; later ones push out earlier ones */
    INPUTS = 24,    /* of one graph */
    LARGEST = 600,  /* elements; a larger value is not used further, to keep runs short */
    WIDEST = 60000, /* the same for graphs made to have several tiles */
    DEEPEST = 2     /* regions in regions */
};

typedef struct input { /* what the outer graph is fed with */
    char      name[16];
    dra_dtype dtype;
    dra_shape shape;
    dra_value value;
    bool      is_state, donated;
} input;

typedef struct fuzz {
    uint64_t    seed, stream;
    bool        sloppy; /* mistakes on purpose */
    bool        wide;   /* some sizes that make several tiles */
    bool        giant;  /* sizes that overflow when multiplied; only planned */
    bool        huge;   /* some value is too large to be computed */
    int         names;
    input       input[INPUTS];
    int         inputs;
    dra_value   foreign; /* of another graph of the family */
    const char *last;    /* the builder at work, for reports */
    dra_error   first;   /* the graph's error as it was first seen */
} fuzz;

typedef struct bench { /* one graph being built: the outer one or a body */
    fuzz      *f;
    dra_graph *g;
    int        depth, n;
    dra_value  v[VALUES];
} bench;

static uint64_t current_seed; /* for the callback of a sanitizer */

static void broken(const fuzz *f, const char *format, ...) DRA_PRINTF(2, 3);

static void broken(const fuzz *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("FAILED, seed %" PRIu64 ", after %s: ", f->seed, f->last ? f->last : "nothing");
    vprintf(format, args);
    printf("\nreproduce: fuzz_graph 0 %" PRIu64 "\n", f->seed);
    va_end(args);
    exit(1);
}

/* ---- chances --------------------------------------------------------------------------------- */

static uint64_t draw(fuzz *f) /* splitmix64 */
{
    uint64_t z = (f->stream += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int     below(fuzz *f, int n) { return (int)(draw(f) % (uint64_t)n); }
static bool    chance(fuzz *f, int percent) { return below(f, 100) < percent; }
static int     between(fuzz *f, int lo, int hi) { return lo + below(f, hi - lo + 1); }
static int64_t upto(fuzz *f, int64_t n) { return below(f, n > 99 ? 100 : n < 0 ? 1 : (int)n + 1); }
static bool    slip(bench *b) { return b->f->sloppy && chance(b->f, 4); }

static double number(fuzz *f)
{
    const double odd[] = {0, 1, -1, 0.5, 1e30, -1e30, 1e-30, (double)INT64_MAX, 2, 100};
    return chance(f, 15) ? odd[below(f, COUNT(odd))] : (double)between(f, -300, 300) / 100;
}

static int64_t size(fuzz *f)
{
    const int     sizes[] = {1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 9};
    const int64_t giants[] = {1 << 16,          1 << 20,          1 << 20,   1 << 24,
                              (int64_t)1 << 31, (int64_t)3 << 29, INT32_MAX, (int64_t)1 << 40,
                              (int64_t)1 << 57, INT64_MAX / 3,    INT64_MAX};
    if (f->wide && chance(f, 20)) return between(f, 60, 300);
    if (f->giant && chance(f, 25)) return giants[below(f, COUNT(giants))];
    return chance(f, 3) ? 0 : sizes[below(f, COUNT(sizes))];
}

static dra_shape shape_of_rank(fuzz *f, int rank)
{
    dra_shape s = {.rank = rank};
    for (int i = 0; i < rank; i++) s.dim[i] = rank > 4 && !f->giant ? between(f, 1, 3) : size(f);
    for (int i = 0; i < rank && !f->giant && dra_shape_count(&s) > WIDEST; i++) s.dim[i] = 2;
    return s;
}

static dra_shape any_shape(fuzz *f)
{
    const int ranks[] = {0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6};
    return shape_of_rank(f, ranks[below(f, COUNT(ranks))]);
}

/* What is never right: negative, far too large, too many axes. */
static dra_shape wrong_shape(fuzz *f)
{
    const int64_t wrong[] = {-1, -2, INT64_MIN, INT64_MAX, (int64_t)1 << 46, (int64_t)1 << 61,
                             0,  3};
    dra_shape     s = {.rank = chance(f, 70) ? between(f, 1, 6) : between(f, -3, 9)};
    for (int i = 0; i < DRA_MAX_RANK; i++) s.dim[i] = wrong[below(f, COUNT(wrong))];
    return s;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool failed(const bench *b) { return dra_graph_error(b->g)->code != DRA_OK; }

/* Every result of a builder goes through here: null exactly when the graph has an error. */
static dra_value keep(bench *b, dra_value v)
{
    if (failed(b) != (v.id == 0))
        broken(b->f, "returned value %u, the graph's error is '%s'", v.id,
               dra_graph_error(b->g)->text);
    if (!v.id) return v;
    const dra_shape s = dra_shape_of(b->g, v);
    const int64_t   n = dra_shape_count(&s);
    if (n > ((int64_t)1 << 40))
        b->f->huge = true;
    else if (n > LARGEST)
        return v;
    b->v[b->n < VALUES ? b->n++ : below(b->f, VALUES)] = v;
    return v;
}

static dra_value wrong_value(bench *b)
{
    switch (below(b->f, 5)) {
    case 0: return (dra_value){0};
    case 1: return b->f->foreign;
    case 2: return (dra_value){(uint32_t)draw(b->f)};
    case 3: return (dra_value){(uint32_t)below(b->f, 500)};
    default: return b->n ? b->v[below(b->f, b->n)] : (dra_value){0};
    }
}

/* An argument, or by slip something else. */
static dra_value in(bench *b, dra_value v) { return slip(b) ? wrong_value(b) : v; }

typedef struct want {
    int       dtype;         /* -1: any; FLOATS: any float */
    int       rank;          /* at least; -1: any */
    dra_shape shape;         /* exactly, if `exact` */
    bool      exact, filled; /* filled: no axis of size 0 */
} want;

enum { ANY = -1, FLOATS = -2 };

static bool suits(const bench *b, dra_value v, const want *w)
{
    const dra_dtype t = dra_dtype_of(b->g, v);
    const dra_shape s = dra_shape_of(b->g, v);
    if (w->dtype >= 0 && t != (dra_dtype)w->dtype) return false;
    if (w->dtype == FLOATS && !dra_dtype_get(t)->is_float) return false;
    if (w->exact && !dra_shape_equal(&s, &w->shape)) return false;
    if (w->filled && dra_shape_count(&s) == 0) return false;
    return s.rank >= w->rank;
}

static dra_value find(bench *b, const want *w)
{
    dra_value found = {0};
    int       seen = 0;
    for (int i = 0; i < b->n; i++)
        if (suits(b, b->v[i], w) && below(b->f, ++seen) == 0) found = b->v[i];
    return found;
}

static dra_value new_input(bench *b, dra_dtype dtype, dra_shape shape)
{
    fuzz     *f = b->f;
    input    *i = &f->input[f->inputs];
    const int role = below(f, 4);
    *i = (input){.dtype = dtype, .shape = shape, .is_state = role == 2};
    snprintf(i->name, sizeof i->name, "%c%d", "xpsx"[role], f -> names++);
    i->value = role == 1   ? dra_parameter(b->g, i->name, dtype, shape)
               : role == 2 ? dra_state(b->g, i->name, dtype, shape)
                           : dra_input(b->g, i->name, dtype, shape);
    if (i->value.id) f->inputs++;
    return keep(b, i->value);
}

/* A new value of a type: an input, or what can be had inside a region too. */
static dra_value make(bench *b, dra_dtype dtype, dra_shape shape)
{
    if (b->depth == 0 && b->f->inputs < INPUTS && chance(b->f, 75))
        return new_input(b, dtype, shape);
    if (dtype == DRA_I32)
        return keep(b, dra_broadcast(b->g, dra_integer(b->g, between(b->f, -1, 4)), shape));
    dra_value v = dra_broadcast(b->g, dra_number(b->g, number(b->f)), shape);
    if (chance(b->f, 40)) v = dra_copy(b->g, v);
    return keep(b, dtype == DRA_REAL ? v : dra_cast(b->g, v, dtype));
}

static dra_value pick(bench *b, want w)
{
    dra_value v = chance(b->f, 80) ? find(b, &w) : (dra_value){0};
    if (v.id) return in(b, v);
    const dra_dtype others[] = {DRA_REAL, DRA_REAL, DRA_REAL, DRA_I32, DRA_BOOL, DRA_BF16, DRA_F16};
    dra_dtype       t = w.dtype >= 0 ? (dra_dtype)w.dtype : others[below(b->f, COUNT(others))];
    if (w.dtype == FLOATS && !dra_dtype_get(t)->is_float) t = DRA_REAL;
    dra_shape s = w.exact ? w.shape : any_shape(b->f);
    if (s.rank < w.rank) s = shape_of_rank(b->f, w.rank);
    for (int i = 0; w.filled && i < s.rank; i++) s.dim[i] += s.dim[i] == 0;
    return in(b, make(b, t, s));
}

static dra_value any(bench *b) { return pick(b, (want){ANY, -1}); }
static dra_value real_of(bench *b, int rank) { return pick(b, (want){DRA_REAL, rank}); }
static dra_value filled(bench *b, int rank)
{
    return pick(b, (want){DRA_REAL, rank, .filled = true});
}
static dra_value like(bench *b, dra_dtype t, dra_shape s)
{
    return pick(b, (want){(int)t, -1, s, .exact = true});
}
static dra_value i32_of(bench *b, dra_shape s) { return like(b, DRA_I32, s); }

/* Indices that are mostly below n. */
static dra_value indices(bench *b, dra_shape s, int64_t n)
{
    const dra_value v = i32_of(b, s);
    if (n < 1 || chance(b->f, 6)) return v;
    return keep(b, dra_mod(b->g, v, dra_integer(b->g, (int32_t)n)));
}

static dra_shape shape(const bench *b, dra_value v) { return dra_shape_of(b->g, v); }
static int64_t   dim(const bench *b, dra_value v, int from_end)
{
    const dra_shape s = shape(b, v);
    return from_end <= s.rank ? s.dim[s.rank - from_end] : 1;
}

static int axis(bench *b, dra_value v)
{
    const int wrong[] = {-7, 6, 7, INT_MAX, INT_MIN, 1, -1};
    const int rank = shape(b, v).rank;
    if (slip(b) || rank == 0) return wrong[below(b->f, COUNT(wrong))];
    return below(b->f, rank) - (chance(b->f, 30) ? rank : 0);
}

static int positive_axis(const bench *b, dra_value v, int a)
{
    const int rank = shape(b, v).rank;
    a = a < 0 && a >= -rank ? a + rank : a;
    return a >= 0 && a < rank ? a : 0;
}

/* A shape that broadcasts to s: some axes 1, some leading ones gone. */
static dra_shape narrower(fuzz *f, dra_shape s)
{
    const int gone = s.rank && chance(f, 30) ? between(f, 1, s.rank) : 0;
    dra_shape t = {.rank = s.rank - gone};
    for (int i = 0; i < t.rank; i++) t.dim[i] = chance(f, 25) ? 1 : s.dim[i + gone];
    return t;
}

/* s with one axis of another size. */
static dra_shape with(dra_shape s, int at, int64_t n)
{
    if (at < s.rank) s.dim[at] = n;
    return s;
}

#endif
