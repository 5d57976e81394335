/* Pools: states whose rows come and go, with pages of items that are counted and copied on write.
 *
 * All tensors of one limit have the same pages: page p is rows 64 p .. 64 p + 63 of each. A row has
 * a list of pages, and its base is the number of the first item of its first page, a multiple of
 * 64. Rows that were copied from each other share pages; the only page that both could write, that
 * of their last item, is copied by the row that writes first. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "sequence/states.h"

enum { PAGE = DRA_ITEMS_STEP, FIRST = 16 /* pages to begin with */ };

static dra_status out_of_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "pool: out of memory");
}

static bool has_pages(const dra_states *s, int i, const dra_pages *p)
{
    const dra_spec *spec = dra_specs_at(s->specs, i);
    return spec->items && spec->limit == p->limit;
}

/* One tensor with these pages; all of them have the same bases. */
static int one_of(const dra_states *s, const dra_pages *p)
{
    int i = 0;
    while (!has_pages(s, i, p)) i++;
    return i;
}

const dra_pages *dra_pool_pages(const dra_states *s, int64_t limit)
{
    int k = 0;
    while (s->pages[k].limit != limit) k++;
    return &s->pages[k];
}

static int64_t base_of(const dra_states *s, const dra_pages *p, int64_t row)
{
    return s->at[one_of(s, p)].base[row];
}

static void set_base(dra_states *s, const dra_pages *p, int64_t row, int64_t base)
{
    for (int i = 0; i < dra_specs_count(s->specs); i++)
        if (has_pages(s, i, p)) s->at[i].base[row] = base;
}

