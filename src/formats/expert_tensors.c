/* Experts of checkpoints: a tensor for each matrix, as Hugging Face's folders have them, or all of
 * a layer in one, gate and up by turns. The model has one for each kind: see expert_tensors.h. */
#include "formats/expert_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "formats/format.h"

static const char EXPERTS[] = ".experts.", GATE_UP[] = ".experts.gate_up_proj",
                  DOWN[] = ".experts.down_proj";

enum { MOST_EXPERTS = 4096 }; /* as a config may have */

struct dra_joined_tensor {
    dra_tensor_info       info;
    int64_t               n; /* pieces, of so many bytes each */
    size_t                bytes;
    const unsigned char **piece;
    void                 *own; /* what info.data is, where they are not adjacent */
};

typedef struct part { /* a tensor of one expert */
    char    name[DRA_TENSOR_NAME];
    int64_t number;
    size_t  entry;
} part;

static dra_status no_memory(const dra_tensor_source *s, dra_error *err)
{
    return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory");
}

/* ---- making one ------------------------------------------------------------------------------ */

static void free_joined(dra_joined_tensor *j)
{
    if (!j) return;
    free((char *)(uintptr_t)j->info.name);
    free(j->piece);
    free(j->own);
    free(j);
}

/* A tensor (n rows, I) of n pieces like `t`, to the list of the source; NULL: no memory. */
static dra_joined_tensor *add_joined(dra_tensor_source *s, const char *name,
                                     const dra_tensor_info *t, int64_t n, int64_t rows, int64_t I)
{
    dra_joined_tensor **list = realloc(s->joined, (s->n_joined + 1) * sizeof *list);
    if (list) s->joined = list;
    dra_joined_tensor *j = list ? calloc(1, sizeof *j) : NULL;
    if (!j) return NULL;
    j->info = *t;
    j->info.name = strdup(name);
    j->info.shape = DRA_SHAPE(n * rows, I);
    j->n = n;
    j->bytes = (size_t)dra_elements_bytes(t->dtype, rows * I);
    j->info.bytes = j->bytes * (size_t)n;
    j->info.data = NULL;
    j->piece = calloc((size_t)n + 1, sizeof *j->piece);
    if (!j->info.name || !j->piece) {
        free_joined(j);
        return NULL;
    }
    s->joined[s->n_joined++] = j;
    return j;
}

/* Pieces that follow each other are where they are. */
static void settle_pieces(dra_joined_tensor *j)
{
    for (int64_t i = 1; i < j->n; i++)
        if (j->piece[i] != j->piece[0] + (size_t)i * j->bytes) return;
    j->info.data = j->piece[0];
}

dra_status dra_expert_tensors_fill(const dra_tensor_source_entry *e, dra_error *err)
{
    dra_joined_tensor *j = e->joined;
    if (!j || j->info.data) return DRA_OK;
    j->own = malloc(j->info.bytes + 1);
    if (!j->own)
        return dra_fail_at(err, DRA_ERR_MEMORY, e->file, "out of memory for %s, %zu bytes",
                           j->info.name, j->info.bytes);
    for (int64_t i = 0; i < j->n; i++)
        memcpy((unsigned char *)j->own + (size_t)i * j->bytes, j->piece[i], j->bytes);
    j->info.data = j->own;
    return DRA_OK;
}

void dra_expert_tensors_drop(const dra_tensor_source_entry *e)
{
    if (!e->joined || !e->joined->own) return;
    free(e->joined->own);
    e->joined->own = NULL;
    e->joined->info.data = NULL;
}

void dra_expert_tensors_free(dra_tensor_source *s)
{
    for (size_t i = 0; i < s->n_joined; i++) free_joined(s->joined[i]);
    free(s->joined);
}

/* ---- a tensor for each expert ---------------------------------------------------------------- */

/* "A.experts.12.B" into "A.experts.#.B" and 12. */
static bool split_name(const char *name, part *p)
{
    const char *at = strstr(name, EXPERTS);
    if (!at) return false;
    at += strlen(EXPERTS);
    const size_t digits = strspn(at, "0123456789"), head = (size_t)(at - name);
    if (!digits || digits > 5 || at[digits] != '.') return false;
    if (strlen(name) >= sizeof p->name) return false;
    memcpy(p->name, name, head);
    p->name[head] = '#';
    memcpy(p->name + head + 1, at + digits, strlen(at + digits) + 1);
    p->number = strtoll(at, NULL, 10);
    return true;
}

