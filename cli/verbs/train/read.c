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

int cli_read_aux_loss(const char *text, dra_train_config *c)
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
    return cli_misused("train", "--aux-loss: expected %s=X with a number X, found %s",
                       guess.best ? guess.best : "NAME", cli_quote(text, quoted, sizeof quoted));
}
