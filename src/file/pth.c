/* Checkpoints of PyTorch. Both forms hold a pickle of {name: tensor}, where a tensor is
 *   _rebuild_tensor_v2(storage, offset, sizes, strides, ...), perhaps inside _rebuild_parameter
 * and a storage is named ("storage", class, key, device, elements).
 *   trainer   or it is one of {"model": {name: tensor}, "model_args": {name: number}, ...}, as
 *             nanoGPT's; the rest, such as the state of its optimizer, is passed over
 *   archive   ROOT/data.pkl, ROOT/data/KEY for each storage, perhaps ROOT/byteorder
 *   older     pickles: a magic number, a version, facts about the machine, the dict, a list of
 *             keys; then for each key the number of elements, 8 bytes, and the elements */
#include "file/pth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "file/format.h"
#include "file/json_make.h"
#include "file/pickle.h"
#include "file/zip.h"

enum { NAME_MOST = 256, PICKLE_MOST = 1 << 26, OLD_VERSION = 1001 };

static const char *const globals[] = {"torch.FloatStorage",
                                      "torch.HalfStorage",
                                      "torch.BFloat16Storage",
                                      "torch.DoubleStorage",
                                      "torch.LongStorage",
                                      "torch.IntStorage",
                                      "torch.ShortStorage",
                                      "torch.CharStorage",
                                      "torch.ByteStorage",
                                      "torch.BoolStorage",
                                      "torch._utils._rebuild_tensor_v2",
                                      "torch._utils._rebuild_parameter",
                                      "collections.OrderedDict",
                                      NULL};

/* Of the storages above, in their order. */
static const char *const dtypes[] = {"F32", "F16", "BF16", "F64", "I64",
                                     "I32", "I16", "I8",   "U8",  "BOOL"};

static const unsigned char old_magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                          0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

typedef struct view { /* what the pickle says of a tensor */
    const char           *name, *key;
    const dra_file_dtype *type;
    size_t                held; /* elements of its storage */
    int64_t               offset;
    dra_shape             shape;
    int64_t               stride[DRA_MAX_RANK];
} view;

typedef struct reader {
    const char          *path;
    const unsigned char *file;
    size_t               bytes;
    dra_header          *out;
    dra_error           *err;
    dra_arena            scratch;
    char                 prefix[NAME_MOST + 8]; /* of storages' names */
    dra_zip              storages;
    bool                 old;           /* of the older form */
    size_t               count, copied; /* copied: bytes of tensors that are not dense */
    view                *views;
} reader;

bool dra_pth_is(const unsigned char *file, size_t bytes)
{
    return dra_zip_is(file, bytes) ||
           (bytes >= sizeof old_magic && memcmp(file, old_magic, sizeof old_magic) == 0);
}

static dra_status no_memory(const reader *r)
{
    return dra_fail_at(r->err, DRA_ERR_MEMORY, r->path, "out of memory for its tensors");
}

static dra_status refuse_tensor(const reader *r, const char *name, const char *what)
{
    char room[DRA_BRIEF];
    return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "tensor '%s': %s", dra_brief(name, room),
                       what);
}

static dra_status read_pickle(reader *r, size_t from, size_t to, const dra_pickled **out,
                              size_t *end)
{
    const dra_pickle p = {r->path, r->file, from, to, globals, &r->scratch};
    return dra_pickle_read(&p, out, end, r->err);
}

/* ---- what the pickle says -------------------------------------------------------------------- */

/* Ended by a 0, in an arena; NULL: no memory. One with a 0 inside becomes shorter, and so does a
 * long one: a pickle can ask for the same text many times. */
static char *copy_text(dra_arena *a, const dra_pickled *text)
{
    const size_t n = text->count < NAME_MOST ? text->count : NAME_MOST;
    char        *copy = dra_arena_alloc(a, n + 1);
    if (copy) memcpy(copy, text->text, n);
    return copy;
}

static bool is_natural(const dra_pickled *v) { return v->kind == DRA_PICKLE_INT && v->number >= 0; }

