/* Lists of named tensors: a module's parameters and states, and how parameters are initialised. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/names.h"
#include "base/philox.h"
#include "base/shape.h"
#include "sequence/module.h"

struct dra_specs {
    dra_arena arena; /* names, values */
    dra_spec *at;
    int       n, room;
    dra_names names;
    dra_error error;
};

const char *dra_param_group_name(dra_param_group group)
{
#define NAME(k, name) [DRA_PARAM_##k] = name,
    static const char *const names[DRA_PARAM_GROUPS] = {DRA_PARAM_EACH(NAME)};
#undef NAME
    return (unsigned)group < DRA_PARAM_GROUPS ? names[group] : NULL;
}

dra_status dra_specs_create(dra_specs **out, dra_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "specs: out of memory");
}

void dra_specs_destroy(dra_specs *s)
{
    if (!s) return;
    dra_arena_free(&s->arena);
    dra_names_free(&s->names);
    free(s->at);
    free(s);
}

static void fail_spec(dra_specs *s, dra_status code, const char *name, const char *text)
{
    if (s->error.code == DRA_OK) dra_fail(&s->error, code, "tensor %s: %s", name, text);
}

static bool reserve_spec(dra_specs *s)
{
    if (s->n < s->room) return true;
    const int room = s->room ? 2 * s->room : 16;
    dra_spec *at = realloc(s->at, (size_t)room * sizeof *at);
    if (!at) return false;
    s->at = at;
    s->room = room;
    return true;
}

static char *join_names(dra_specs *s, const char *prefix, const char *name)
{
    const size_t a = prefix ? strlen(prefix) : 0, b = strlen(name) + 1;
    char        *text = dra_arena_alloc(&s->arena, a + b);
    if (!text) return NULL;
    if (a) memcpy(text, prefix, a);
    memcpy(text + a, name, b);
    return text;
}

void dra_specs_add(dra_specs *s, const char *prefix, const dra_spec *spec)
{
    dra_spec      copy = *spec;
    const int64_t count = dra_shape_count(&spec->shape);
    if (s->error.code != DRA_OK) return;
    if (count < 0) {
        fail_spec(s, DRA_ERR_MEMORY, spec->name, "its size is negative or overflows");
        return;
    }
    if (spec->limit < 0 || (spec->limit > 0 && !spec->items)) {
        fail_spec(s, DRA_ERR_VALUE, spec->name, "limit is for items, 0 or more");
        return;
    }
    if (spec->bf16 && !spec->items) {
        fail_spec(s, DRA_ERR_VALUE, spec->name, "bf16 is for items");
        return;
    }
    if (spec->context && spec->items) {
        fail_spec(s, DRA_ERR_VALUE, spec->name,
                  "its items are those of a context or of its own text");
        return;
    }
    if ((unsigned)spec->group >= DRA_PARAM_GROUPS) {
        fail_spec(s, DRA_ERR_VALUE, spec->name, "there is no such group of parameters");
        return;
    }
    if (spec->group == DRA_PARAM_AUTO)
        copy.group = spec->shape.rank > 1 ? DRA_PARAM_MATRIX : DRA_PARAM_OTHER;
    copy.name = join_names(s, prefix, spec->name);
    if (copy.name && strlen(copy.name) > DRA_NAME_MOST) {
        fail_spec(s, DRA_ERR_NAME, spec->name, "its name is too long");
        return;
    }
    if (spec->fill == DRA_FILL_VALUES && spec->values)
        copy.values = dra_arena_copy(&s->arena, spec->values, (size_t)count * sizeof(double));
    if (!copy.name || !reserve_spec(s) || (spec->fill == DRA_FILL_VALUES && !copy.values)) {
        fail_spec(s, DRA_ERR_MEMORY, spec->name, "out of memory");
        return;
    }
    if (dra_specs_find(s, copy.name) >= 0) {
        fail_spec(s, DRA_ERR_NAME, copy.name, "the name is used twice");
        return;
    }
    if (!dra_names_add(&s->names, copy.name, s->n)) {
        fail_spec(s, DRA_ERR_MEMORY, spec->name, "out of memory");
        return;
    }
    s->at[s->n++] = copy;
}

void dra_specs_adapt(dra_specs *s, int i, int64_t rank, double scale)
{
    const int     at = s->n;
    const int64_t O = s->at[i].shape.dim[0], I = s->at[i].shape.dim[1];
    char          prefix[DRA_NAME_TEXT];
    snprintf(prefix, sizeof prefix, "%s", s->at[i].name);
    dra_specs_add(s, prefix,
                  &(dra_spec){".lora_A", DRA_SHAPE(rank, I), DRA_FILL_UNIFORM,
                              .number = 1 / sqrt((double)I), .product = true, .added = true,
                              .group = DRA_PARAM_LOW_RANK});
    dra_specs_add(s, prefix,
                  &(dra_spec){".lora_B", DRA_SHAPE(O, rank), .product = true, .added = true,
                              .group = DRA_PARAM_LOW_RANK});
    if (s->n != at + 2) return; /* the list keeps the error */
    s->at[i].factors = at;
    s->at[i].factor_scale = scale;
}

void dra_specs_add_start(dra_specs *params, dra_specs *states, int i)
{
    const int at = params->n;
    dra_specs_add(params, "start.",
                  &(dra_spec){states->at[i].name, states->at[i].shape, .added = true,
                              .group = DRA_PARAM_VECTOR});
    if (params->n > at) states->at[i].start = at;
}

