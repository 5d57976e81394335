/* How a page looks and what its script does: files of their own, embedded by the build. */
#include "page.h"

static void write_lines(FILE *out, const char *const *lines)
{
    for (; *lines; lines++) fputs(*lines, out);
}

void page_head(FILE *out, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          out);
    svg_text(out, title);
    fputs("</title>\n<style>\n", out);
    write_lines(out, page_style);
    for (int i = 0; i < SVG_COLOURS; i++)
        fprintf(out,
                "polyline.c%d,path.c%d,circle.c%d.hollow{stroke:var(--c%d)}"
                "circle.c%d,rect.c%d,.cell.c%d{fill:var(--c%d)}.key.c%d{color:var(--c%d)}\n",
                i, i, i, i, i, i, i, i, i, i);
    fputs("</style></head>\n<body><main>\n", out);
    svg_lines_clip(out);
}

void page_script_write(FILE *out)
{
    fputs("<script>\n", out);
    write_lines(out, page_script);
    fputs("</script>\n", out);
}