static dra_status read_storage(reader *r, const dra_pickled *s, view *v)
{
    size_t i = 0;
    if (s->kind != DRA_PICKLE_STORED || s->count < 5 || !dra_pickle_says(s->item[0], "storage") ||
        s->item[1]->kind != DRA_PICKLE_GLOBAL || s->item[2]->kind != DRA_PICKLE_TEXT ||
        !is_natural(s->item[4]) || (s->count > 5 && s->item[5]->kind != DRA_PICKLE_NONE))
        return refuse_tensor(r, v->name, "its storage is none of torch.save's");
    while (i < sizeof dtypes / sizeof *dtypes && globals[i] != s->item[1]->text) i++;
    if (i == sizeof dtypes / sizeof *dtypes)
        return refuse_tensor(r, v->name, "its storage has no dtype");
    v->type = dra_file_dtype_find(dtypes[i]);
    v->held = (size_t)s->item[4]->number;
    v->key = copy_text(&r->scratch, s->item[2]);
    return v->key ? DRA_OK : no_memory(r);
}

static dra_status read_sizes(const reader *r, const dra_pickled *sizes, const dra_pickled *strides,
                             view *v)
{
    if (sizes->kind != DRA_PICKLE_TUPLE || strides->kind != DRA_PICKLE_TUPLE ||
        sizes->count != strides->count || sizes->count > DRA_MAX_RANK)
        return refuse_tensor(r, v->name, "expected sizes and strides of at most 6 axes");
    v->shape.rank = (int32_t)sizes->count;
    for (size_t i = 0; i < sizes->count; i++) {
        if (!is_natural(sizes->item[i]) || !is_natural(strides->item[i]))
            return refuse_tensor(r, v->name, "a size or stride is not a natural number");
        v->shape.dim[i] = sizes->item[i]->number;
        v->stride[i] = strides->item[i]->number;
    }
    return DRA_OK;
}

/* The name that a tensor had before torch.compile() put its own in front of it. */
static char *skip_compiled(char *name)
{
    static const char prefix[] = "_orig_mod.";
    const size_t      n = sizeof prefix - 1;
    return strncmp(name, prefix, n) == 0 && name[n] ? name + n : name;
}

static dra_status read_view(reader *r, const dra_pickled *name, const dra_pickled *t, view *v)
{
    char what[96];
    if (name->kind != DRA_PICKLE_TEXT)
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "%s names a tensor, expected a text",
                           dra_pickle_name(name->kind));
    char *text = copy_text(&r->out->arena, name);
    if (!text) return no_memory(r);
    if (!dra_name_fits(text, name->count))
        return refuse_tensor(
            r, text, "its name is not UTF-8 of at most 256 bytes, without control characters");
    v->name = text = skip_compiled(text);
    if (t->kind == DRA_PICKLE_CALL && strcmp(t->text, "torch._utils._rebuild_parameter") == 0 &&
        t->count)
        t = t->item[0];
    if (t->kind != DRA_PICKLE_CALL || strcmp(t->text, "torch._utils._rebuild_tensor_v2") != 0 ||
        t->count < 4) {
        snprintf(what, sizeof what, "is %s, expected a tensor%s", dra_pickle_name(t->kind),
                 t->kind == DRA_PICKLE_DICT ? " (save the dict of tensors alone)" : "");
        return refuse_tensor(r, text, what);
    }
    if (!is_natural(t->item[1]))
        return refuse_tensor(r, text, "its offset is not a natural number");
    v->offset = t->item[1]->number;
    const dra_status st = read_storage(r, t->item[0], v);
    return st == DRA_OK ? read_sizes(r, t->item[2], t->item[3], v) : st;
}

static dra_status read_views(reader *r, const dra_pickled *root)
{
    dra_status st = DRA_OK;
    if (root->kind != DRA_PICKLE_DICT)
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "holds %s, expected a dict of tensors",
                           dra_pickle_name(root->kind));
    r->views = dra_arena_alloc(&r->scratch, root->count / 2 * sizeof *r->views);
    if (!r->views) return no_memory(r);
    for (; r->count < root->count / 2 && st == DRA_OK; r->count++)
        st = read_view(r, root->item[2 * r->count], root->item[2 * r->count + 1],
                       &r->views[r->count]);
    return st;
}

