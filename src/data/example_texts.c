/* Examples that are texts: lines of JSON, encoded, with their ends. */
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "data/examples.h"
#include "data/json_lines.h"
#include "file/fail.h"

typedef struct reading {
    const dra_examples_config *c;
    dra_ids                   *ids;    /* of each text */
    int64_t                  **starts; /* likewise, `room` of them */
    int64_t                    N, room;
} reading;

static dra_status no_memory(const char *path, dra_error *err)
{
    return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory for its tokens");
}

static dra_status put_id(dra_ids *ids, int32_t id, const char *path, dra_error *err)
{
    if (ids->n == ids->room) {
        const size_t room = 2 * ids->room + 64;
        int32_t     *data = realloc(ids->data, room * sizeof *data);
        if (!data) return no_memory(path, err);
        ids->data = data;
        ids->room = room;
    }
    ids->data[ids->n++] = id;
    return DRA_OK;
}

/* The token around a text; -1: none. */
static int32_t end_of(const dra_example_text *t)
{
    const int32_t end = dra_tokenizer_end(t->tokenizer);
    if (!t->ends) return -1;
    return end < 0 && t->end > 0 ? t->end : end;
}

static dra_status put_text(const dra_example_text *t, const json_t *object,
                           const dra_json_line *line, dra_ids *ids, dra_error *err)
{
    const char   *key = t->key ? t->key : t->name, *text;
    const int32_t end = end_of(t);
    const size_t  before = ids->n;
    char          path[DRA_BRIEF], name[DRA_BRIEF];
    size_t        bytes;
    dra_status    st = dra_json_line_text(object, line, key, &text, &bytes, err);
    if (st == DRA_OK && end >= 0) st = put_id(ids, end, line->path, err);
    if (st == DRA_OK) st = dra_encode(t->tokenizer, text, bytes, ids, err);
    if (st == DRA_OK && end >= 0) st = put_id(ids, end, line->path, err);
    if (st == DRA_OK && ids->n == before)
        st = dra_fail(err, DRA_ERR_FORMAT, "%s:%lld: '%s' is an empty text",
                      dra_brief(line->path, path), (long long)line->number, dra_brief(key, name));
    return st;
}

static dra_status make_room(reading *r, const char *path, dra_error *err)
{
    if (r->N < r->room) return DRA_OK;
    const int64_t room = 2 * r->room + 64;
    for (int i = 0; i < r->c->n_texts; i++) {
        int64_t *starts = realloc(r->starts[i], (size_t)(room + 1) * sizeof *starts);
        if (!starts) return no_memory(path, err);
        if (!r->starts[i]) starts[0] = 0;
        r->starts[i] = starts;
    }
    r->room = room;
    return DRA_OK;
}

static dra_status put_line(void *user, json_t *object, const dra_json_line *line, dra_error *err)
{
    reading   *r = user;
    dra_status st = make_room(r, line->path, err);
    for (int i = 0; i < r->c->n_texts && st == DRA_OK; i++) {
        st = put_text(&r->c->texts[i], object, line, &r->ids[i], err);
        if (st == DRA_OK) r->starts[i][r->N + 1] = (int64_t)r->ids[i].n;
    }
    if (st == DRA_OK) r->N++;
    return st;
}

static dra_status read_files(reading *r, dra_error *err)
{
    const char *const *paths = r->c->n_paths ? r->c->paths : &r->c->path;
    const int          n = r->c->n_paths ? r->c->n_paths : 1;
    dra_file_map       file;
    dra_status         st = DRA_OK;
    for (int i = 0; i < n && st == DRA_OK; i++) {
        st = dra_file_map_open(paths[i], &file, err);
        if (st != DRA_OK) return st;
        st = dra_json_lines(paths[i], &file, NULL, put_line, r, err);
        dra_file_map_close(&file);
    }
    return st;
}

/* The table takes ids and starts over. */
static dra_status make_column(dra_table *t, int i, reading *r, dra_error *err)
{
    dra_column *c = &t->column[i];
    int64_t     longest = 0;
    for (int64_t k = 0; k < r->N; k++)
        longest = dra_imax(longest, r->starts[i][k + 1] - r->starts[i][k]);
    c->shown = (dra_example_input){dra_arena_text(&t->files.arena, r->c->texts[i].name), "I32",
                                   DRA_I32, DRA_SHAPE(longest)};
    c->stored = DRA_I32;
    c->integer = sizeof(int32_t);
    c->count = longest;
    c->ids = r->ids[i].data;
    c->starts = r->starts[i];
    r->ids[i] = (dra_ids){0};
    r->starts[i] = NULL;
    return c->shown.name ? DRA_OK : no_memory(t->path, err);
}

static dra_status check_texts(const dra_examples_config *c, const char *path, dra_error *err)
{
    if (c->n_texts < 1)
        return dra_fail_at(err, DRA_ERR_VALUE, path, "lines of JSON, but no text of them is asked");
    for (int i = 0; i < c->n_texts; i++)
        if (!c->texts[i].name || !c->texts[i].tokenizer)
            return dra_fail_at(err, DRA_ERR_VALUE, path, "a text without a name or a tokenizer");
    return DRA_OK;
}

dra_status dra_table_open_texts(dra_table *t, const dra_examples_config *c, dra_error *err)
{
    const size_t n = (size_t)dra_imax(c->n_texts, 0);
    reading      r = {c, calloc(n + 1, sizeof *r.ids), calloc(n + 1, sizeof *r.starts), 0, 0};
    dra_status   st = check_texts(c, t->path, err);
    t->column = calloc(n + 1, sizeof *t->column);
    if (st == DRA_OK && !(r.ids && r.starts && t->column)) st = no_memory(t->path, err);
    if (st == DRA_OK) st = read_files(&r, err);
    for (size_t i = 0; i < n && st == DRA_OK && r.N; i++, t->n++)
        st = make_column(t, (int)i, &r, err);
    t->N = r.N;
    for (size_t i = 0; i < n && r.ids; i++) dra_ids_free(&r.ids[i]);
    for (size_t i = 0; i < n && r.starts; i++) free(r.starts[i]);
    free(r.ids);
    free(r.starts);
    return st;
}