int64_t dra_pool_row(const dra_states *s, const dra_pages *p, int64_t row, int64_t item)
{
    const int64_t at = item - base_of(s, p, row);
    return (int64_t)p->of[row].at[at / PAGE] * PAGE + at % PAGE;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* The span of `count` pages of one tensor, from `first` on. */
static dra_span pages_of(const dra_held *h, dra_array *data, int64_t first, int64_t count)
{
    const size_t page = PAGE * h->bytes;
    return (dra_span){data, (size_t)first * page, (size_t)count * page};
}

/* Allocates `count` pages and copies the old ones. Pages are zeroed when they are taken (see
 * find_room() in states.c), the first one at once, since lists of pages point at it behind their
 * end. */
static dra_status enlarge_tensor(dra_states *s, int i, int64_t from, int64_t count, dra_error *err)
{
    dra_held  *h = &s->at[i];
    dra_shape  shape = DRA_SHAPE(count, PAGE, h->size);
    size_t     bytes;
    dra_status st = DRA_OK;
    if (count * PAGE > INT32_MAX || !dra_type_bytes(h->dtype, &shape, &bytes))
        return out_of_memory(err);
    st = dra_array_create(s->device, bytes, &h->next, err);
    if (st == DRA_OK && from == 0) st = dra_array_fill(pages_of(h, h->next, 0, 1), 0, err);
    if (st == DRA_OK && from > 0)
        st = dra_array_copy(pages_of(h, h->next, 0, from), pages_of(h, h->data, 0, from), err);
    return st;
}

/* Grows all tensors of a limit to `count` pages. After an error everything is as it was. */
static dra_status more_pages(dra_states *s, dra_pages *p, int64_t count, dra_error *err)
{
    const int64_t from = p->count;
    int32_t      *refs = realloc(p->refs, (size_t)count * sizeof *refs);
    if (refs) p->refs = refs;
    int32_t *free_ones = realloc(p->free, (size_t)count * sizeof *free_ones);
    if (free_ones) p->free = free_ones;
    dra_status st = refs && free_ones ? DRA_OK : out_of_memory(err);
    for (int i = 0; i < dra_specs_count(s->specs) && st == DRA_OK; i++)
        if (has_pages(s, i, p)) st = enlarge_tensor(s, i, from, count, err);
    for (int i = 0; i < dra_specs_count(s->specs); i++) {
        dra_held *h = &s->at[i];
        if (!h->next) continue;
        dra_array_destroy(st == DRA_OK ? h->data : h->next);
        if (st == DRA_OK) h->data = h->next, h->rows = count * PAGE;
        h->next = NULL;
    }
    if (st != DRA_OK) return st;
    for (int64_t i = count - 1; i >= from; i--) {
        p->refs[i] = 0;
        p->free[p->n_free++] = (int32_t)i;
    }
    p->count = count;
    return DRA_OK;
}

/* Zeroes a page that was never used; such pages are taken in their order. */
static dra_status clear_fresh(dra_states *s, dra_pages *p, int32_t page, dra_error *err)
{
    dra_status st = DRA_OK;
    if (page < p->fresh) return DRA_OK;
    for (int i = 0; i < dra_specs_count(s->specs) && st == DRA_OK; i++)
        if (has_pages(s, i, p))
            st = dra_array_fill(pages_of(&s->at[i], s->at[i].data, page, 1), 0, err);
    if (st == DRA_OK) p->fresh = page + 1;
    return st;
}

/* The number of pages after the next growth. */
static int64_t next_count(const dra_pages *p)
{
    const int64_t count = p->count > 0 ? 2 * p->count : FIRST;
    return p->count < p->most && p->most < count ? p->most : count;
}

static dra_status take_page(dra_states *s, dra_pages *p, int32_t *page, dra_error *err)
{
    dra_status st = p->n_free > 0 ? DRA_OK : more_pages(s, p, next_count(p), err);
    if (st == DRA_OK) st = clear_fresh(s, p, p->free[p->n_free - 1], err);
    if (st != DRA_OK) return st;
    *page = p->free[--p->n_free];
    p->refs[*page] = 1;
    return DRA_OK;
}

static void drop_page(dra_pages *p, int32_t page)
{
    if (--p->refs[page] == 0) p->free[p->n_free++] = page;
}

static bool list_room(dra_page_list *l, int64_t n)
{
    if (n <= l->room) return true;
    const int64_t room = dra_imax(8, 2 * n);
    int32_t      *at = realloc(l->at, (size_t)room * sizeof *at);
    if (!at) return false;
    l->at = at;
    l->room = room;
    return true;
}

/* Extends a row to n pages. */
static dra_status extend_row(dra_states *s, dra_pages *p, int64_t row, int64_t n, dra_error *err)
{
    dra_page_list *l = &p->of[row];
    dra_status     st = list_room(l, n) ? DRA_OK : out_of_memory(err);
    while (l->n < n && st == DRA_OK) {
        st = take_page(s, p, &l->at[l->n], err);
        l->n += st == DRA_OK;
    }
    return st;
}

/* Makes page number `at` of a row its own: copies it if another row has it, too. */
static dra_status own_page(dra_states *s, dra_pages *p, int64_t row, int64_t at, dra_error *err)
{
    dra_page_list *l = &p->of[row];
    int32_t        page;
    if (at >= l->n || p->refs[l->at[at]] == 1) return DRA_OK;
    dra_status st = take_page(s, p, &page, err);
    if (st != DRA_OK) return st;
    for (int i = 0; i < dra_specs_count(s->specs) && st == DRA_OK; i++) {
        const dra_held *h = &s->at[i];
        if (has_pages(s, i, p))
            st = dra_array_copy(pages_of(h, h->data, page, 1), pages_of(h, h->data, l->at[at], 1),
                                err);
    }
    drop_page(p, st == DRA_OK ? l->at[at] : page);
    if (st == DRA_OK) l->at[at] = page;
    return st;
}

/* Releases pages without live items. */
static void move_up(dra_states *s, dra_pages *p, int64_t row)
{
    dra_page_list *l = &p->of[row];
    const int64_t  base = dra_states_lowest_base(s, one_of(s, p), row);
    const int64_t  n = dra_imin(l->n, (base - base_of(s, p, row)) / PAGE);
    for (int64_t i = 0; i < n; i++) drop_page(p, l->at[i]);
    if (n > 0) memmove(l->at, l->at + n, (size_t)(l->n - n) * sizeof *l->at);
    l->n -= n;
    set_base(s, p, row, base);
}

dra_status dra_pool_room(dra_states *s, int64_t pages, int64_t each, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int k = 0; k < s->n_pages && st == DRA_OK; k++) {
        dra_pages    *p = &s->pages[k];
        const int64_t most = p->limit ? p->limit / PAGE + 2 : each; /* of a row */
        const int64_t count = most < each ? dra_div_up(pages, each) * most : pages;
        if (count > p->count) st = more_pages(s, p, count, err);
    }
    return st;
}

