/* The manual: a page for each verb and one for all, from the tables that parse. A page is described
 * once, to a format that writes it: for a terminal, as a man page, or as Markdown. */
#ifndef DRA_CLI_OPTIONS_MANUAL_H
#define DRA_CLI_OPTIONS_MANUAL_H

#include "options.h"

/* Parts of a page, in the order they come. Texts are ASCII, without newlines. */
typedef struct cli_format {
    void (*begin)(const char *name, const char *summary, const char *usage, FILE *out);
    void (*heading)(const char *text, FILE *out);
    void (*paragraph)(const char *text, size_t length, FILE *out);
    void (*item)(const char *term, const char *text, FILE *out);
    void (*example)(const char *command, const char *shows, FILE *out);
    const char *before, *after; /* of a verb's name where a page refers to it */
} cli_format;

extern const cli_format cli_as_text, cli_as_man, cli_as_markdown;

void cli_manual(const cli_verb *verb, const cli_format *format, FILE *out);
void cli_manual_overview(const cli_format *format, FILE *out);
/* The keys of a model's config: those with a part in their name or text, whatever the case of its
 * letters; NULL: all. */
bool cli_has_keys(const char *part);
void cli_manual_keys(const char *part, const cli_format *format, FILE *out);

/* The key that was meant: the same name, but for - and _, or another program's for it. */
bool cli_key_meant(const char *typed, char *name, size_t size);

/* Lines of a text, each a paragraph. */
void cli_write_paragraphs(const cli_format *format, const char *text, FILE *out);

/* Whether an option is a flag that is on unless --no-NAME is given. */
bool cli_starts_on(const cli_verb *verb, const cli_option *option);

#endif
