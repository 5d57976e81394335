/* Scans: a body that runs `length` times, on rows of x and y that move with the step.
 *
 * Unrolled, every step is started by itself at addresses of its own. A graph of that has length x
 * body nodes, so long scans become a loop instead, whose body is captured once and runs a piece of
 * several steps:
 *   - rows of x are copied to where all pieces have theirs, in one launch;
 *   - the steps run there, carries alternate between their two buffers as ever; a piece has an even
 *     number of steps, so each begins in the same buffer;
 *   - rows of y are copied to where they belong; and the number of the piece, which is in memory of
 *     the device and which all copies read, goes up by one.
 * Steps that do not fill a piece are unrolled after the loop.
 *
 * The copied rows have the strides of the originals, which kernels of the body were planned for: a
 * window of the memory of x with `steps` rows in it. They are as far from multiples of ALIGN bytes
 * as the originals: kernels that look at this take the same way, and results have the same bits. */
#include "device/cuda/device.cuh"
#include "ops/movement/move.cuh"

#include <stdlib.h>
#include <string.h>

typedef dra_cuda_walk walk;

enum {
    PIECES = 4,  /* the fewest of a loop: of a shorter scan it saves little */
    NODES = 128, /* of a piece, if possible: an iteration costs some 10 us, a node 1 to 2 */
    STEPS = 64,  /* of a piece at most */
    ALIGN = 256, /* bytes: nothing looks at more */
    PARTS = 8,   /* of one launch: they are its arguments */
    AUTO = -1    /* dra_cuda_scans.steps: as many as the size of the body asks for */
};

struct dra_cuda_stage { /* memory of a scan that runs in pieces */
    dra_cuda_stage   *next;
    const dra_launch *l;
    const dra_region *r;
    int64_t           steps; /* of a piece */
    unsigned char    *memory;
    size_t            bytes;
    unsigned char   **row; /* (xs + ys): the first row of each; where x stays or is not read: x */
};

static int64_t *number_of(const dra_cuda_stage *s) /* of the piece; on the device */
{
    return reinterpret_cast<int64_t *>(s->memory);
}