/* What is no number is named: "a list". */
static json_t *value_of(dra_json *j, const dra_pickled *v)
{
    switch (v->kind) {
    case DRA_PICKLE_NONE: return json_null();
    case DRA_PICKLE_BOOL: return dra_json_bool(v->number);
    case DRA_PICKLE_INT: return dra_json_int(j, v->number);
    case DRA_PICKLE_REAL: return dra_json_real(j, v->real);
    default: return dra_json_text(j, dra_pickle_name(v->kind));
    }
}

static dra_status put_arg(const reader *r, const dra_pickled *key, const dra_pickled *v,
                          dra_json *j, json_t *object)
{
    char name[NAME_MOST + 1] = "";
    if (key->kind == DRA_PICKLE_TEXT && key->count <= NAME_MOST)
        memcpy(name, key->text, key->count);
    if (!*name || !dra_name_fits(name, key->count))
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, DRA_PTH_ARGS ": a key is not a name");
    dra_json_set(j, object, name, value_of(j, v));
    return DRA_OK;
}

/* As a JSON object; *text is to be freed. */
static dra_status dump_args(const reader *r, const dra_pickled *args, char **text)
{
    dra_json   j = {0};
    json_t    *object = dra_json_object(&j);
    dra_status st = dra_json_check(&j, r->path, r->err);
    for (size_t i = 0; i < args->count && st == DRA_OK; i += 2)
        st = put_arg(r, args->item[i], args->item[i + 1], &j, object);
    if (st == DRA_OK) st = dra_json_dump(&j, object, JSON_COMPACT, r->path, text, NULL, r->err);
    json_decref(object);
    return st;
}

static dra_status read_args(reader *r, const dra_pickled *args)
{
    dra_header        *h = r->out;
    char              *text = NULL;
    const dra_status   st = dump_args(r, args, &text);
    dra_metadata_item *item = st == DRA_OK ? dra_arena_alloc(&h->arena, sizeof *item) : NULL;
    if (item) *item = (dra_metadata_item){DRA_PTH_ARGS, dra_arena_text(&h->arena, text)};
    free(text);
    if (st != DRA_OK) return st;
    if (!item || !item->value) return no_memory(r);
    h->metadata = item;
    h->n_metadata = 1;
    return DRA_OK;
}

/* A state dict, alone or in the checkpoint of a trainer. */
static dra_status read_root(reader *r, const dra_pickled *root)
{
    const dra_pickled *model = dra_pickle_find(root, "model");
    const dra_pickled *args = dra_pickle_find(root, DRA_PTH_ARGS);
    if (!model || model->kind != DRA_PICKLE_DICT || !args || args->kind != DRA_PICKLE_DICT)
        return read_views(r, root);
    const dra_status st = read_args(r, args);
    return st == DRA_OK ? read_views(r, model) : st;
}

/* ---- where it is stored ---------------------------------------------------------------------- */

/* One more than the last element that is touched; false when that overflows. */
static bool find_end(const view *v, size_t *end)
{
    *end = (size_t)v->offset + 1;
    for (int32_t i = 0; i < v->shape.rank; i++) {
        size_t span;
        if (!dra_mul_size((size_t)v->shape.dim[i] - 1, (size_t)v->stride[i], &span) ||
            *end > SIZE_MAX - span)
            return false;
        *end += span;
    }
    return true;
}

static bool is_dense(const view *v)
{
    int64_t step = 1;
    for (int32_t i = v->shape.rank; i-- > 0; step *= v->shape.dim[i])
        if (v->shape.dim[i] != 1 && v->stride[i] != step) return false;
    return true;
}

/* Element by element, the last axis fastest. The stride of an axis of size 1 may be anything: it is
 * added and taken off again, as unsigned numbers can. */
static void gather_view(const view *v, size_t count, size_t width, const unsigned char *from,
                        unsigned char *to)
{
    size_t at[DRA_MAX_RANK] = {0}, place = 0;
    for (size_t n = 0; n < count; n++, to += width) {
        memcpy(to, from + place * width, width);
        for (int32_t i = v->shape.rank; i-- > 0;) {
            place += (size_t)v->stride[i];
            if (++at[i] < (size_t)v->shape.dim[i]) break;
            place -= at[i] * (size_t)v->stride[i];
            at[i] = 0;
        }
    }
}