static int by_name(const void *a, const void *b)
{
    const part *x = a, *y = b;
    const int   order = strcmp(x->name, y->name);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

static bool is_whole(const dra_tensor_source *s, const part *p, int64_t n)
{
    const dra_tensor_info *first = s->entry[p->entry].info;
    for (int64_t i = 0; i < n; i++) {
        const dra_tensor_info *t = s->entry[p[i].entry].info;
        if (p[i].number != i || t->shape.rank != 2 || t->dtype != first->dtype ||
            !dra_shape_equal(&t->shape, &first->shape))
            return false;
    }
    return first->dtype < DRA_DTYPE_COUNT;
}

/* Entries that were joined are marked by having no info. */
static dra_status join_parts(dra_tensor_source *s, const part *p, int64_t n, dra_error *err)
{
    if (!is_whole(s, p, n)) return DRA_OK;
    const dra_tensor_info *t = s->entry[p->entry].info;
    dra_joined_tensor     *j = add_joined(s, p->name, t, n, t->shape.dim[0], t->shape.dim[1]);
    if (!j) return no_memory(s, err);
    for (int64_t i = 0; i < n; i++) j->piece[i] = s->entry[p[i].entry].info->data;
    settle_pieces(j);
    for (int64_t i = 1; i < n; i++) s->entry[p[i].entry].info = NULL;
    s->entry[p->entry] = (dra_tensor_source_entry){
        .info = &j->info, .file = s->entry[p->entry].file, .joined = j};
    return DRA_OK;
}

static dra_status join_numbered(dra_tensor_source *s, dra_error *err)
{
    part      *all = calloc(s->count + 1, sizeof *all);
    size_t     n = 0;
    dra_status st = all ? DRA_OK : no_memory(s, err);
    for (size_t i = 0; i < s->count && st == DRA_OK; i++)
        if (split_name(s->entry[i].info->name, &all[n])) all[n++].entry = i;
    if (n) qsort(all, n, sizeof *all, by_name);
    for (size_t at = 0, end; at < n && st == DRA_OK; at = end) {
        for (end = at + 1; end < n && strcmp(all[end].name, all[at].name) == 0;) end++;
        st = join_parts(s, all + at, (int64_t)(end - at), err);
    }
    free(all);
    return st;
}

/* ---- all experts in one ---------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

/* Part k of the `parts` that each expert has of tensor t, as "A.experts.#.KIND". */
static dra_status take_part(dra_tensor_source *s, size_t entry, size_t head, const char *kind,
                            int k, int parts, dra_error *err)
{
    const dra_tensor_info *t = s->entry[entry].info;
    const int64_t          n = t->shape.dim[0], rows = t->shape.dim[1] / parts;
    char                   name[DRA_TENSOR_NAME];
    memcpy(name, t->name, head);
    strcpy(name + head, kind);
    dra_joined_tensor *j = add_joined(s, name, t, n, rows, t->shape.dim[2]);
    if (!j) return no_memory(s, err);
    for (int64_t i = 0; i < n; i++)
        j->piece[i] = (const unsigned char *)t->data + (size_t)(i * parts + k) * j->bytes;
    settle_pieces(j);
    s->entry[s->count++] = (dra_tensor_source_entry){
        .info = &j->info, .file = s->entry[entry].file, .joined = j};
    return DRA_OK;
}

/* Whether a tensor holds matrices of all experts, `head` bytes of its name coming before; *both: gates
 * and what they gate. */
static bool is_packed(const dra_tensor_info *t, size_t *head, bool *both)
{
    *both = ends_with(t->name, GATE_UP);
    if (!*both && !ends_with(t->name, DOWN)) return false;
    *head = strlen(t->name) - strlen(*both ? GATE_UP : DOWN);
    return t->shape.rank == 3 && t->dtype < DRA_DTYPE_COUNT && t->shape.dim[0] >= 1 &&
           t->shape.dim[0] <= MOST_EXPERTS && t->bytes > 0 && !(*both && t->shape.dim[1] % 2) &&
           *head + 32 < DRA_TENSOR_NAME;
}

/* A packed tensor keeps its own entry until all are done. */
static dra_status split_packed(dra_tensor_source *s, dra_error *err)
{
    const size_t             count = s->count;
    dra_tensor_source_entry *room = realloc(s->entry, (3 * count + 1) * sizeof *room);
    dra_status               st = room ? DRA_OK : no_memory(s, err);
    if (room) s->entry = room;
    for (size_t i = 0; i < count && st == DRA_OK; i++) {
        const dra_tensor_info *t = s->entry[i].info;
        size_t                 head;
        bool                   both;
        if (!t || !is_packed(t, &head, &both)) continue;
        st = take_part(s, i, head,
                       both ? ".experts.#.gate_proj.weight" : ".experts.#.down_proj.weight", 0,
                       both ? 2 : 1, err);
        if (st == DRA_OK && both)
            st = take_part(s, i, head, ".experts.#.up_proj.weight", 1, 2, err);
        s->entry[i].info = NULL;
    }
    return st;
}

static bool has_experts(const dra_tensor_source *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (strstr(s->entry[i].info->name, EXPERTS)) return true;
    return false;
}

dra_status dra_expert_tensors_join(dra_tensor_source *s, dra_error *err)
{
    size_t n = 0;
    if (!has_experts(s)) return DRA_OK;
    dra_status st = join_numbered(s, err);
    if (st == DRA_OK) st = split_packed(s, err);
    for (size_t i = 0; i < s->count; i++)
        if (s->entry[i].info) s->entry[n++] = s->entry[i];
    s->count = n;
    return st;
}
