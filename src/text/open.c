/* Opening: which files there are, and the pair of GPT-2. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/system.h"
#include "file/json.h"
#include "text/gguf.h"
#include "text/vocabulary.h"
#include "text/world.h"

enum { LARGEST = 1 << 28, PATH_ROOM = 4096 }; /* bytes of a file; of a path */

/* ---- vocab.json and merges.txt --------------------------------------------------------------- */

static size_t count_lines(const char *text, size_t bytes)
{
    size_t n = 1;
    for (size_t i = 0; i < bytes; i++) n += text[i] == '\n';
    return n;
}

/* A merge in each line, two spellings and a space between them. The first line may be a comment on
 * the version; later ones that start like this are merges. */
static dra_status read_merges(dra_vocabulary *v, const char *text, size_t bytes)
{
    dra_status status = dra_vocabulary_merges(v, count_lines(text, bytes));
    size_t     line = 1;
    for (const char *at = text, *next; at < text + bytes && status == DRA_OK; at = next, line++) {
        const char *end = memchr(at, '\n', (size_t)(text + bytes - at));
        next = end ? end + 1 : text + bytes;
        if (!end) end = next;
        if (end > at && end[-1] == '\r') end--;
        if (end == at || (line == 1 && strncmp(at, "#version", 8) == 0)) continue;
        const char *space = memchr(at, ' ', (size_t)(end - at));
        if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1)))
            return dra_vocabulary_fail(v, "line %zu: expected two tokens and a space", line);
        status = dra_vocabulary_merge(v, at, (size_t)(space - at), space + 1,
                                      (size_t)(end - space - 1));
    }
    return status;
}

static dra_status fill_pair(dra_vocabulary *v, const char *vocab, const char *merges)
{
    char  *text = NULL;
    size_t bytes;
    v->path = vocab;
    if (!json_is_object(v->vocab))
        return dra_vocabulary_fail(v, "expected an object, tokens to ids");
    dra_status    status = dra_vocabulary_tokens(v, 0);
    const json_t *id = json_object_get(v->vocab, DRA_END_OF_TEXT);
    if (status == DRA_OK) status = dra_vocabulary_added(v, 1);
    if (status == DRA_OK && id)
        status = dra_vocabulary_add(v, (dra_added){.id = (int32_t)json_integer_value(id),
                                                   .text = DRA_END_OF_TEXT,
                                                   .bytes = sizeof DRA_END_OF_TEXT - 1,
                                                   .special = true});
    if (status == DRA_OK) status = dra_file_read(merges, LARGEST, &text, &bytes, v->err);
    v->path = merges;
    if (status == DRA_OK) status = read_merges(v, text, bytes);
    free(text);
    return status;
}

dra_status dra_tokenizer_read_pair(const char *vocab, const char *merges, dra_tokenizer **out,
                                   dra_error *err)
{
    dra_vocabulary v;
    json_t        *json = NULL;
    char          *text = NULL;
    size_t         bytes;
    dra_status     status = dra_vocabulary_begin(&v, vocab, err);
    if (status == DRA_OK) status = dra_file_read(vocab, LARGEST, &text, &bytes, err);
    if (status == DRA_OK)
        status = dra_json_parse(vocab, text, bytes, (dra_json_rules){.depth = 1}, &json, err);
    free(text);
    v.vocab = json;
    if (status == DRA_OK) status = fill_pair(&v, vocab, merges);
    status = dra_vocabulary_end(&v, status, out);
    json_decref(json);
    return status;
}

/* ---- which files ----------------------------------------------------------------------------- */

/* Its first byte tells what it is. */
static dra_status open_file(const char *path, dra_tokenizer **out, dra_error *err)
{
    char  *text = NULL;
    size_t bytes;
    if (dra_tokenizer_in_gguf(path)) return dra_tokenizer_read_gguf(path, out, err);
    const dra_status status = dra_file_read(path, LARGEST, &text, &bytes, err);
    if (status != DRA_OK) return status;
    const dra_status read = (dra_world_is(text, bytes) ? dra_world_read : dra_tokenizer_read_json)(
        path, text, bytes, out, err);
    free(text);
    return read;
}