void dra_pool_most(dra_states *s, int64_t limit, int64_t pages)
{
    for (int k = 0; k < s->n_pages; k++)
        if (s->pages[k].limit == limit) s->pages[k].most = pages;
}

int64_t dra_pool_size(const dra_states *s)
{
    int64_t size = s->B;
    for (int k = 0; k < s->n_pages; k++) size += s->pages[k].count;
    return size;
}

bool dra_pool_shares_last(const dra_states *s, int64_t limit, int64_t row)
{
    const dra_pages *p = dra_pool_pages(s, limit);
    const int64_t    n = s->end[row] - base_of(s, p, row);
    return n % PAGE != 0 && n / PAGE < p->of[row].n && p->refs[p->of[row].at[n / PAGE]] > 1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

void dra_pool_release(dra_states *s, int64_t row)
{
    for (int k = 0; k < s->n_pages; k++) {
        dra_pages     *p = &s->pages[k];
        dra_page_list *l = &p->of[row];
        for (int64_t i = 0; i < l->n; i++) drop_page(p, l->at[i]);
        l->n = 0;
    }
}

bool dra_pool_can_cut(const dra_specs *specs)
{
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        if (!p->items || p->limit || p->context) return false;
    }
    return true;
}

void dra_pool_cut(dra_states *s, int64_t row, int64_t tokens)
{
    const int64_t less = s->tokens[row] - tokens;
    if (less <= 0) return;
    s->tokens[row] = tokens;
    s->end[row] -= less;
    for (int k = 0; k < s->n_pages; k++) {
        dra_pages     *p = &s->pages[k];
        dra_page_list *l = &p->of[row];
        const int64_t  n = dra_div_up(s->end[row] - base_of(s, p, row), PAGE);
        while (l->n > n) drop_page(p, l->at[--l->n]);
    }
}

static size_t page_bytes(const dra_states *s, const dra_pages *p)
{
    size_t bytes = 0;
    for (int i = 0; i < dra_specs_count(s->specs); i++)
        if (has_pages(s, i, p)) bytes += PAGE * s->at[i].bytes;
    return bytes;
}

dra_status dra_pool_extend(dra_states *s, int64_t row, size_t *bytes, dra_error *err)
{
    *bytes = 0;
    for (int k = 0; k < s->n_pages; k++) {
        dra_pages    *p = &s->pages[k];
        const int64_t n = dra_div_up(s->end[row] - base_of(s, p, row), PAGE);
        if (p->of[row].n >= n) continue;
        *bytes = page_bytes(s, p);
        return extend_row(s, p, row, p->of[row].n + 1, err);
    }
    return DRA_OK;
}

dra_status dra_pool_share(dra_states *s, int64_t to, int64_t from, dra_error *err)
{
    dra_status st = dra_states_reset(s, to, err);
    for (int k = 0; k < s->n_pages && st == DRA_OK; k++)
        if (!list_room(&s->pages[k].of[to], s->pages[k].of[from].n)) st = out_of_memory(err);
    if (st != DRA_OK) return st;
    s->tokens[to] = s->tokens[from];
    s->begin[to] = s->begin[from];
    s->end[to] = s->end[from];
    s->context[to] = s->context[from];
    for (int k = 0; k < s->n_pages; k++) {
        dra_pages     *p = &s->pages[k];
        const int64_t  base = base_of(s, p, from);
        dra_page_list *l = &p->of[to];
        set_base(s, p, to, base);
        l->n = dra_div_up(s->end[from] - base, PAGE);
        for (int64_t i = 0; i < l->n; i++) p->refs[l->at[i] = p->of[from].at[i]]++;
    }
    return DRA_OK;
}

