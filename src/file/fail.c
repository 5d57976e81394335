/* Error texts of files. What comes from outside is made printable first. */
#include "file/fail.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Whether a byte is inside a UTF-8 letter, where a text must not be cut. */
static bool continues_letter(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

enum { LETTER = 3 }; /* bytes of a letter that follow its first, at most */

const char *dra_brief(const char *text, char room[DRA_BRIEF])
{
    const size_t n = strlen(text), half = (DRA_BRIEF - 4) / 2;
    size_t       head = n, tail = n;
    if (n >= DRA_BRIEF) {
        head = half, tail = n - half;
        while (head > half - LETTER && continues_letter(text[head])) head--;
        while (tail < n - half + LETTER && continues_letter(text[tail])) tail++;
    }
    snprintf(room, DRA_BRIEF, "%.*s%s%s", (int)head, text, head < n ? "..." : "", text + tail);
    dra_make_shown(room);
    return room;
}

dra_status dra_fail_at(dra_error *err, dra_status code, const char *path, const char *format, ...)
{
    char    room[DRA_BRIEF], text[DRA_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dra_fail(err, code, "%s: %s", dra_brief(path, room), text);
}

dra_status dra_fail_system(dra_error *err, const char *path, const char *what, int number)
{
    char reason[128];
    if (number == ENOMEM)
        return dra_fail_at(err, DRA_ERR_MEMORY, path, "cannot %s: out of memory", what);
    if (strerror_r(number, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", number);
    const dra_status code = number == ENOMEM ? DRA_ERR_MEMORY : DRA_ERR_FILE;
    return dra_fail_at(err, code, path, "cannot %s: %s", what, reason);
}