void dra_specs_freeze(dra_specs *s)
{
    for (int i = 0; i < s->n; i++) s->at[i].frozen = true;
}

dra_status dra_specs_error(const dra_specs *s, dra_error *err)
{
    if (s->error.code != DRA_OK && err) *err = s->error;
    return s->error.code;
}

int             dra_specs_count(const dra_specs *s) { return s->n; }
const dra_spec *dra_specs_at(const dra_specs *s, int i) { return &s->at[i]; }

int dra_specs_find(const dra_specs *s, const char *name)
{
    return (int)dra_names_find(&s->names, name);
}

dra_dtype dra_spec_dtype(const dra_spec *p) { return p->bf16 ? DRA_BF16 : DRA_REAL; }

size_t dra_spec_bytes(const dra_spec *p)
{
    return (size_t)dra_shape_count(&p->shape) * dra_dtype_bytes(dra_spec_dtype(p));
}

typedef struct spec_facts { /* the input of a fingerprint besides name and axes */
    int64_t rank, kind, limit;
} spec_facts;

static spec_facts facts_of(const dra_spec *p)
{
    return (spec_facts){p->shape.rank, p->context ? 2 : p->bf16 ? 3 : p->items, p->limit};
}

uint64_t dra_specs_fingerprint(const dra_specs *s)
{
    dra_hash h;
    dra_hash_begin(&h, 0);
    for (int i = 0; i < s->n; i++) {
        const dra_spec  *p = &s->at[i];
        const spec_facts facts = facts_of(p);
        dra_hash_add_text(&h, p->name);
        dra_hash_add(&h, &facts, sizeof facts);
        dra_hash_add(&h, p->shape.dim, (size_t)p->shape.rank * sizeof *p->shape.dim);
    }
    return dra_hash_end(&h);
}

/* ---- first values ---------------------------------------------------------------------------- */

/* Two uniform numbers in (0, 1). Blocks of random bits are numbered, so element i does not depend
 * on others. */
static void uniform_pair(uint64_t key, uint64_t block, double u[2])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32)};
    uint32_t       bits[4];
    dra_philox(counter, key, bits);
    for (int i = 0; i < 2; i++) {
        const uint64_t wide = (uint64_t)bits[2 * i] << 32 | bits[2 * i + 1];
        u[i] = ((double)(wide >> 11) + 0.5) * 0x1p-53;
    }
}

static double draw_number(const dra_spec *p, uint64_t key, int64_t i)
{
    double u[2];
    uniform_pair(key, (uint64_t)i / 2, u);
    if (p->fill == DRA_FILL_UNIFORM) return p->number * (2 * u[i % 2] - 1);
    const double angle = 2 * 3.14159265358979323846 * u[1]; /* Box and Muller */
    return p->number * sqrt(-2 * log(u[0])) * (i % 2 ? sin(angle) : cos(angle));
}

/* Rows of blocks of D: Gram-Schmidt on normal vectors, then the lengths of other normal vectors.
 * [Choromanski et al. 2021: orthogonal random features] */
static void fill_favor(const dra_spec *p, uint64_t key, dra_real *to)
{
    const dra_spec normal = {.fill = DRA_FILL_NORMAL, .number = 1};
    const int32_t  rank = p->shape.rank;
    const int64_t  D = p->shape.dim[rank - 1], F = p->shape.dim[rank - 2];
    const int64_t  n = dra_shape_count(&p->shape);
    for (int64_t r = 0; D > 0 && r < n / D; r++) {
        dra_real *row = to + r * D;
        double    length = 0, size = 0;
        for (int64_t c = 0; c < D; c++) row[c] = (dra_real)draw_number(&normal, key, r * D + c);
        for (int64_t b = r - r % F % D; b < r; b++) { /* the rows of its block before it */
            double dot = 0, own = 0;
            for (int64_t c = 0; c < D; c++) {
                dot += (double)row[c] * (double)to[b * D + c];
                own += (double)to[b * D + c] * (double)to[b * D + c];
            }
            for (int64_t c = 0; c < D; c++) row[c] -= (dra_real)(dot / own) * to[b * D + c];
        }
        for (int64_t c = 0; c < D; c++) {
            const double other = draw_number(&normal, key, n + r * D + c);
            size += (double)row[c] * (double)row[c];
            length += other * other;
        }
        for (int64_t c = 0; c < D; c++) row[c] *= (dra_real)sqrt(length / size);
    }
}

void dra_specs_fill(const dra_specs *s, int i, uint64_t seed, dra_real *to)
{
    const dra_spec *p = &s->at[i];
    const int64_t   n = dra_shape_count(&p->shape);
    const int32_t   words[4] = {(int32_t)seed, (int32_t)(seed >> 32)};
    const uint64_t  key = dra_philox_key(words, dra_name_key(DRA_NAME_START, p->name));
    if (p->fill == DRA_FILL_FAVOR) {
        fill_favor(p, key, to);
        return;
    }
    for (int64_t k = 0; k < n; k++)
        to[k] = (dra_real)(p->fill == DRA_FILL_CONST    ? p->number
                           : p->fill == DRA_FILL_VALUES ? p->values[k]
                                                        : draw_number(p, key, k));
}