/* What is not dense is copied, but no more than the file has: a few bytes that are repeated by
 * strides of 0 must not fill the memory. */
static dra_status copy_dense(reader *r, const view *v, const unsigned char *from,
                             dra_tensor_info *t)
{
    const size_t width = v->type->bits / 8;
    if (t->bytes > r->bytes - r->copied)
        return refuse_tensor(r, v->name, "is a view of more than is stored; save a copy of it");
    r->copied += t->bytes;
    unsigned char *to = dra_arena_alloc(&r->out->arena, t->bytes);
    if (!to) return no_memory(r);
    gather_view(v, t->bytes / width, width, from, to);
    t->data = to;
    return DRA_OK;
}

static dra_status place_tensor(reader *r, const view *v, dra_tensor_info *t)
{
    char         name[2 * NAME_MOST + 16];
    const size_t width = v->type->bits / 8;
    size_t       bits, end;
    *t = (dra_tensor_info){.name = v->name,
                           .dtype_name = v->type->name,
                           .dtype = v->type->dtype,
                           .shape = v->shape,
                           .data = r->file};
    if (!dra_bits_of(&v->shape, v->type->bits, &bits))
        return refuse_tensor(r, v->name, "is too large");
    t->bytes = bits / 8;
    if (!t->bytes) return DRA_OK;
    snprintf(name, sizeof name, "%s%s", r->prefix, v->key);
    const dra_zip_entry *s = dra_zip_find(&r->storages, name);
    if (!s || !s->data) return refuse_tensor(r, v->name, "its storage is missing");
    if (v->held > s->bytes / width) return refuse_tensor(r, v->name, "its storage is cut short");
    if (r->old && memcmp(s->data - 8, &(uint64_t){v->held}, 8) != 0)
        return refuse_tensor(r, v->name, "its storage has another size");
    if (!find_end(v, &end) || end > v->held)
        return refuse_tensor(r, v->name, "reaches beyond its storage");
    t->data = s->data + (size_t)v->offset * width;
    return is_dense(v) ? DRA_OK : copy_dense(r, v, t->data, t);
}

static dra_status place_all(reader *r)
{
    dra_header *h = r->out;
    dra_status  st = DRA_OK;
    h->tensor = dra_arena_alloc(&h->arena, r->count * sizeof *h->tensor);
    h->by_name = dra_arena_alloc(&h->arena, r->count * sizeof *h->by_name);
    if (!h->tensor || !h->by_name) return no_memory(r);
    for (; h->count < r->count && st == DRA_OK; h->count++)
        st = place_tensor(r, &r->views[h->count], &h->tensor[h->count]);
    if (st != DRA_OK) return st;
    dra_header_sort(h);
    for (size_t i = 1; i < h->count; i++)
        if (strcmp(h->by_name[i - 1]->name, h->by_name[i]->name) == 0)
            return refuse_tensor(r, h->by_name[i]->name, "is there twice");
    return DRA_OK;
}

/* ---- archives -------------------------------------------------------------------------------- */

static const dra_zip_entry *find_pickle(const dra_zip *z)
{
    static const char end[] = "/data.pkl";
    for (size_t i = 0; i < z->count; i++) {
        const size_t n = strlen(z->entry[i].name);
        if (n >= sizeof end && strcmp(z->entry[i].name + n - sizeof end + 1, end) == 0)
            return &z->entry[i];
    }
    return NULL;
}

static dra_status read_archive(reader *r)
{
    const dra_pickled *root = NULL;
    char               name[NAME_MOST + 16];
    size_t             end;
    dra_status st = dra_zip_read(r->path, r->file, r->bytes, &r->scratch, &r->storages, r->err);
    if (st != DRA_OK) return st;
    const dra_zip_entry *pickle = find_pickle(&r->storages);
    if (!pickle || pickle->bytes > PICKLE_MOST || strlen(pickle->name) > NAME_MOST)
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "%s",
                           pickle ? "data.pkl has more than 64 MiB, or its name is too long"
                                  : "a ZIP archive without data.pkl: not of PyTorch?");
    const int folder = (int)(strlen(pickle->name) - strlen("data.pkl"));
    snprintf(name, sizeof name, "%.*sbyteorder", folder, pickle->name);
    snprintf(r->prefix, sizeof r->prefix, "%.*sdata/", folder, pickle->name);
    const dra_zip_entry *order = dra_zip_find(&r->storages, name);
    if (order && (order->bytes != 6 || memcmp(order->data, "little", 6) != 0))
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "byteorder is not 'little'");
    const size_t from = (size_t)(pickle->data - r->file);
    st = read_pickle(r, from, from + pickle->bytes, &root, &end);
    return st == DRA_OK ? read_root(r, root) : st;
}

