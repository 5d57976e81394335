/* Presets by name. */
#include "model/presets.h"

#include <string.h>

#include "base/error.h"

const dra_preset *dra_preset_at(size_t i)
{
    for (size_t k = 0; dra_presets[k].name; k++)
        if (k == i) return &dra_presets[k];
    return NULL;
}

dra_status dra_preset_config(const char *name, dra_model_config *out, dra_error *err)
{
    dra_guess guess = {.typed = name};
    for (const dra_preset *p = dra_presets; p->name; p++) {
        if (strcmp(p->name, name) == 0)
            return dra_model_config_parse(name, p->json, strlen(p->json), out, err);
        dra_guess_try(&guess, p->name);
    }
    return dra_fail(err, DRA_ERR_NAME, "no preset is called %.40s%s%s%s", name,
                    guess.best ? "; did you mean " : "", guess.best ? guess.best : "",
                    guess.best ? "?" : "");
}