/* The files of a tokenizer, the first that are there: one, or two. */
static const char *const files[][2] = {{"tokenizer.json"},
                                       {"vocab.json", "merges.txt"},
                                       {"encoder.json", "vocab.bpe"},
                                       {DRA_WORLD_FILE}};
enum { WAYS = sizeof files / sizeof *files };

/* PATH/NAME; whether such a file is there. */
static bool has_file(const char *path, const char *name, char *full)
{
    const int n = snprintf(full, PATH_ROOM, "%s/%s", path, name);
    return n > 0 && n < PATH_ROOM && dra_sys_exists(full);
}

/* Which of the ways above a folder has, and the paths; WAYS: none. */
static int find_files(const char *folder, char first[PATH_ROOM], char second[PATH_ROOM])
{
    int i = 0;
    while (i < WAYS && !(has_file(folder, files[i][0], first) &&
                         (!files[i][1] || has_file(folder, files[i][1], second))))
        i++;
    return i;
}

bool dra_tokenizer_is_in(const char *folder)
{
    char first[PATH_ROOM], second[PATH_ROOM];
    return folder && (find_files(folder, first, second) < WAYS || dra_tokenizer_in_gguf(folder));
}

const char *dra_tokenizer_file(const dra_tokenizer *t)
{
    return t->longest_first ? DRA_WORLD_FILE : files[0][0];
}

dra_status dra_tokenizer_open(const char *path, dra_tokenizer **out, dra_error *err)
{
    char        first[PATH_ROOM], second[PATH_ROOM];
    struct stat s;
    if (out) *out = NULL;
    if (!path || !out) return dra_fail(err, DRA_ERR_VALUE, "tokenizer_open: no path or result");
    if (dra_sys_stat(path, &s) != 0) return dra_fail_system(err, path, "open it", errno);
    if (!S_ISDIR(s.st_mode)) return open_file(path, out, err);
    const int i = find_files(path, first, second);
    if (i < WAYS)
        return files[i][1] ? dra_tokenizer_read_pair(first, second, out, err)
                           : open_file(first, out, err);
    return dra_fail_at(err, DRA_ERR_FILE, path,
                       "no tokenizer in this folder: expected tokenizer.json, or vocab.json and "
                       "merges.txt, or encoder.json and vocab.bpe, or " DRA_WORLD_FILE);
}

/* The tokens of a model are never guessed: without files they are bytes, or unknown. */
static dra_status open_own(const char *folder, int64_t vocab, dra_tokenizer **out, dra_error *err)
{
    if (dra_tokenizer_is_in(folder)) return dra_tokenizer_open(folder, out, err);
    if (vocab == 256 || vocab == 0) return dra_tokenizer_bytes(out, err);
    return dra_fail(err, DRA_ERR_VALUE, "%.200s%sno tokenizer files, and %lld tokens are not bytes",
                    folder ? folder : "", folder ? ": " : "", (long long)vocab);
}

dra_status dra_tokenizer_open_folder(const char *folder, int64_t vocab, dra_tokenizer **out,
                                     dra_error *err)
{
    if (out) *out = NULL;
    if (!out) return dra_fail(err, DRA_ERR_VALUE, "tokenizer_open_folder: no result");
    const dra_status status = open_own(folder, vocab, out, err);
    const int32_t    size = status == DRA_OK ? dra_tokenizer_size(*out) : 0;
    if (status != DRA_OK || vocab == 0 || size <= vocab) return status;
    dra_tokenizer_destroy(*out);
    *out = NULL;
    return dra_fail(err, DRA_ERR_VALUE, "%.200s: its tokenizer has %d tokens, the model only %lld",
                    folder, size, (long long)vocab);
}