static void check(walk *w, cudaError_t error)
{
    if (w->status == DRA_OK) w->status = dra_cuda_check(w->device, "scan", error, w->err);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static unsigned char *address(const dra_launch *l, const dra_place *place)
{
    return static_cast<unsigned char *>(dra_place_address(l, place));
}

static int64_t row_bytes(const dra_place *place) /* from one step to the next */
{
    return place->tensor.stride[0] * (int64_t)dra_dtype_bytes(place->tensor.dtype);
}

/* Of a storage inside of a scan: does anything read it? */
static bool is_read(const dra_launch *l, int32_t block, int32_t storage)
{
    const dra_code_block *k = &l->block[block];
    for (size_t i = 0; i < k->n; i++) {
        const dra_instr *in = k->instr[i];
        for (int j = 0; j < in->n_in; j++)
            if (in->in[j].storage == storage) return true;
        if (in->kernel) continue;
        if (in->region->flag.storage == storage || is_read(l, in->region->block, storage))
            return true;
        if (in->region->otherwise >= 0 && is_read(l, in->region->otherwise, storage)) return true;
    }
    return false;
}

/* `steps` rows; axes along which nothing moves count once. */
static dra_tensor some_rows(const dra_place *place, int64_t steps)
{
    dra_tensor t = place->tensor;
    t.shape.dim[0] = steps;
    for (int32_t i = 0; i < t.shape.rank; i++)
        if (t.stride[i] == 0 && t.shape.dim[i] > 0) t.shape.dim[i] = 1;
    return t;
}

/* The bytes that they span, and how many of these are below the first element. */
static size_t window(const dra_tensor *t, size_t *below)
{
    const size_t size = dra_dtype_bytes(t->dtype);
    size_t       above = size;
    *below = 0;
    for (int32_t i = 0; i < t->shape.rank; i++) {
        const int64_t far = (t->shape.dim[i] - 1) * t->stride[i];
        *(far < 0 ? below : &above) += (size_t)(far < 0 ? -far : far) * size;
    }
    return *below + above;
}

/* The x and y of a scan by one number; NULL: this one stays where it is. */
static const dra_place *moved(const dra_launch *l, const dra_region *r, int i)
{
    const dra_place *p = i < r->xs ? &r->x[i] : &r->y[i - r->xs];
    if (p->storage < 0 || p->tensor.stride[0] == 0) return nullptr;
    if (dra_shape_count(&p->tensor.shape) == 0) return nullptr;
    return i >= r->xs || is_read(l, r->block, r->x_in[i]) ? p : nullptr;
}

/* ---- which scans, and their memory ----------------------------------------------------------- */

static dra_cuda_stage *find_stage(const dra_cuda_device *d, const dra_launch *l,
                                  const dra_region *r)
{
    dra_cuda_stage *s = d->stages;
    while (s && (s->l != l || s->r != r)) s = s->next;
    return s;
}

int64_t dra_cuda_count_nodes(const dra_cuda_device *d, const dra_launch *l, int32_t block,
                             int64_t most)
{
    int64_t               n = 0;
    const dra_code_block *k = &l->block[block];
    for (size_t i = 0; i < k->n && n <= most; i++) {
        const dra_instr  *in = k->instr[i];
        const dra_region *r = in->region;
        if (in->kernel) {
            n++;
        } else if (r->kind == DRA_REGION_SCAN) {
            const dra_cuda_stage *s = find_stage(d, l, r);
            const int64_t         parts = s ? 2 + (r->xs + r->ys) / PARTS + 3 : 0;
            const int64_t         bodies = s ? s->steps + r->length % s->steps : r->length;
            n += bodies * (dra_cuda_count_nodes(d, l, r->block, most) + r->carries) + parts;
        } else {
            n += 3 + dra_cuda_count_nodes(d, l, r->block, most) +
                 dra_cuda_count_nodes(d, l, r->otherwise, most);
        }
    }
    return n;
}

/* Do rows that are so many steps apart have the same alignment? */
static bool aligned(const dra_launch *l, const dra_region *r, int64_t steps)
{
    for (int i = 0; i < r->xs + r->ys; i++) {
        const dra_place *p = moved(l, r, i);
        if (p && steps * row_bytes(p) % ALIGN) return false;
    }
    return true;
}

/* Steps of a piece; 0: it is not worth it. */
static int64_t choose_steps(const dra_cuda_device *d, const dra_launch *l, const dra_region *r)
{
    if (d->scans.steps >= 0) return r->length >= d->scans.steps ? d->scans.steps : 0;
    const int64_t nodes = dra_cuda_count_nodes(d, l, r->block, NODES);
    int64_t       steps = 2;
    while (steps < STEPS && (steps * nodes < NODES || !aligned(l, r, steps))) steps *= 2;
    return r->length >= PIECES * steps ? steps : 0;
}

static void free_stage(dra_cuda_device *d, dra_cuda_stage *s)
{
    if (s->memory) d->base.table->free(&d->base, s->memory, s->bytes);
    free(s->row);
    free(s);
}

/* The number of the piece, then windows. Where there is no memory the scan stays unrolled. */
static void open_stage(dra_cuda_device *d, const dra_launch *l, const dra_region *r, int64_t steps)
{
    dra_cuda_stage *s = static_cast<dra_cuda_stage *>(calloc(1, sizeof *s));
    if (!s) return;
    s->l = l, s->r = r, s->steps = steps;
    s->bytes = ALIGN;
    for (int i = 0; i < r->xs + r->ys; i++) {
        const dra_place *p = moved(l, r, i);
        if (!p) continue;
        const dra_tensor t = some_rows(p, steps);
        size_t           below;
        s->bytes += ALIGN + window(&t, &below);
    }
    s->row = static_cast<unsigned char **>(calloc((size_t)(r->xs + r->ys) + 1, sizeof *s->row));
    if (s->row) s->memory = static_cast<unsigned char *>(d->base.table->alloc(&d->base, s->bytes));
    if (!s->memory) {
        free_stage(d, s);
        return;
    }
    s->next = d->stages;
    d->stages = s;
}

/* Inner scans first: they decide how many nodes the outer ones have. */
void dra_cuda_scans_open(dra_cuda_device *d, const dra_launch *l, int32_t block)
{
    const dra_code_block *k = &l->block[block];
    for (size_t i = 0; i < k->n && d->scans.steps != 0; i++) {
        const dra_region *r = k->instr[i]->kernel ? nullptr : k->instr[i]->region;
        if (!r) continue;
        dra_cuda_scans_open(d, l, r->block);
        if (r->otherwise >= 0) dra_cuda_scans_open(d, l, r->otherwise);
        if (r->kind != DRA_REGION_SCAN || find_stage(d, l, r)) continue;
        const int64_t steps = choose_steps(d, l, r);
        if (steps) open_stage(d, l, r, steps);
    }
}

void dra_cuda_scans_forget(dra_cuda_device *d, const dra_launch *l)
{
    for (dra_cuda_stage **at = &d->stages; *at;) {
        dra_cuda_stage *s = *at;
        if (l && s->l != l) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        free_stage(d, s);
    }
}

dra_cuda_scans dra_cuda_scans_wish(const char *wish)
{
#ifdef __CUDACC__
    const dra_cuda_scans usual = {AUTO, false};
#else
    const dra_cuda_scans usual = {4, true}; /* tests reach it with short sequences */
#endif
    if (!wish || !*wish) return usual;
    if (strcmp(wish, "auto") == 0) return {AUTO, usual.walked};
    const int64_t steps = strtoll(wish, nullptr, 10); /* "unrolled" is 0 */
    return {(dra_imax(0, dra_imin(steps, 1 << 16)) + 1) / 2 * 2, true};
}

/* ---- copies ---------------------------------------------------------------------------------- */

struct part {
    dra_view       near;
    unsigned char *far; /* has the same strides, and moves by `step` bytes */
    int64_t        step, n;
    int            bytes; /* of an element */
};

struct copies {
    part p[PARTS];
    bool in; /* from far to near */
    /* They are done where number * steps + first is a multiple of `border`: this many times `step`
     * from `far`. */
    const int64_t *number;
    int64_t        steps, first, border;
};

template <typename T> __device__ static void copy_part(const part &p, int64_t times, bool in)
{
    T *const near = dra_data<T>(p.near), *const far = reinterpret_cast<T *>(p.far + times * p.step);
    DRA_EACH(i, p.n)
    {
        const int64_t at = dra_offset(p.near, i);
        if (in)
            near[at] = far[at];
        else
            far[at] = near[at];
    }
}

__global__ static void copy_parts(const __grid_constant__ copies c)
{
    const part   &p = c.p[blockIdx.y];
    const int64_t step = *c.number * c.steps + c.first, times = step / c.border;
    if (times * c.border == step) DRA_BY_BYTES(p.bytes, copy_part, p, times, c.in);
}

/* As wide as both sides allow, wherever the far one is. */
static part make_part(const dra_tensor *near, unsigned char *far, int64_t step)
{
    part      p = {dra_view_of(near), far, step, dra_shape_count(&near->shape), 0};
    dra_view  first = p.near, second = p.near;
    dra_view *views[] = {&p.near, &first, &second};
    int64_t   n[] = {p.n, p.n, p.n};
    first.data = far, second.data = far + step;
    p.bytes = dra_cuda_widen((int)dra_dtype_bytes(near->dtype), 3, views, n);
    p.n = n[0];
    return p;
}

/* Launches come with their parts: get(i, &part) is false where there is none. */
template <typename Get> static void copy_all(const walk *w, copies *c, int n, Get get)
{
    dra_call        call = {};
    const dra_call *k = &call;
    call.context = &w->context;
    int64_t most = 0;
    int     parts = 0;
    for (int i = 0; i < n; i++) {
        if (get(i, &c->p[parts])) most = dra_imax(most, c->p[parts++].n);
        if (parts == 0 || (parts < PARTS && i < n - 1)) continue;
        DRA_LAUNCH(k, copy_parts, dim3(dra_grid(k, most, DRA_THREADS), (unsigned)parts),
                   DRA_THREADS, 0, *c);
        parts = 0, most = 0;
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The far side of rows in piece 0, and how far piece 1 is from it. */
static unsigned char *first_rows(const dra_launch *l, const dra_cuda_stage *s, const dra_place *p,
                                 int64_t *step)
{
    const dra_region *r = s->r;
    const int64_t     bytes = row_bytes(p);
    *step = (r->reverse ? -1 : 1) * s->steps * bytes;
    return address(l, p) + (r->reverse ? r->length - s->steps : 0) * bytes;
}

/* Where rows are in this stage, for the addresses of now. */
static void place_rows(const walk *w, dra_cuda_stage *s)
{
    const dra_region *r = s->r;
    unsigned char    *at = s->memory + ALIGN;
    for (int i = 0; i < r->xs + r->ys; i++) {
        const dra_place *p = moved(w->l, r, i);
        if (!p) {
            s->row[i] = i < r->xs ? address(w->l, &r->x[i]) : nullptr;
            continue;
        }
        int64_t          step;
        size_t           below;
        const dra_tensor t = some_rows(p, s->steps);
        const size_t     bytes = window(&t, &below);
        const uintptr_t  far = reinterpret_cast<uintptr_t>(first_rows(w->l, s, p, &step));
        s->row[i] = at + below;
        s->row[i] += (far - reinterpret_cast<uintptr_t>(s->row[i])) % ALIGN;
        at += ALIGN + bytes;
    }
}

static void copy_rows(const walk *w, const dra_cuda_stage *s, bool in)
{
    const dra_region *r = s->r;
    const int         first = in ? 0 : r->xs;
    copies            c = {};
    c.in = in, c.number = number_of(s), c.steps = c.border = s->steps;
    copy_all(w, &c, in ? r->xs : r->ys, [&](int i, part *out) {
        const dra_place *p = moved(w->l, r, first + i);
        if (!p) return false;
        int64_t        step;
        unsigned char *far = first_rows(w->l, s, p, &step);
        dra_tensor     near = some_rows(p, s->steps);
        near.data = s->row[first + i];
        *out = make_part(&near, far, step);
        return true;
    });
}

/* Carries before step number `first` of a piece, to where the scan keeps them. */
static void keep_in_piece(const walk *w, const dra_cuda_stage *s, int64_t first, int current)
{
    const dra_region *r = s->r;
    const int64_t     last = dra_div_up(r->length, r->border) - 1;
    copies            c = {};
    c.number = number_of(s);
    c.steps = s->steps, c.first = first, c.border = r->border;
    copy_all(w, &c, r->carries, [&](int i, part *out) {
        const dra_place *kept = &r->kept[i];
        dra_tensor       near = r->carry[current][i].tensor;
        if (kept->storage < 0 || dra_shape_count(&near.shape) == 0) return false;
        const int64_t bytes = row_bytes(kept);
        near.data = address(w->l, &r->carry[current][i]);
        *out = make_part(&near, address(w->l, kept) + (r->reverse ? last : 0) * bytes,
                         r->reverse ? -bytes : bytes);
        return true;
    });
}

static void keep_carries(walk *w, const dra_region *r, int64_t step, int current)
{
    const int64_t segments = dra_div_up(r->length, r->border);
    const int64_t at = r->reverse ? segments - 1 - step / r->border : step / r->border;
    for (int i = 0; i < r->carries; i++) {
        if (r->kept[i].storage < 0) continue;
        const int64_t bytes = row_bytes(&r->kept[i]);
        dra_cuda_copy_bytes(w, address(w->l, &r->kept[i]) + at * bytes,
                            address(w->l, &r->carry[current][i]), (size_t)bytes);
    }
}

/* A step on row number `row` of x and y, or of those in the stage. */
static void run_step(walk *w, const dra_region *r, const dra_cuda_stage *s, int64_t row,
                     int current)
{
    const dra_launch *l = w->l;
    for (int i = 0; i < r->carries; i++) {
        l->base[r->carry_in[i]] = address(l, &r->carry[current][i]);
        l->base[r->carry_out[i]] = address(l, &r->carry[!current][i]);
    }
    for (int i = 0; i < r->xs; i++)
        l->base[r->x_in[i]] = (s ? s->row[i] : address(l, &r->x[i])) + row * row_bytes(&r->x[i]);
    for (int i = 0; i < r->ys; i++)
        if (r->y[i].storage >= 0)
            l->base[r->y_out[i]] = (s && s->row[r->xs + i] ? s->row[r->xs + i]
                                                           : address(l, &r->y[i])) +
                                   row * row_bytes(&r->y[i]);
    dra_cuda_walk_block(w, r->block);
}

static int64_t common(int64_t a, int64_t b) /* their greatest common divisor */
{
    return b ? common(b, a % b) : a;
}

void dra_cuda_run_piece(walk *w, const dra_cuda_stage *s)
{
    const dra_region *r = s->r;
    const int64_t     often = common(s->steps, r->border);
    copy_rows(w, s, true);
    for (int64_t j = 0; j < s->steps && w->status == DRA_OK; j++) {
        const int current = (int)((r->length + j) % 2);
        if (j % often == 0) keep_in_piece(w, s, j, current);
        run_step(w, r, s, r->reverse ? s->steps - 1 - j : j, current);
    }
    copy_rows(w, s, false);
    check(w, cudaPeekAtLastError());
}

/* ---- scans ----------------------------------------------------------------------------------- */

__global__ static void count_piece(int64_t *number) { ++*number; }

/* The same loop, kept by the host. */
static void walk_loop(walk *w, const dra_cuda_stage *s, int64_t pieces)
{
    dra_call        call = {};
    const dra_call *c = &call;
    int64_t        *number = number_of(s);
    call.context = &w->context;
    check(w, cudaMemsetAsync(number, 0, sizeof *number, w->context.stream));
    for (int64_t i = 0; i < pieces && w->status == DRA_OK; i++) {
        dra_cuda_run_piece(w, s);
        DRA_LAUNCH(c, count_piece, dra_grid(c, 1, 1), 1, 0, number);
    }
}

/* Profiles look at rows when the scan is over: those stay where they are. */
static dra_cuda_stage *stage_of(const walk *w, const dra_region *r)
{
    const bool pieces = w->captures || (w->device->scans.walked && !w->l->profile);
    return pieces ? find_stage(w->device, w->l, r) : nullptr;
}

void dra_cuda_run_scan(walk *w, const dra_region *r)
{
    dra_cuda_stage *s = stage_of(w, r);
    int64_t         step = 0;
    if (s) {
        const int64_t pieces = r->length / s->steps;
        place_rows(w, s);
        if (w->captures)
            check(w, dra_cuda_capture_loop(w, s, number_of(s), pieces));
        else
            walk_loop(w, s, pieces);
        step = pieces * s->steps;
    }
    for (; step < r->length && w->status == DRA_OK; step++) {
        const int current = (int)((r->length + step) % 2); /* the last value goes to buffer 0 */
        if (step % r->border == 0) keep_carries(w, r, step, current);
        run_step(w, r, nullptr, r->reverse ? r->length - 1 - step : step, current);
    }
}
