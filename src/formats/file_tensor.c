/* Rules backwards: which tensors a file gets, and what is in them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "file/seal.h"
#include "formats/format.h"
#include "sequence/module.h"

/* The parameter in part k of a tensor: its rule is k rows after that of the first. */
static int part_of(const dra_specs *params, const dra_name_rule *first, int64_t l, int k)
{
    char name[DRA_TENSOR_NAME];
    dra_pattern_fill("", first[k].ours, l, name);
    return dra_specs_find(params, name);
}

/* As the file has it, which may name a tensor in several ways and give it other axes. */
static void take_after(const dra_name_rules *rules, const dra_tensor_source *like,
                       const dra_spec *p, dra_file_tensor *t)
{
    const dra_name_rule           *r;
    const dra_tensor_source_entry *e = like ? dra_format_find(rules, like, p, &r) : NULL;
    if (!e || e->joined) return;
    snprintf(t->name, sizeof t->name, "%s", e->info->name);
    if (dra_shape_count(&e->info->shape) == dra_shape_count(&t->shape)) t->shape = e->info->shape;
}

/* A tensor for each of n experts instead of one for all: "#" in its name is the number. */
static int split_experts(dra_file_tensor *t, int64_t n)
{
    const dra_file_tensor all = *t;
    const char           *mark = strchr(all.name, '#');
    for (int64_t i = 0; i < n; i++) {
        t[i] = all;
        snprintf(t[i].name, sizeof t->name, "%.*s%lld%s", (int)(mark - all.name), all.name,
                 (long long)i, mark + 1);
        t[i].shape.dim[0] /= n;
        t[i].first = i * dra_shape_count(&t[i].shape);
    }
    return (int)n;
}

/* How many tensors a parameter may become. */
static size_t most_tensors(const dra_specs *params)
{
    size_t n = 0;
    for (int i = 0; i < dra_specs_count(params); i++)
        n += 2 + (size_t)dra_specs_at(params, i)->experts;
    return n;
}

int dra_file_tensor_list(const dra_name_rules *rules, const dra_specs *params,
                         const dra_tensor_source *like, dra_file_tensor **out)
{
    const int        P = dra_specs_count(params);
    dra_file_tensor *list = *out = calloc(most_tensors(params) + 1, sizeof *list);
    int              n = 0;
    for (int i = 0; list && i < P; i++) {
        const dra_spec      *p = dra_specs_at(params, i);
        int64_t              l = 0;
        const dra_name_rule *r = dra_name_rules_find(rules, p->name, &l);
        if (r && r->part) continue; /* is in the tensor of the first */
        dra_file_tensor *t = &list[n++];
        t->rule = r;
        t->shape = dra_name_rule_shape(r, &p->shape);
        t->param[0] = i;
        for (int k = 1; r && k < r->parts && k < DRA_PARTS_MOST; k++)
            t->param[k] = part_of(params, r, l, k);
        if (r)
            dra_name_rule_name(rules, r, l, t->name);
        else
            snprintf(t->name, sizeof t->name, "%s", p->name);
        take_after(rules, like, p, t);
        if (p->experts && strchr(t->name, '#')) n += split_experts(t, p->experts) - 1;
        const char *copy = !r ? NULL : r->also ? r->also : l == 0 ? r->unread : NULL;
        if (!copy || (like && !dra_format_look(rules, like, copy, l))) continue;
        list[n] = *t;
        dra_pattern_fill(rules->prefix, copy, l, list[n++].name);
    }
    return list ? n : -1;
}

const dra_real *dra_file_tensor_fill(const dra_file_tensor *t, const dra_specs *params,
                                     dra_get_param get, void *user, dra_real *room, dra_error *err)
{
    const dra_name_rule *r = t->rule;
    if (!r || (!r->transposed && !r->parts && !r->as && !r->halved_every && !r->order)) {
        const dra_real *all = get(user, t->param[0], err);
        return all ? all + t->first : NULL;
    }
    for (int k = 0; k == 0 || k < r->parts; k++) {
        const dra_real *from = get(user, t->param[k], err);
        if (!from) return NULL;
        dra_name_rule_write(r + k, dra_specs_at(params, t->param[k]), from, room);
    }
    return room;
}

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct making { /* a tensor that is made when its turn comes */
    const dra_weights_writer *s;
    const dra_file_tensor    *t;
    dra_real                **room; /* shared by all, allocated again for each */
} making;

