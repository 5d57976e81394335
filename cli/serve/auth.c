/* Who may ask: addresses, keys, origins. route.c asks it, and answers 401 and 403. */
#include "serve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- at the start ---------------------------------------------------------------------------- */

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           (strncmp(host, "127.", 4) == 0 && !host[strspn(host, "0123456789.")]);
}

/* A key in each line; empty ones and those that start with # are none. */
static bool read_keys(serve *s, const char *path, dra_error *err)
{
    char  *data = NULL;
    size_t bytes = 0;
    if (dra_file_read(path, 1 << 16, &data, &bytes, err) != DRA_OK) return false;
    for (char *at = data, *next; *at && s->n_keys < SERVE_KEYS; at = next) {
        size_t n = strcspn(at, "\r\n");
        next = at + n + strspn(at + n, "\r\n");
        if (!n || *at == '#') continue;
        if (n >= sizeof s->key[0]) n = sizeof s->key[0] - 1;
        memcpy(s->key[s->n_keys++], at, n);
    }
    free(data);
    if (s->n_keys) return true;
    cli_error(err, DRA_ERR_VALUE, "%.200s: expected a key in a line, found none", path);
    return false;
}

/* Headers of all answers: the page may load and ask nothing but this server. */
static void make_extra(serve *s)
{
    const char *cors = s->args->cors;
    snprintf(s->extra, sizeof s->extra,
             "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
             "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
             "frame-ancestors 'none'\r\n"
             "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n%s%s%s",
             cors ? "Access-Control-Allow-Origin: " : "", cors ? cors : "",
             cors ? "\r\nVary: Origin\r\n" : "");
}

static bool read_bytes(const char *text, size_t *out)
{
    static const char units[] = "KMGT";
    char             *end;
    double            x = strtod(text, &end);
    const char       *unit = *end ? strchr(units, *end) : NULL;
    if (end == text || (*end && (!unit || end[1])) || !(x > 0)) return false;
    for (const char *u = units; unit && u <= unit; u++) x *= 1024;
    if (!(x >= 1 && x < 1e15)) return false;
    *out = (size_t)x;
    return true;
}

int serve_safety(serve *s)
{
    const serve_args *a = s->args;
    dra_error         err = {0};
    if (!read_bytes(a->memory_limit, &s->memory_limit))
        return cli_misused("serve", "--memory-limit: expected bytes such as 512M or 4G, found %s",
                           a->memory_limit);
    if (a->cors && (strlen(a->cors) > 200 || strpbrk(a->cors, "\r\n")))
        return cli_misused("serve", "--cors: expected one origin such as https://example.org");
    if (a->key_file && !read_keys(s, a->key_file, &err)) return cli_fail(&err);
    if (!is_loopback(a->host) && !s->n_keys)
        return cli_misused(
            "serve", "--host %s: others could use this address; expected --api-key-file", a->host);
    make_extra(s);
    return CLI_OK;
}

/* ---- every request --------------------------------------------------------------------------- */

/* Takes the same time wherever they differ. */
static bool same_key(const char *key, const char *given)
{
    const size_t  n = strlen(given);
    unsigned char differs = strlen(key) != n;
    for (size_t i = 0; i < sizeof((serve *)0)->key[0]; i++)
        differs |= (unsigned char)(key[i] ^ (i < n ? given[i] : 0));
    return !differs;
}

bool serve_key_fits(const serve *s, const http_head *h)
{
    const char *given = http_header(h, "authorization");
    bool        fits = s->n_keys == 0;
    if (!given || strncmp(given, "Bearer ", 7) != 0) return fits;
    for (size_t i = 0; i < s->n_keys; i++) fits |= same_key(s->key[i], given + 7);
    return fits;
}

/* "host:port" is one of this machine's own names. */
static bool host_is_own(const char *host)
{
    char         name[64];
    const size_t n = host[0] == '[' ? strcspn(host + 1, "]") : strcspn(host, ":");
    if (n >= sizeof name) return false;
    memcpy(name, host[0] == '[' ? host + 1 : host, n);
    name[n] = '\0';
    return is_loopback(name);
}

/* A page of another site makes the browser send its origin; a name that somebody points to this
 * machine comes as the host. Neither may use a server that asks for no key. */
bool serve_allowed(serve *s, const http_head *h, serve_error *e)
{
    const char *origin = http_header(h, "origin"), *host = http_header(h, "host");
    const char *site = origin ? strstr(origin, "://") : NULL;
    const bool  cors = s->args->cors && origin &&
                      (strcmp(s->args->cors, "*") == 0 || strcmp(s->args->cors, origin) == 0);
    if (origin && !cors && (!site || !host || strcmp(site + 3, host) != 0))
        return serve_wrong(e, 403, NULL, "requests of %.100s are not allowed; see --cors", origin);
    if (!s->n_keys && host && !host_is_own(host))
        return serve_wrong(e, 403, NULL, "%.100s is no name of this machine; see --api-key-file",
                           host);
    return true;
}
