/* From runs to the file of a page about them. */
#include "page.h"
#include "io/memory.h"

#include <stdlib.h>
#include <string.h>

static void default_title(const cli_record *records, size_t n, char title[256])
{
    enum { NAMED = 4 };
    size_t used = 0;
    if (n > NAMED) {
        snprintf(title, 256, "%zu runs", n);
        return;
    }
    for (size_t i = 0; i < n && used < 256; i++)
        used += (size_t)snprintf(title + used, 256 - used, "%s%s", i ? ", " : "", records[i].name);
}

/* Where two runs share a name, all are called by the ends of their paths. */
static void name_apart(cli_record *records, size_t n)
{
    bool twice = false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            twice = twice || strcmp(records[i].name, records[k].name) == 0;
    for (size_t i = 0; twice && i < n; i++) {
        const size_t length = strlen(records[i].path), room = sizeof records[i].name - 1;
        snprintf(records[i].name, room + 1, "%s",
                 records[i].path + (length > room ? length - room : 0));
    }
}

static dra_status write_file(const cli_page *page, const char *path, dra_error *err)
{
    char      *text = NULL;
    size_t     bytes = 0;
    cli_page   p = *page;
    dra_status st = cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory for the page", path);
    p.out = dra_stream_memory(&text, &bytes);
    if (!p.out) return st;
    page_write(&p);
    const bool whole = !cli_memory_lacked();
    if (fclose(p.out) == 0 && whole) st = dra_file_write(path, text, bytes, err);
    free(text);
    return st;
}

dra_status page_report(size_t n, const char *const *runs, const char *path, const char *title,
                       const char *const *lead, dra_error *err)
{
    char        names[256];
    dra_status  st = DRA_OK;
    cli_record *records = calloc(n, sizeof *records);
    if (!records) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n && st == DRA_OK; i++) st = cli_record_read(runs[i], &records[i], err);
    if (st == DRA_OK) {
        name_apart(records, n);
        default_title(records, n, names);
        st = write_file(&(cli_page){NULL, title ? title : names, lead, n, records}, path, err);
    }
    for (size_t i = 0; i < n; i++) cli_record_free(&records[i]);
    free(records);
    return st;
}
