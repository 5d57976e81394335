/* Options of dra train that are read in parts. */
#include "read.h"
#include "io/model.h"
#include "options/value.h"

#include <string.h>

bool cli_read_stages(const char *text, dra_train_config *c)
{
    char        part[64];
    const char *at = text;
    for (c->stages = 0; *at && c->stages < DRA_STAGES_MOST; c->stages++) {
        const size_t n = strcspn(at, ",");
        if (n >= sizeof part) return false;
        snprintf(part, sizeof part, "%.*s", (int)n, at);
        dra_stage *s = &c->stage[c->stages];
        char      *colon = strchr(part, ':');
        if (colon) *colon++ = '\0';
        if (!cli_read_int(part, &s->context) || s->context < 1 || s->context > 1 << 20)
            return false;
        if (colon && (!cli_read_int(colon, &s->from) || s->from < 0)) return false;
        at += n + (at[n] == ',');
    }
    return c->stages > 0 && !*at && at[-1] != ',';
}

int cli_read_aux_loss(const char *verb, const char *text, dra_train_config *c)
{
    char         quoted[80], name[32];
    const size_t n = strcspn(text, "=");
    dra_guess    guess = {.typed = name};
    snprintf(name, sizeof name, "%.*s", (int)n, text);
    for (int k = 0; k < DRA_AUX_COUNT; k++) {
        const char *known = dra_aux_name((dra_aux_kind)k);
        if (strcmp(name, known) == 0 && text[n] && cli_read_real(text + n + 1, &c->aux_loss[k]))
            return CLI_OK;
        dra_guess_try(&guess, known);
    }
    return cli_misused(verb, "--aux-loss: expected %s=X with a number X, found %s",
                       guess.best ? guess.best : "NAME", cli_quote(text, quoted, sizeof quoted));
}

/* What is kept of a number that a user gives: 0 stands for a default. */
static bool keep_number(const char *text, double most, double *out)
{
    double x;
    if (*out != 0 || !cli_read_real(text, &x) || x < 0 || x > most) return false;
    *out = x == 0 ? -1 : x;
    return true;
}

/* "lr=2x" or "wd=0.1". */
static bool read_setting(const char *text, dra_group_config *g)
{
    char         times[32];
    const size_t n = strlen(text);
    if (strncmp(text, "wd=", 3) == 0) return keep_number(text + 3, 100, &g->wd);
    if (strncmp(text, "lr=", 3) != 0 || text[n - 1] != 'x' || n - 3 > sizeof times) return false;
    snprintf(times, sizeof times, "%.*s", (int)(n - 4), text + 3);
    return keep_number(times, 1e6, &g->lr);
}

static bool read_settings(const char *text, dra_group_config *g)
{
    char   part[40];
    size_t n;
    for (; *text; text += n + 1) {
        n = strcspn(text, ",");
        if (n >= sizeof part) return false;
        snprintf(part, sizeof part, "%.*s", (int)n, text);
        if (!read_setting(part, g)) return false;
        if (!text[n]) return true;
    }
    return false;
}

/* "r=16", "alpha=32" or, with what follows without a name of its own, "targets=q,k". */
static bool read_lora_part(const char *part, bool *targets, dra_lora_config *c)
{
    static const char key[] = "targets=";
    const size_t      used = strlen(c->targets), room = sizeof c->targets - used;
    const bool        more = *targets && !strchr(part, '=');
    double            rank;
    if (more) return snprintf(c->targets + used, room, ",%s", part) < (int)room;
    *targets = strncmp(part, key, strlen(key)) == 0;
    if (*targets) return !used && snprintf(c->targets, room, "%s", part + strlen(key)) < (int)room;
    if (strncmp(part, "alpha=", 6) == 0)
        return c->alpha == 0 && cli_read_real(part + 6, &c->alpha) && c->alpha > 0;
    if (strncmp(part, "r=", 2) != 0 || c->rank || !cli_read_real(part + 2, &rank)) return false;
    c->rank = rank >= 1 && rank <= 1 << 16 ? (int64_t)rank : 0;
    return c->rank > 0 && (double)c->rank == rank;
}

int cli_read_lora(const char *verb, const char *text, dra_train_config *c)
{
    char quoted[80], part[sizeof c->lora.targets];
    bool targets = false, well = true;
    for (const char *at = text; well; at++) {
        const size_t n = strcspn(at, ",");
        snprintf(part, sizeof part, "%.*s", (int)n, at);
        well = n > 0 && n < sizeof part && read_lora_part(part, &targets, &c->lora);
        at += n;
        if (!*at) break;
    }
    if (well && c->lora.rank) return CLI_OK;
    return cli_misused(verb,
                       "--lora: expected r=N,alpha=X,targets=q,k,v,o with r from 1 to 65536, each "
                       "once, found %s",
                       cli_quote(text, quoted, sizeof quoted));
}

int cli_read_group(const char *verb, const char *text, dra_train_config *c)
{
    char         quoted[80], name[32];
    const size_t n = strcspn(text, ":");
    dra_guess    guess = {.typed = name};
    snprintf(name, sizeof name, "%.*s", (int)n, text);
    for (int k = 1; k < DRA_PARAM_GROUPS; k++) {
        const char *known = dra_param_group_name((dra_param_group)k);
        if (strcmp(name, known) == 0 && text[n] && read_settings(text + n + 1, &c->group[k]))
            return CLI_OK;
        dra_guess_try(&guess, known);
    }
    return cli_misused(verb,
                       "--group: expected %s:lr=Nx,wd=X or one of the two, N from 0 to 1e6, X from "
                       "0 to 100, once, found %s",
                       guess.best ? guess.best : "NAME", cli_quote(text, quoted, sizeof quoted));
}
