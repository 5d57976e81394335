/* Tool calls: how the model's template writes them, which tools a request offers, and the calls
 * of an answer. */
#ifndef DRA_CLI_SERVE_TOOLS_H
#define DRA_CLI_SERVE_TOOLS_H

#include "fields.h"

enum { SERVE_TOOLS = 128 };

/* What stands around names and arguments of calls, as the template of the model writes them:
 *     begin NAME middle ARGUMENTS (between NAME middle ARGUMENTS)* end */
struct serve_form {
    char  *begin, *middle, *end;
    char  *between; /* NULL: there is one call only */
    size_t trigger; /* bytes of `begin` (after what is no text) by which a call is known */
    size_t unseen;  /* bytes of `begin` that are tokens without text */
};

typedef enum serve_choice_kind { SERVE_AUTO, SERVE_REQUIRED, SERVE_NAMED } serve_choice_kind;

typedef struct serve_tools { /* of a request; points into its body */
    json_t           *list;  /* NULL: it has none */
    size_t            n;
    const char       *name[SERVE_TOOLS];
    json_t           *parameters[SERVE_TOOLS]; /* NULL: any object */
    bool              strict[SERVE_TOOLS];
    serve_choice_kind choice;
    size_t            named; /* which, of SERVE_NAMED */
    bool              single;
} serve_tools;

/* Learns it from what the template makes of a call; NULL: it writes none, or in another way. */
serve_form *serve_form_learn(const serve_model *m);
void        serve_form_free(serve_form *f); /* NULL is allowed */

/* `tools` and `tool_choice` of a body, NULL where they are not there. */
bool serve_tools_read(json_t *tools, json_t *choice, serve_tools *out, serve_error *e);
/* Answers of a request: text and calls, or calls alone. To be freed. */
char *serve_tools_rules(const serve_form *f, const serve_tools *t);
/* What an answer begins with that the prompt has already: of calls that must be made. */
void serve_tools_begin(const serve_form *f, const serve_tools *t, serve_text *out);

/* How much of an answer is certainly content. `over`: nothing follows it. */
size_t serve_calls_after(const serve_form *f, const serve_tools *t, const char *text, size_t n,
                         bool over);
/* Writes the calls of an answer, which begin there, as a list of JSON, with numbers if it is for a
 * stream. Returns how many they are. */
size_t serve_calls_put(const serve_form *f, const serve_tools *t, const char *text, size_t n,
                       bool numbered, serve_text *out);

#endif
