/* The template of a model's folder, and the texts of its tokens. */
#include "dra/template.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/json.h"
#include "jinja/tree.h"

enum { LARGEST = 1 << 24, JSON_DEPTH = 64, PATH_ROOM = 4096 };

#define CONFIG "tokenizer_config.json"

static dra_status path_of(const char *folder, const char *file, char path[PATH_ROOM],
                          dra_error *err)
{
    const int n = snprintf(path, PATH_ROOM, "%s/%s", folder, file);
    if (n >= 0 && n < PATH_ROOM) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, folder, "expected a path of fewer than %d bytes",
                       PATH_ROOM);
}

static bool is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && !S_ISDIR(s.st_mode);
}

/* The JSON object in a file of the folder; NULL: there is no such file. */
static dra_status read_object(const char *folder, const char *file, char path[PATH_ROOM],
                              json_t **out, dra_error *err)
{
    char  *text = NULL;
    size_t bytes;
    *out = NULL;
    dra_status st = path_of(folder, file, path, err);
    if (st != DRA_OK || !is_file(path)) return st;
    st = dra_file_read(path, LARGEST, &text, &bytes, err);
    if (st == DRA_OK)
        st = dra_json_parse(path, text, bytes, (dra_json_rules){.depth = JSON_DEPTH}, out, err);
    free(text);
    if (st == DRA_OK && !json_is_object(*out)) {
        st = dra_fail_at(err, DRA_ERR_FORMAT, path, "expected an object");
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

/* ---- templates ------------------------------------------------------------------------------- */

/* The value of "chat_template": a string, or the one named "default" in a list. */
static dra_status pick_template(const json_t *json, const char *path, const json_t **out,
                                dra_error *err)
{
    const json_t *value = json_object_get(json, "chat_template");
    *out = NULL;
    if (!value || json_is_null(value)) return DRA_OK;
    if (json_is_string(value)) *out = value;
    for (size_t i = 0; i < json_array_size(value) && !*out; i++) {
        const json_t *row = json_array_get(value, i), *text = json_object_get(row, "template");
        const char   *name = json_string_value(json_object_get(row, "name"));
        if (name && strcmp(name, "default") == 0 && json_is_string(text)) *out = text;
    }
    if (*out) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FORMAT, path,
                       "chat_template: expected a text, or a list with one named \"default\"");
}

static dra_status open_in_json(const char *folder, const char *file, dra_template **out,
                               dra_error *err)
{
    char          path[PATH_ROOM];
    json_t       *json;
    const json_t *text = NULL;
    dra_status    st = read_object(folder, file, path, &json, err);
    if (st == DRA_OK && json) st = pick_template(json, path, &text, err);
    if (st == DRA_OK && text)
        st = dra_template_create(json_string_value(text), json_string_length(text), path, out, err);
    json_decref(json);
    return st;
}

static dra_status open_file(const char *path, dra_template **out, dra_error *err)
{
    char      *text = NULL;
    size_t     bytes;
    dra_status st = dra_file_read(path, LARGEST, &text, &bytes, err);
    if (st == DRA_OK) st = dra_template_create(text, bytes, path, out, err);
    free(text);
    return st;
}

static dra_status open_in_folder(const char *folder, dra_template **out, dra_error *err)
{
    char       path[PATH_ROOM];
    dra_status st = path_of(folder, "chat_template.jinja", path, err);
    if (st == DRA_OK && is_file(path)) return open_file(path, out, err);
    if (st == DRA_OK) st = open_in_json(folder, "chat_template.json", out, err);
    return st == DRA_OK && !*out ? open_in_json(folder, CONFIG, out, err) : st;
}

static dra_status open_from(const char *from, dra_template **out, dra_error *err)
{
    const char *text = dra_template_named(from);
    char        names[256] = "";
    if (is_file(from) || strchr(from, '/')) return open_file(from, out, err);
    if (text) return dra_template_create(text, strlen(text), from, out, err);
    for (size_t i = 0, n = 0; dra_template_name(i) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                              dra_template_name(i));
    return dra_fail_at(err, DRA_ERR_NAME, from, "no such file, and no chat template of: %s", names);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* "<s>", or an added token whose content is that. */
static const json_t *token_text(const json_t *json, const char *name)
{
    const json_t *value = json_object_get(json, name);
    if (json_is_object(value)) value = json_object_get(value, "content");
    return json_is_string(value) ? value : NULL;
}

static dra_status add_token(dra_template *t, const char *name, const json_t *text, dra_error *err)
{
    const char *value = dra_arena_text(&t->arena, json_string_value(text));
    if (!value) return dra_fail_at(err, DRA_ERR_MEMORY, t->name, "out of memory for its tokens");
    t->token[t->tokens++] = (dra_tpair){dra_tstring(name, strlen(name)),
                                        dra_tstring(value, strlen(value))};
    return DRA_OK;
}

static dra_status read_tokens(dra_template *t, const char *folder, dra_error *err)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    char                     path[PATH_ROOM];
    json_t                  *config, *map = NULL;
    dra_status               st = read_object(folder, CONFIG, path, &config, err);
    if (st == DRA_OK) st = read_object(folder, "special_tokens_map.json", path, &map, err);
    for (size_t i = 0; i < sizeof names / sizeof *names && st == DRA_OK; i++) {
        const json_t *text = token_text(config, names[i]);
        if (!text) text = token_text(map, names[i]);
        if (text) st = add_token(t, names[i], text, err);
    }
    json_decref(config);
    json_decref(map);
    return st;
}

dra_status dra_template_open(const char *folder, const char *from, dra_template **out,
                             dra_error *err)
{
    *out = NULL;
    dra_status st = from     ? open_from(from, out, err)
                    : folder ? open_in_folder(folder, out, err)
                             : DRA_OK;
    if (st == DRA_OK && *out && folder) st = read_tokens(*out, folder, err);
    if (st != DRA_OK) {
        dra_template_destroy(*out);
        *out = NULL;
    }
    return st;
}