dra_status dra_pool_reserve(dra_states *s, int64_t row, int64_t T, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int k = 0; k < s->n_pages && st == DRA_OK; k++) {
        dra_pages *p = &s->pages[k];
        move_up(s, p, row);
        const int64_t n = s->end[row] - base_of(s, p, row);
        if (n % PAGE != 0) st = own_page(s, p, row, n / PAGE, err);
        if (st == DRA_OK) st = extend_row(s, p, row, dra_div_up(n + T, PAGE), err);
    }
    return st;
}

/* ---- pools ----------------------------------------------------------------------------------- */

dra_status dra_states_create_pool(dra_device *device, const dra_specs *specs, int64_t B,
                                  dra_states **out, dra_error *err)
{
    int64_t    limit[DRA_TOKEN_KINDS];
    dra_status st = dra_states_create(device, specs, B, out, err);
    if (st != DRA_OK) return st;
    dra_states *s = *out;
    const int   n = dra_token_limits(specs, limit);
    if (st == DRA_OK && n < 0)
        st = dra_fail(err, DRA_ERR_VALUE, "pool: items with more than %d different limits",
                      DRA_TOKEN_KINDS);
    s->pool = true;
    for (int k = 0; k < n && st == DRA_OK; k++) {
        s->pages[k] = (dra_pages){.limit = limit[k],
                                  .of = calloc((size_t)B + 1, sizeof *s->pages->of)};
        s->n_pages = k + 1;
        if (!s->pages[k].of) st = out_of_memory(err);
    }
    if (st == DRA_OK) return DRA_OK;
    dra_states_destroy(s);
    *out = NULL;
    return st;
}

void dra_pool_free(dra_states *s)
{
    for (int k = 0; k < s->n_pages; k++) {
        dra_pages *p = &s->pages[k];
        for (int64_t b = 0; p->of && b < s->B; b++) free(p->of[b].at);
        free(p->of);
        free(p->refs);
        free(p->free);
    }
}

/* Grows a list of numbers to `B` rows; new ones are 0. */
static bool grow_list(void **list, size_t each, int64_t from, int64_t B)
{
    unsigned char *grown = realloc(*list, ((size_t)B + 1) * each);
    if (!grown) return false;
    memset(grown + (size_t)from * each, 0, ((size_t)(B - from) + 1) * each);
    *list = grown;
    return true;
}

static bool grow_numbers(dra_states *s, int64_t B)
{
    bool ok = grow_list((void **)&s->tokens, sizeof *s->tokens, s->B, B) &&
              grow_list((void **)&s->begin, sizeof *s->begin, s->B, B) &&
              grow_list((void **)&s->end, sizeof *s->end, s->B, B) &&
              grow_list((void **)&s->context, sizeof *s->context, s->B, B);
    for (int k = 0; k < s->n_pages && ok; k++)
        ok = grow_list((void **)&s->pages[k].of, sizeof *s->pages[k].of, s->B, B);
    for (int i = 0; i < dra_specs_count(s->specs) && ok; i++)
        ok = grow_list((void **)&s->at[i].base, sizeof *s->at[i].base, s->B, B);
    return ok;
}

/* The tensors without items. */
static dra_status grow_tensors(dra_states *s, int64_t B, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < dra_specs_count(s->specs) && st == DRA_OK; i++) {
        dra_held    *h = &s->at[i];
        const bool   context = dra_specs_at(s->specs, i)->context;
        const size_t items = context ? (size_t)h->rows : 1;
        const size_t row = items * h->bytes, old = (size_t)s->B * row;
        if (dra_specs_at(s->specs, i)->items || row == 0) continue;
        st = dra_array_create(s->device, (size_t)B * row, &h->next, err);
        if (st == DRA_OK)
            st = dra_array_fill((dra_span){h->next, old, (size_t)(B - s->B) * row},
                                (dra_real)dra_specs_at(s->specs, i)->number, err);
        if (st == DRA_OK && old > 0)
            st = dra_array_copy((dra_span){h->next, 0, old}, (dra_span){h->data, 0, old}, err);
    }
    for (int i = 0; i < dra_specs_count(s->specs); i++) {
        dra_held *h = &s->at[i];
        if (!h->next) continue;
        dra_array_destroy(st == DRA_OK ? h->data : h->next);
        if (st == DRA_OK) h->data = h->next;
        h->next = NULL;
    }
    return st;
}

