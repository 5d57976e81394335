/* JSON by jansson, after checks that jansson does not do. */
#include "file/json.h"

#include "base/shape.h"
#include "file/fail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What stands outside of texts: how deep brackets nest, whether there is a minus. */
typedef struct outline {
    int64_t depth;
    bool    minus;
} outline;

static outline look_over(const char *text, size_t bytes)
{
    outline o = {0};
    int64_t open = 0;
    bool    quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];
        if (c == '"')
            quoted = !quoted;
        else if (quoted)
            i += c == '\\'; /* the next byte is escaped, perhaps a quote */
        else if (c == '{' || c == '[')
            o.depth = dra_imax(o.depth, ++open);
        else if (c == '}' || c == ']')
            open--;
        else if (c == '-')
            o.minus = true;
    }
    return o;
}

static char *copy_text(const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* A copy in which Infinity outside of texts is a number of as many letters; NULL: there is none, or
 * no memory, and then jansson says what it cannot read. */
static char *spell_infinity(const char *text, size_t bytes)
{
    static const char word[] = "Infinity", number[] = "1.7e+308";
    const size_t      n = sizeof word - 1;
    char             *copy = NULL;
    bool              quoted = false;
    for (size_t i = 0; i + n <= bytes; i++) {
        if (text[i] == '"') quoted = !quoted;
        if (quoted) i += text[i] == '\\';
        if (quoted || text[i] != word[0] || memcmp(text + i, word, n) != 0) continue;
        if (!copy && !(copy = copy_text(text, bytes))) return NULL;
        memcpy(copy + i, number, n);
    }
    return copy;
}

/* ---- jansson, short of memory ---------------------------------------------------------------- */

/* jansson collects the letters of a word in a buffer that grows, and goes on without a letter where
 * it does not. So the buffer is made large enough before: the text becomes the second value of an
 * array, after a number that is longer than each of its words and that may lose zeros. */
typedef struct padded {
    const char *text;
    size_t      bytes, at;
    size_t      zeros; /* that are still to be read */
    bool        opened, parted, closed;
    bool        no_memory;
} padded;

static size_t longest_word(const char *text, size_t bytes)
{
    size_t longest = 0, begin = 0;
    bool   quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"') quoted = !quoted;
        if (quoted && text[i] == '\\') i++;
        if (!quoted && strchr(",:[]{} \t\r\n", text[i])) begin = i + 1;
        if (i >= begin && i - begin + 1 > longest) longest = i - begin + 1;
    }
    return longest;
}

/* The buffer has 16 bytes and doubles when its last one is wanted: with that many letters in
 * the number it grows for the last time at a zero, and not at the comma after it. */
static size_t padding_of(size_t longest)
{
    size_t letters = 32;
    while (letters < longest + 16) letters *= 2;
    return letters - strlen("0.");
}

static size_t give_text(char *to, size_t room, const char *text, size_t n, size_t *used)
{
    if (n > room) n = room;
    memcpy(to, text, n);
    *used += n;
    return n;
}

/* jansson asks for more inside of the number: malloc() has failed there, or there is room. */
static size_t read_padded(void *to, size_t room, void *user)
{
    padded *p = user;
    if (!p->opened) {
        p->opened = true;
        memcpy(to, "[0.", 3);
        return 3;
    }
    if (p->zeros) {
        const size_t n = p->zeros < room ? p->zeros : room;
        memset(to, '0', n);
        p->zeros -= n;
        return n;
    }
    if (!p->parted) {
        p->parted = true;
        p->no_memory = errno == ENOMEM;
        memcpy(to, ",", 1);
        return p->no_memory ? (size_t)-1 : 1;
    }
    if (p->at < p->bytes) return give_text(to, room, p->text + p->at, p->bytes - p->at, &p->at);
    if (p->closed) return 0;
    p->closed = true;
    memcpy(to, "]", 1);
    return 1;
}

/* Where jansson gets no memory it says so, says nothing, or blames the text; but it then ends at
 * once, so that what malloc() said is still there. */
static dra_status status_of(const json_t *value)
{
    return value ? DRA_OK : errno == ENOMEM ? DRA_ERR_MEMORY : DRA_ERR_FORMAT;
}

/* What is wrong is said of the text alone, which is parsed again for the wording; only one that
 * nests as deep as jansson goes is right without the array around it. For want of memory, letters
 * may be lost here: a text that was wrong before does not become right by that. */
static dra_status word_error(const char *text, size_t bytes, size_t flags, json_t **out,
                             json_error_t *found)
{
    const bool deep = json_error_code(found) == json_error_stack_overflow;
    errno = 0;
    *out = json_loadb(text, bytes, flags, found);
    const dra_status st = *out && !deep ? DRA_ERR_MEMORY : status_of(*out);
    if (st != DRA_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

dra_status dra_json_load(const char *text, size_t bytes, size_t flags, json_t **out,
                         json_error_t *found)
{
    padded p = {.text = text, .bytes = bytes, .zeros = padding_of(longest_word(text, bytes))};
    errno = 0;
    json_t          *both = json_load_callback(read_padded, &p, flags, found);
    const dra_status st = p.no_memory ? DRA_ERR_MEMORY : status_of(both);
    json_t          *value = json_array_size(both) == 2 ? json_array_get(both, 1) : NULL;
    const bool whole = (flags & JSON_DECODE_ANY) || json_is_object(value) || json_is_array(value);
    *out = whole && value ? json_incref(value) : NULL;
    json_decref(both);
    if (*out || st == DRA_ERR_MEMORY) return st;
    return word_error(text, bytes, flags, out, found);
}

dra_status dra_json_parse(const char *path, const char *text, size_t bytes, dra_json_rules rules,
                          json_t **out, dra_error *err)
{
    char          room[DRA_BRIEF];
    json_error_t  found;
    const outline o = look_over(text, bytes);
    *out = NULL;
    if (o.depth > rules.depth)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "JSON nests %lld deep, expected at most %d",
                           (long long)o.depth, rules.depth);
    if (rules.no_minus && o.minus)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "JSON has a negative number");
    char            *plain = rules.infinity ? spell_infinity(text, bytes) : NULL;
    const dra_status status = dra_json_load(plain ? plain : text, bytes, JSON_REJECT_DUPLICATES,
                                            out, &found);
    free(plain);
    if (status == DRA_OK) return DRA_OK;
    if (status == DRA_ERR_MEMORY)
        return dra_fail_at(err, status, path, "out of memory for its JSON");
    return dra_fail_at(err, DRA_ERR_FORMAT, path, "JSON, line %d, column %d: %s", found.line,
                       found.column, dra_brief(found.text, room));
}
