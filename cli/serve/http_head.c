/* The head of an HTTP request [RFC 9112]. Whatever two parsers could read differently is
 * refused: lines without CR, blanks before a colon, folded lines, two lengths. */
#include "http_head.h"

#include <string.h>
#include <strings.h>

static const char tokens[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

static int refuse_head(const char **why, int status, const char *text)
{
    *why = text;
    return status;
}

/* The next line, ended by a 0; NULL: there is none, or it has forbidden bytes. */
static char *next_line(char **at, const char *end)
{
    char *start = *at, *cr = start;
    while (cr < end && *cr != '\r') {
        if (((unsigned char)*cr < 32 && *cr != '\t') || *cr == 127) return NULL;
        cr++;
    }
    if (end - cr < 2 || cr[1] != '\n') return NULL;
    *cr = '\0';
    *at = cr + 2;
    return start;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool http_decode(char *text)
{
    char *to = text;
    for (; *text; text++) {
        char c = *text;
        if (c == '%') {
            const int high = hex_digit(text[1]), low = high < 0 ? -1 : hex_digit(text[2]);
            if (low < 0 || !(high | low)) return false;
            c = (char)(high << 4 | low);
            text += 2;
        }
        *to++ = c;
    }
    *to = '\0';
    return true;
}

static int read_target(char *target, http_head *out, const char **why)
{
    char *query = strchr(target, '?');
    if (query) *query++ = '\0';
    out->query = query ? query : "";
    if (target[0] != '/') return refuse_head(why, 400, "expected a path that starts with /");
    if (strlen(target) >= sizeof out->path) return refuse_head(why, 414, "the path is too long");
    memcpy(out->path, target, strlen(target) + 1);
    return http_decode(out->path) ? 0 : refuse_head(why, 400, "a path with a broken %");
}

static int read_request_line(char *text, http_head *out, const char **why)
{
    char *target = strchr(text, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || strchr(version + 1, ' '))
        return refuse_head(why, 400, "expected METHOD PATH HTTP/1.1 in the first line");
    *target++ = '\0';
    *version++ = '\0';
    if (!text[0] || text[strspn(text, tokens)])
        return refuse_head(why, 400, "a method that is none");
    if (strncmp(version, "HTTP/1.", 7) != 0 || (version[7] != '0' && version[7] != '1') ||
        version[8])
        return refuse_head(why, 505, "expected HTTP/1.1");
    out->method = text;
    out->minor = version[7] - '0';
    return read_target(target, out, why);
}

static int read_header(char *text, http_head *out, const char **why)
{
    char *colon = strchr(text, ':');
    if (!colon || colon == text) return refuse_head(why, 400, "a header without a name");
    *colon++ = '\0';
    if (text[strspn(text, tokens)]) return refuse_head(why, 400, "a header whose name is none");
    if (out->n == HTTP_HEADERS) return refuse_head(why, 431, "too many headers");
    for (char *c = text; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c |= 32;
    colon += strspn(colon, " \t");
    for (size_t n = strlen(colon); n && (colon[n - 1] == ' ' || colon[n - 1] == '\t');)
        colon[--n] = '\0';
    out->header[out->n].name = text;
    out->header[out->n++].value = colon;
    return 0;
}

const char *http_header(const http_head *h, const char *name)
{
    for (int i = 0; i < h->n; i++)
        if (strcmp(h->header[i].name, name) == 0) return h->header[i].value;
    return NULL;
}

static int count_headers(const http_head *h, const char *name)
{
    int n = 0;
    for (int i = 0; i < h->n; i++) n += strcmp(h->header[i].name, name) == 0;
    return n;
}

static int read_length(http_head *out, const char **why)
{
    const char *text = http_header(out, "content-length");
    const char *sent = http_header(out, "transfer-encoding");
    const char *packed = http_header(out, "content-encoding");
    if (packed && strcasecmp(packed, "identity") != 0)
        return refuse_head(why, 415, "expected a body that is not compressed");
    if (sent && (!out->minor || text || count_headers(out, "transfer-encoding") > 1))
        return refuse_head(why, 400, "two lengths of the body");
    if (sent && strcasecmp(sent, "chunked") != 0)
        return refuse_head(why, 501, "Transfer-Encoding: chunked is all there is");
    out->chunked = sent != NULL;
    if (count_headers(out, "content-length") > 1)
        return refuse_head(why, 400, "two lengths of the body");
    if (!text) return 0;
    if (!*text || text[strspn(text, "0123456789")] || strlen(text) > 18)
        return refuse_head(why, 400, "a length of the body that is none");
    for (; *text; text++) out->length = 10 * out->length + (uint64_t)(*text - '0');
    return 0;
}

/* Whether a list of words contains this one (in small letters), in upper or lower case. */
static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    while (list && *list) {
        list += strspn(list, " \t,");
        size_t i = 0;
        while (i < n && (list[i] | 32) == word[i]) i++;
        if (i == n && (!list[n] || strchr(" \t,", list[n]))) return true;
        list += strcspn(list, ",");
    }
    return false;
}

static int read_use(http_head *out, const char **why)
{
    const char *connection = http_header(out, "connection"), *expect = http_header(out, "expect");
    out->keep = out->minor ? !has_word(connection, "close") : has_word(connection, "keep-alive");
    out->expect = expect && out->minor && has_word(expect, "100-continue");
    if (expect && !out->expect)
        return refuse_head(why, 417, "Expect: 100-continue is all there is");
    if (count_headers(out, "host") > 1 || (out->minor && !http_header(out, "host")))
        return refuse_head(why, 400, "expected one header Host");
    return 0;
}

int http_head_read(char *text, size_t bytes, http_head *out, const char **why)
{
    const char *end = text + bytes;
    memset(out, 0, sizeof *out);
    out->query = "";
    char *next = next_line(&text, end);
    int   status = next ? read_request_line(next, out, why)
                        : refuse_head(why, 400, "a first line that is none");
    while (!status && text < end) {
        next = next_line(&text, end);
        if (!next) return refuse_head(why, 400, "a header that is none");
        if (!*next) break;
        status = read_header(next, out, why);
    }
    if (!status) status = read_length(out, why);
    return status ? status : read_use(out, why);
}

bool http_query(const http_head *h, const char *key, char *value, size_t size)
{
    const size_t n = strlen(key);
    for (const char *at = h->query; *at; at += strcspn(at, "&"), at += *at == '&') {
        const size_t length = strcspn(at, "&");
        if (length <= n || memcmp(at, key, n) != 0 || at[n] != '=') continue;
        if (length - n - 1 >= size) return false;
        memcpy(value, at + n + 1, length - n - 1);
        value[length - n - 1] = '\0';
        return http_decode(value);
    }
    return false;
}