dra_status dra_states_grow(dra_states *s, int64_t B, dra_error *err)
{
    if (!s->pool || B < s->B)
        return dra_fail(err, DRA_ERR_VALUE, "pool: %lld rows, expected a pool and at least %lld",
                        (long long)B, (long long)s->B);
    dra_status st = grow_numbers(s, B) ? DRA_OK : out_of_memory(err);
    if (st == DRA_OK) st = grow_tensors(s, B, err);
    if (st != DRA_OK) return st;
    for (int64_t b = s->B; b < B; b++) s->context[b] = -1;
    s->B = B;
    return DRA_OK;
}

/* ---- views ----------------------------------------------------------------------------------- */

static dra_status make_view(const dra_states *s, int64_t n, dra_states **out, dra_error *err)
{
    const int    count = dra_specs_count(s->specs);
    const size_t numbers = (size_t)(n * (4 + count)) + 1;
    dra_states  *v = calloc(1, sizeof *v);
    dra_held    *at = calloc((size_t)count + 1, sizeof *at);
    int64_t     *room = calloc(numbers, sizeof *room);
    *out = NULL;
    if (!v || !at || !room) {
        free(v);
        free(at);
        free(room);
        return out_of_memory(err);
    }
    *v = (dra_states){.device = s->device,
                      .specs = s->specs,
                      .B = n,
                      .at = at,
                      .tokens = room,
                      .begin = room + n,
                      .end = room + 2 * n,
                      .context = room + 3 * n};
    for (int i = 0; i < count; i++) at[i].base = room + (4 + i) * n;
    *out = v;
    return DRA_OK;
}

dra_status dra_pool_view(const dra_states *s, int64_t n, const int64_t *rows, dra_states **view,
                         dra_error *err)
{
    dra_states *v = *view;
    if (!v || v->B != n || v->specs != s->specs) {
        dra_pool_view_free(v);
        const dra_status st = make_view(s, n, view, err);
        if (st != DRA_OK) return st;
        v = *view;
    }
    for (int64_t b = 0; b < n; b++) {
        v->tokens[b] = 1; /* padding: has read its start vectors and a source without items */
        v->begin[b] = v->end[b] = v->context[b] = 0;
        for (int i = 0; i < dra_specs_count(s->specs); i++) v->at[i].base[b] = 0;
    }
    dra_pool_look(s, n, rows, v);
    return DRA_OK;
}

void dra_pool_look(const dra_states *s, int64_t n, const int64_t *rows, dra_states *view)
{
    for (int64_t b = 0; b < n; b++) {
        if (rows[b] < 0) continue;
        view->tokens[b] = s->tokens[rows[b]];
        view->begin[b] = s->begin[rows[b]];
        view->end[b] = s->end[rows[b]];
        view->context[b] = s->context[rows[b]];
        for (int i = 0; i < dra_specs_count(s->specs); i++)
            view->at[i].base[b] = s->at[i].base[rows[b]];
    }
}

void dra_pool_advance(dra_states *s, int64_t n, const int64_t *rows, const dra_states *view)
{
    for (int64_t b = 0; b < n; b++) {
        if (rows[b] < 0) continue;
        s->tokens[rows[b]] = view->tokens[b];
        s->begin[rows[b]] = view->begin[b];
        s->end[rows[b]] = view->end[b];
        s->context[rows[b]] = view->context[b];
    }
}

void dra_pool_view_free(dra_states *view)
{
    if (!view) return;
    free(view->at);
    free(view->tokens);
    free(view);
}
