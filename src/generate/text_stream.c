/* Text on its way out. What may go out of the bytes held:
 *   all before a stop string, if one is there, the first of several;
 *   else all but the longest end that a stop string begins with,
 *   and of that, whole characters only. */
#include "generate/text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/letters.h"

const char *dra_finish_name(dra_finish finish)
{
    static const char *const names[] = {"length", "end", "stop", "context", "asked"};
    return (unsigned)finish < sizeof names / sizeof *names ? names[finish] : "unknown";
}

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

static bool grow_buffer(char **data, size_t *room, size_t need)
{
    if (need <= *room) return true;
    const size_t more = need > 2 * *room ? need : 2 * *room;
    char        *at = realloc(*data, more);
    if (!at) return false;
    *data = at;
    *room = more;
    return true;
}

/* Where the first whole stop string begins; n_held: there is none. */
static size_t find_stop(const dra_text_stream *o)
{
    for (size_t at = 0; at < o->n_held; at++)
        for (int i = 0; i < o->n_stop; i++) {
            const size_t n = strlen(o->stop[i]);
            if (n > 0 && n <= o->n_held - at && memcmp(o->held + at, o->stop[i], n) == 0) return at;
        }
    return o->n_held;
}

/* Where the end begins that a stop string may begin with; n_held: there is none. */
static size_t find_partial(const dra_text_stream *o)
{
    for (size_t at = 0; at < o->n_held; at++)
        for (int i = 0; i < o->n_stop; i++)
            if (strncmp(o->held + at, o->stop[i], o->n_held - at) == 0 && o->stop[i][0]) return at;
    return o->n_held;
}

/* The first n bytes held become text, but for a character that is open at their end, unless it will
 * not be closed. Returns how many. */
static size_t make_valid(dra_text_stream *o, size_t n, bool last, dra_text_chunk *out)
{
    size_t at = 0, made = 0;
    while (at < n) {
        int32_t      code;
        const size_t bytes = dra_utf8(o->held + at, n - at, &code);
        if (code == DRA_OPEN && !last) break;
        const char  *from = code < 0 ? replacement : o->held + at;
        const size_t k = code < 0 ? sizeof replacement - 1 : bytes;
        memcpy(o->text + made, from, k);
        made += k;
        at += bytes;
    }
    o->text[made] = 0;
    out->text = o->text;
    out->bytes = made;
    return at;
}

static dra_status release_text(dra_text_stream *o, size_t n, bool last, dra_text_chunk *out,
                               dra_error *err)
{
    if (!grow_buffer(&o->text, &o->text_room, 3 * n + 1))
        return dra_fail(err, DRA_ERR_MEMORY, "generate: out of memory for text");
    const size_t gone = make_valid(o, n, last, out);
    if (gone) memmove(o->held, o->held + gone, o->n_held - gone);
    o->n_held -= gone;
    o->gone += gone;
    return DRA_OK;
}

dra_status dra_text_stream_push(dra_text_stream *o, const char *bytes, size_t n,
                                dra_text_chunk *out, dra_error *err)
{
    *out = (dra_text_chunk){.text = ""};
    if (!grow_buffer(&o->held, &o->room, o->n_held + n + 1))
        return dra_fail(err, DRA_ERR_MEMORY, "generate: out of memory for text");
    if (n) memcpy(o->held + o->n_held, bytes, n);
    o->n_held += n;
    const size_t stop = find_stop(o), partial = find_partial(o);
    if (stop < o->n_held) {
        out->stopped = true;
        out->before = o->gone + stop;
        o->n_held = stop;
        return release_text(o, stop, true, out, err);
    }
    out->partial = partial < o->n_held;
    out->before = o->gone + partial;
    return release_text(o, partial, false, out, err);
}

dra_status dra_text_stream_flush(dra_text_stream *o, dra_text_chunk *out, dra_error *err)
{
    *out = (dra_text_chunk){.text = ""};
    return release_text(o, o->n_held, true, out, err);
}

void dra_text_stream_free(dra_text_stream *o)
{
    free(o->held);
    free(o->text);
    *o = (dra_text_stream){0};
}
