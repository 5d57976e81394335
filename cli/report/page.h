/* A page about runs, one file of HTML that needs nothing else. A record has the same colour
 * everywhere: its number. */
#ifndef DRA_CLI_REPORT_PAGE_H
#define DRA_CLI_REPORT_PAGE_H

#include "record.h"
#include "svg.h"

typedef struct cli_page {
    FILE              *out;
    const char        *title;
    const char *const *lead; /* paragraphs that come first, NULL at the end; NULL: none */
    size_t             n;
    const cli_record  *records;
} cli_page;

void page_write(const cli_page *p);

/* Reads runs and writes the page about them to a file. title NULL: the runs' names. */
dra_status page_report(size_t n, const char *const *runs, const char *path, const char *title,
                       const char *const *lead, dra_error *err);

/* Its parts; those that have nothing to show write nothing. */
void page_head(FILE *out, const char *title); /* with the style */
void page_script_write(FILE *out);     /* hovering, zooming and switches; all is readable without */
void page_finding(const cli_page *p);  /* which run ended best, by how much, at what cost */
void page_facts(const cli_page *p);    /* date, machine, seed and command, where runs share them */
void page_summary(const cli_page *p);  /* a table, and what could not be read */
void page_settings(const cli_page *p); /* all that the folders say, what differs first */
void page_curves(const cli_page *p);   /* numbers of the logs over steps */
void page_decays(const cli_page *p);   /* half-lives, and how they moved */
void page_maps(const cli_page *p);     /* what a sample attended to and where it was kept */
void page_samples(const cli_page *p);
void page_probes(const cli_page *p);
void page_stream(const cli_page *p); /* numbers over tokens that were read */

/* Lines of cli/report/page.css and cli/report/page.js, NULL at the end; made by the build. */
extern const char *const page_style[], *const page_script[];

double page_sort(size_t n, double *x);             /* returns the middle one; NaN: there is none */
void   page_section(FILE *out, const char *title); /* begins one; ends with </section> */
void   page_key(FILE *out, size_t i);              /* a short line in the colour of record i */

/* Numbers of a series over steps; NaN: there are none. */
double page_last(const cli_record *r, const char *name);
double page_last_step(const cli_record *r);
double page_least(const cli_record *r, const char *name);
double page_end(const cli_record *r, const char *name); /* mean of its last tenth, 50 at most */
double page_median(const cli_record *r, const char *name);
const char *page_time(double seconds, char text[32]); /* "0:01:20" */
bool        page_is_run(const cli_record *r);         /* a file of probes alone is none */

#endif
