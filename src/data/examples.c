/* Examples: rows of tensors that share their first size, in an order that follows from a seed. */
#include "data/examples.h"

#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "data/shuffle.h"
#include "file/fail.h"

/* ---- open ------------------------------------------------------------------------------------ */

static dra_status no_memory(const char *path, dra_error *err)
{
    return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory, cannot open it");
}

static dra_status check_batch(const dra_examples_config *c, double *to, dra_error *err)
{
    *to = c->to;
    if (c->B < 1 || c->B >= (int64_t)1 << 31)
        return dra_fail(err, DRA_ERR_VALUE, "examples_open: B %lld, expected 1 to 2^31 - 1",
                        (long long)c->B);
    return dra_part_check("examples_open", c->from, to, err);
}

/* Which of all examples these are. */
static dra_status take_part(dra_examples *e, const dra_examples_config *c, double to,
                            dra_error *err)
{
    const int64_t N = e->table->N;
    e->c = (dra_examples_config){
        .B = c->B, .seed = c->seed, .from = c->from, .to = to, .once = c->once};
    e->begin = (int64_t)(c->from * (double)N);
    e->end = dra_imin((int64_t)(to * (double)N), N);
    if (e->begin < e->end) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_VALUE, e->table->path,
                       "%lld examples, none of them from %g to %g", (long long)N, c->from, to);
}

static bool has_paths(const dra_examples_config *c)
{
    for (int i = 0; i < c->n_paths; i++)
        if (!c->paths || !c->paths[i]) return false;
    return c->n_paths > 0 || c->path;
}

static dra_status open_examples(const dra_examples_config *c, dra_table *table, dra_examples **out,
                                dra_error *err)
{
    const char   *path = table ? table->path : c->n_paths ? c->paths[0] : c->path;
    double        to;
    dra_status    st = check_batch(c, &to, err);
    dra_examples *e = st == DRA_OK ? calloc(1, sizeof *e) : NULL;
    if (st != DRA_OK) return st;
    if (!e) return no_memory(path, err);
    e->shared = table != NULL;
    e->table = table ? table : calloc(1, sizeof *e->table);
    if (!e->table)
        st = no_memory(path, err);
    else if (!table)
        st = dra_table_open(e->table, c, err);
    if (st == DRA_OK) st = take_part(e, c, to, err);
    if (st == DRA_OK)
        *out = e;
    else
        dra_examples_close(e);
    return st;
}

dra_status dra_examples_open(const dra_examples_config *c, dra_examples **out, dra_error *err)
{
    if (!out) return dra_fail(err, DRA_ERR_VALUE, "examples_open: no out");
    *out = NULL;
    if (!c || !has_paths(c)) return dra_fail(err, DRA_ERR_VALUE, "examples_open: no path");
    return open_examples(c, NULL, out, err);
}

dra_status dra_examples_share(const dra_examples *e, const dra_examples_config *c,
                              dra_examples **out, dra_error *err)
{
    *out = NULL;
    return open_examples(c, e->table, out, err);
}

void dra_examples_close(dra_examples *e)
{
    if (!e) return;
    if (e->table && !e->shared) {
        dra_table_free(e->table);
        free(e->table);
    }
    free(e);
}

/* ---- what there is --------------------------------------------------------------------------- */

int64_t dra_examples_count(const dra_examples *e) { return e->end - e->begin; }
int64_t dra_examples_steps(const dra_examples *e)
{
    return dra_div_up(dra_examples_count(e), e->c.B);
}
int         dra_examples_inputs(const dra_examples *e) { return (int)e->table->n; }
const char *dra_examples_path(const dra_examples *e) { return e->table->path; }

const dra_example_input *dra_examples_at(const dra_examples *e, int i)
{
    return i >= 0 && (size_t)i < e->table->n ? &e->table->column[i].shown : NULL;
}

const dra_column *dra_examples_column(const dra_examples *e, const char *name)
{
    for (size_t i = 0; name && i < e->table->n; i++)
        if (strcmp(e->table->column[i].shown.name, name) == 0) return &e->table->column[i];
    return NULL;
}

const dra_example_input *dra_examples_find(const dra_examples *e, const char *name)
{
    const dra_column *c = dra_examples_column(e, name);
    return c ? &c->shown : NULL;
}

void dra_examples_rows(const dra_examples *e, int64_t step, int64_t *rows)
{
    for (int64_t b = 0; b < e->c.B; b++) {
        const int64_t i = dra_order(e->c.seed, dra_examples_count(e), e->c.once, step * e->c.B + b);
        rows[b] = i < 0 ? -1 : e->begin + i;
    }
}

/* ---- or a corpus ----------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

/* A file of tokens has `ids` (N); rows of them, or none, are examples. */
static bool is_tokens(const dra_example_part *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->tensor[i].info.name, "ids") == 0) return p->tensor[i].info.shape.rank != 2;
    return p->n == 0;
}

/* One number for an example, and nothing else: tokens. */
static bool is_numbers(const dra_example_part *p)
{
    bool all = p->n > 0;
    for (size_t i = 0; i < p->n; i++)
        all = all && p->tensor[i].info.shape.rank == 1 &&
              strchr("IU", p->tensor[i].info.dtype_name[0]);
    return all;
}

/* Arrays of NumPy are nothing else, be they damaged or not. */
static bool is_array(const char *path)
{
    return ends_with(path, ".npy") || ends_with(path, ".npz");
}

bool dra_examples_are(int n, const char *const *paths)
{
    dra_example_files files;
    bool              all = n > 0, arrays = n > 0;
    for (int i = 0; i < n; i++) {
        all = all && !ends_with(paths[i], ".txt") && !ends_with(paths[i], ".jsonl");
        arrays = arrays && is_array(paths[i]);
    }
    if (!all) return false;
    const bool open = dra_example_files_open(n, paths, &files, NULL) == DRA_OK && files.n > 0;
    all = open || arrays || (files.n && is_array(files.part[0].path)); /* of a folder */
    for (size_t i = 0; i < files.n && open && all; i++) {
        const dra_example_part *p = &files.part[i];
        all = (arrays || !is_tokens(p)) && !(ends_with(p->path, ".npy") && is_numbers(p));
    }
    dra_example_files_close(&files);
    return all;
}
