/* Who may ask: addresses and origins. route.c asks it, and answers 403. */
#include "serve.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- at the start ---------------------------------------------------------------------------- */

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           (strncmp(host, "127.", 4) == 0 && !host[strspn(host, "0123456789.")]);
}

/* Headers of all answers: the page may load from and connect to this server only. */
static void make_extra(serve *s)
{
    const char *cors = s->args->cors;
    snprintf(s->extra, sizeof s->extra,
             "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
             "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
             "frame-ancestors 'none'\r\n"
             "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n%s%s%s",
             cors ? "Access-Control-Allow-Origin: " : "", cors ? cors : "",
             cors ? "\r\nAccess-Control-Expose-Headers: x-request-id\r\nVary: Origin\r\n" : "");
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

static int read_sizes(serve *s)
{
    const serve_args *a = s->args;
    const struct {
        const char *option, *text;
        size_t     *out;
    } all[] = {{"memory-limit", a->memory_limit, &s->memory_limit},
               {"request-memory", a->request_memory, &s->limits.memory},
               {"max-answer", a->max_answer, &s->max_answer},
               {"max-state", a->max_state, &s->max_state},
               {"state-quota", a->state_quota, &s->state_quota},
               {"state-disk", a->state_disk, &s->state_disk}};
    for (size_t i = 0; i < COUNT(all); i++)
        if (!read_bytes(all[i].text, all[i].out))
            return cli_misused("serve", "--%s: expected bytes such as 512M or 4G, found %s",
                               all[i].option, all[i].text);
    return CLI_OK;
}

int serve_safety(serve *s)
{
    const serve_args *a = s->args;
    dra_error         err = {0};
    const int         status = read_sizes(s);
    if (status != CLI_OK) return status;
    if (a->cors && (strlen(a->cors) > 200 || strpbrk(a->cors, "\r\n")))
        return cli_misused("serve", "--cors: expected one origin such as https://example.org");
    if (a->key_file && !serve_keys_read(&s->keys, a->key_file, &err)) return cli_fail(&err);
    if (!a->unix_path && !is_loopback(a->host) && !s->keys.n)
        return cli_misused(
            "serve", "--host %s: others could use this address; expected --api-key-file", a->host);
    make_extra(s);
    return CLI_OK;
}

/* ---- every request --------------------------------------------------------------------------- */

/* "host:port" or "[host]:port" is one of this machine's own names, in upper or lower case. */
static bool host_is_own(const char *host)
{
    char         name[64];
    const bool   v6 = host[0] == '[';
    const size_t n = strcspn(host += v6, v6 ? "]" : ":");
    const char  *rest = host + n + v6;
    if (n >= sizeof name || (v6 && !host[n]) || (*rest && *rest != ':')) return false;
    memcpy(name, host, n);
    name[n] = '\0';
    if (n && name[n - 1] == '.') name[n - 1] = '\0'; /* the root of all names */
    return strcasecmp(name, "localhost") == 0 || is_loopback(name);
}

/* A browser sends the origin of a page of another site, and a foreign name that resolves to this
 * machine as the host. Without keys, both are refused. */
bool serve_allowed(serve *s, const http_head *h, serve_error *e)
{
    const char *origin = http_header(h, "origin"), *host = http_header(h, "host");
    const char *site = origin ? strstr(origin, "://") : NULL;
    const bool  cors = s->args->cors && origin &&
                      (strcmp(s->args->cors, "*") == 0 || strcmp(s->args->cors, origin) == 0);
    if (origin && !cors && (!site || !host || strcmp(site + 3, host) != 0))
        return serve_wrong(e, 403, NULL, "requests of %.100s are not allowed; see --cors", origin);
    if (!s->keys.n && host && !host_is_own(host))
        return serve_wrong(e, 403, NULL, "%.100s is not a name of this machine; see --api-key-file",
                           host);
    return true;
}