static const void *make_tensor(void *user, dra_error *err)
{
    const making *m = user;
    free(*m->room);
    *m->room = malloc((size_t)dra_shape_count(&m->t->shape) * sizeof(dra_real) + 1);
    if (*m->room)
        return dra_file_tensor_fill(m->t, m->s->params, m->s->get, m->s->user, *m->room, err);
    dra_fail(err, DRA_ERR_MEMORY, "%s: out of memory", m->t->name);
    return NULL;
}

/* All its parameters are stored together in the layout of the file: data and dtype of the item. */
static bool is_ready(const dra_weights_writer *s, const dra_file_tensor *t, dra_tensor_item *item)
{
    const int parts = t->rule && t->rule->parts ? t->rule->parts : 1;
    for (int k = 0; k < parts; k++) {
        dra_param_layout is;
        const void      *data = s->stored ? s->stored(s->user, t->param[k], &is) : NULL;
        if (!data) return false;
        if (k == 0) {
            item->data = data;
            item->dtype = is.dtype;
            if (t->first) /* of an expert: whole rows */
                item->data = (const unsigned char *)data + dra_elements_bytes(is.dtype, t->first);
        }
        if (!dra_name_rule_in_place(t->rule ? t->rule + k : NULL)) return false;
        const dra_param_layout should = dra_name_rule_layout(
            t->rule ? t->rule + k : NULL, &(dra_tensor_info){.dtype = item->dtype});
        if ((k && data != item->data) || !dra_param_layout_equal(&is, &should)) return false;
    }
    return true;
}

static dra_tensor_item item_of(making *m)
{
    const dra_file_tensor *t = m->t;
    dra_tensor_item        item = {t->name, DRA_REAL, t->shape};
    if (!is_ready(m->s, t, &item))
        item = (dra_tensor_item){t->name, DRA_REAL, t->shape, .make = make_tensor, .user = m};
    return item;
}

dra_tensor_item dra_constant_item(const dra_constant *c)
{
    return (dra_tensor_item){c->name, DRA_REAL, DRA_SHAPE(c->n), c->data};
}

/* Files of other programs' formats have the bytes that those give them; ours are sealed. */
dra_status dra_weights_write_items(const dra_format *format, const char *path,
                                   const dra_tensor_item *items, size_t n, dra_error *err)
{
    const dra_metadata_item theirs = {"format", "pt"}, ours = {"format", "dra"};
    return format->read ? dra_tensors_write(path, items, n, &theirs, 1, err)
                        : dra_tensors_write_sealed(path, items, n, &ours, 1, err);
}

dra_status dra_weights_write(const dra_weights_writer *s, const char *path, dra_error *err)
{
    dra_file_tensor *list;
    const int        n = dra_file_tensor_list(s->rules, s->params, s->like, &list);
    const size_t     made = (size_t)(n > 0 ? n : 0), C = (size_t)s->rules->constants;
    const size_t     all = made + C + s->n_extra;
    dra_tensor_item *items = calloc(all + 1, sizeof *items);
    making          *m = calloc(all + 1, sizeof *m);
    dra_real        *room = NULL;
    dra_status       st = DRA_OK;
    if (n < 0 || !items || !m) {
        st = dra_fail(err, DRA_ERR_MEMORY, "weights: out of memory");
        goto done;
    }
    for (int i = 0; i < n; i++) {
        m[i] = (making){s, &list[i], &room};
        items[i] = item_of(&m[i]);
    }
    for (size_t i = 0; i < C; i++) items[made + i] = dra_constant_item(&s->rules->constant[i]);
    for (size_t i = 0; i < s->n_extra; i++) items[made + C + i] = s->extra[i];
    st = dra_weights_write_items(s->rules->format, path, items, all, err);
done:
    free(list);
    free(items);
    free(m);
    free(room);
    return st;
}