/* ---- the older form -------------------------------------------------------------------------- */

/* Storages by their keys; tensors that share one agree about it. */
static dra_status list_storages(reader *r)
{
    dra_zip *z = &r->storages;
    size_t   n = 0;
    z->entry = dra_arena_alloc(&r->scratch, r->count * sizeof *z->entry);
    if (!z->entry) return no_memory(r);
    for (; z->count < r->count; z->count++) {
        const view *v = &r->views[z->count];
        if (v->held > r->bytes) return refuse_tensor(r, v->name, "its storage is cut short");
        z->entry[z->count] = (dra_zip_entry){v->key, NULL, v->held * (v->type->bits / 8)};
    }
    dra_zip_sort(z);
    for (size_t i = 0; i < z->count; i++)
        if (!n || strcmp(z->entry[n - 1].name, z->entry[i].name) != 0)
            z->entry[n++] = z->entry[i];
        else if (z->entry[n - 1].bytes != z->entry[i].bytes)
            return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "a storage has two sizes");
    z->count = n;
    return DRA_OK;
}

static dra_status find_storages(reader *r, const dra_pickled *keys, size_t at)
{
    for (size_t i = 0; i < keys->count; i++) {
        const dra_pickled *key = keys->item[i];
        const char        *name = key->kind == DRA_PICKLE_TEXT ? copy_text(&r->scratch, key) : "";
        if (!name) return no_memory(r);
        dra_zip_entry *s = (dra_zip_entry *)(uintptr_t)dra_zip_find(&r->storages, name);
        if (!s)
            return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "storage %zu is of no tensor", i);
        if (r->bytes - at < 8 || r->bytes - at - 8 < s->bytes)
            return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "storage %zu is cut short", i);
        s->data = r->file + at + 8;
        at += 8 + s->bytes;
    }
    return DRA_OK;
}

static bool is_little(const dra_pickled *facts)
{
    const dra_pickled *is = dra_pickle_find(facts, "little_endian");
    return is && is->kind == DRA_PICKLE_BOOL && is->number;
}

static dra_status read_old(reader *r)
{
    enum { VERSION, FACTS, ROOT, KEYS, PICKLES };
    const dra_pickled *part[PICKLES];
    size_t             at = sizeof old_magic;
    dra_status         st = DRA_OK;
    for (int i = 0; i < PICKLES && st == DRA_OK; i++)
        st = read_pickle(r, at, r->bytes - at > PICKLE_MOST ? at + PICKLE_MOST : r->bytes, &part[i],
                         &at);
    if (st != DRA_OK) return st;
    if (part[VERSION]->kind != DRA_PICKLE_INT || part[VERSION]->number != OLD_VERSION ||
        !is_little(part[FACTS]) || part[KEYS]->kind != DRA_PICKLE_LIST)
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path,
                           "expected PyTorch's version 1001, little-endian; save it again with a "
                           "newer PyTorch");
    st = read_root(r, part[ROOT]);
    if (st == DRA_OK) st = list_storages(r);
    return st == DRA_OK ? find_storages(r, part[KEYS], at) : st;
}

dra_status dra_pth_read(const char *path, const unsigned char *file, size_t bytes, dra_header *out,
                        dra_error *err)
{
    reader r = {.path = path, .file = file, .bytes = bytes, .out = out, .err = err};
    *out = (dra_header){0};
    if (!dra_pth_is(file, bytes))
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "is not a checkpoint of PyTorch");
    r.old = !dra_zip_is(file, bytes);
    dra_status st = r.old ? read_old(&r) : read_archive(&r);
    if (st == DRA_OK) st = place_all(&r);
    dra_arena_free(&r.scratch);
    if (st != DRA_OK) dra_header_free(out);
    return st;
}
