/* Keys of --api-key-file: read at the start and on SIGHUP, compared with every request. */
#include "serve.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FILE_MOST = 1 << 26 };

static const char blanks[] = " \t\r";

void serve_keys_free(serve_keys *keys)
{
    free(keys->all);
    free(keys->text);
    *keys = (serve_keys){0};
}

static bool add_key(serve_keys *keys, size_t *room, serve_key key)
{
    if (keys->n == *room) {
        *room = *room ? 2 * *room : 16;
        serve_key *all = realloc(keys->all, *room * sizeof *all);
        if (!all) return false;
        keys->all = all;
    }
    keys->all[keys->n++] = key;
    return true;
}

/* The hash of FNV-1a: a key that is changed keeps its owner by its name. */
uint64_t serve_owner_of(const char *name)
{
    char    *end;
    uint64_t h = name[0] == '@' ? strtoull(name + 1, &end, 16) : 0;
    if (h && !*end) return h;
    h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h ? h : 1;
}

void serve_owner_name(const serve *s, uint64_t owner, char *name, size_t size)
{
    snprintf(name, size, "@%016llx", (unsigned long long)owner);
    for (size_t i = 0; i < s->keys.n; i++)
        if (s->keys.all[i].owner == owner && s->keys.all[i].name[0])
            snprintf(name, size, "%s", s->keys.all[i].name);
}

/* Whether a name ends with this word, which is then cut off. */
static bool take_scope(char *name, const char *word)
{
    const size_t n = strlen(name), k = strlen(word);
    if (n < k || strcmp(name + n - k, word) != 0) return false;
    char *end = name + n - k;
    while (end > name && strchr(blanks, end[-1])) end--;
    *end = '\0';
    return true;
}

/* "[requests=60]" at the end of a name, the same; 0: it is not there. */
static int64_t take_number(char *name, const char *word)
{
    char *at = strrchr(name, '['), *end;
    if (!at || strncmp(at + 1, word, strlen(word)) != 0 || at[1 + strlen(word)] != '=') return 0;
    const long long x = strtoll(at + 2 + strlen(word), &end, 10);
    if (x <= 0 || strcmp(end, "]") != 0) return 0;
    take_scope(name, at);
    return x;
}

/* Scopes come in any order. false: there are no more. */
static bool take_scopes(char *name, serve_key *x)
{
    const bool    reads = take_scope(name, "[read-only]"), rules = take_scope(name, "[admin]");
    const int64_t requests = take_number(name, "requests"), tokens = take_number(name, "tokens");
    x->reads |= reads;
    x->rules |= rules;
    if (requests) x->requests = requests;
    if (tokens) x->tokens = tokens;
    return reads || rules || requests || tokens;
}

/* "KEY NAME [SCOPE] # comment": the key is the first word, its name the rest. */
static serve_key split_line(char *line)
{
    char *end = line + strlen(line);
    for (char *c = line; *c; c++)
        if (*c == '#' && (c == line || strchr(blanks, c[-1]))) end = c;
    while (end > line && strchr(blanks, end[-1])) end--;
    *end = '\0';
    char        *key = line + strspn(line, blanks);
    const size_t n = strcspn(key, blanks);
    char        *name = key + n + strspn(key + n, blanks);
    key[n] = '\0';
    serve_key x = {.text = key, .n = n, .name = name};
    while (take_scopes(name, &x)) continue;
    x.owner = serve_owner_of(name[0] ? name : key);
    return x;
}

static bool split_file(serve_keys *keys)
{
    size_t room = 0;
    for (char *line = keys->text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        const serve_key key = split_line(line);
        if (key.n && !add_key(keys, &room, key)) return false;
    }
    return true;
}

bool serve_keys_read(serve_keys *keys, const char *path, dra_error *err)
{
    serve_keys now = {0};
    size_t     bytes = 0;
    if (dra_file_read(path, FILE_MOST, &now.text, &bytes, err) != DRA_OK) return false;
    bool well = strlen(now.text) == bytes;
    if (!well)
        cli_error(err, DRA_ERR_VALUE, "%.200s: expected lines of text, found a zero", path);
    else if (!(well = split_file(&now)))
        cli_error(err, DRA_ERR_MEMORY, "out of memory");
    else if (!(well = now.n > 0))
        cli_error(err, DRA_ERR_VALUE, "%.200s: expected a key in a line, found none", path);
    if (well) {
        serve_keys_free(keys);
        *keys = now;
    } else {
        serve_keys_free(&now);
    }
    return well;
}

/* Constant time: it depends on the given key, not on where the two differ. */
static bool same_key(const serve_key *key, const char *given, size_t n)
{
    unsigned char differs = key->n != n;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(key->text[i < key->n ? i : 0] ^ given[i]);
    return !differs;
}

const serve_key *serve_key_of(const serve *s, const http_head *h)
{
    const char      *bearer = http_header(h, "authorization");
    const char      *given = http_header(h, "x-api-key"); /* of Anthropic's clients */
    const serve_key *found = NULL;
    if (bearer && strncasecmp(bearer, "bearer ", 7) == 0)
        given = bearer + 7 + strspn(bearer + 7, " ");
    if (!given) return NULL;
    const size_t n = strlen(given);
    for (size_t i = 0; i < s->keys.n; i++)
        if (same_key(&s->keys.all[i], given, n)) found = &s->keys.all[i];
    return found;
}
