/* A model as a picture: a column of boxes for each stack, arrows between them. */
#ifndef DRA_CLI_VERBS_INFO_DRAW_H
#define DRA_CLI_VERBS_INFO_DRAW_H

#include "outline.h"

/* A whole SVG file, which needs no style of a page. */
void draw_model(FILE *out, const outline *o, const char *title);

#endif
