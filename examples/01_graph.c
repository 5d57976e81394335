/* A first graph: y = tanh(x w), its gradient with respect to w, run once. */
#include <stdio.h>

#include "dra/dra.h"

int main(void)
{
    dra_error  err = {0};
    dra_graph *g = NULL;
    dra_graph_create(&g, &err);
    dra_value x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(2, 3));     /* (B, I) */
    dra_value w = dra_parameter(g, "w", DRA_REAL, DRA_SHAPE(3, 2)); /* (I, O) */
    dra_value y = dra_tanh(g, dra_matmul(g, x, w));
    dra_value loss = dra_sum_all(g, dra_square(g, y)), dw;
    dra_gradient(g, 1, &loss, NULL, 1, &w, &dw);
    dra_output(g, "loss", loss);
    dra_output(g, "dw", dw);

    dra_device  *cpu = NULL;
    dra_program *program = NULL;
    dra_buffers *buffers = NULL;
    dra_real     x_data[] = {1, 2, 3, 4, 5, 6}, w_data[] = {.1f, -.2f, .3f, .1f, -.1f, .2f};
    dra_status   st = dra_device_create_cpu(NULL, &cpu, &err);
    if (st == DRA_OK) st = dra_compile(g, cpu, &program, &err);
    if (st == DRA_OK) st = dra_buffers_create(program, &buffers, &err);
    if (st == DRA_OK) st = dra_put(buffers, "x", x_data, sizeof x_data, &err);
    if (st == DRA_OK) st = dra_put(buffers, "w", w_data, sizeof w_data, &err);
    if (st == DRA_OK) st = dra_run(buffers, &err);
    dra_real found, d[6];
    if (st == DRA_OK) st = dra_get(buffers, "loss", &found, sizeof found, &err);
    if (st == DRA_OK) st = dra_get(buffers, "dw", d, sizeof d, &err);
    if (st == DRA_OK) {
        printf("loss %.6f, dw", (double)found);
        for (int i = 0; i < 6; i++) printf(" %.6f", (double)d[i]);
        printf("\n");
    } else {
        fprintf(stderr, "%s\n", err.text);
    }
    dra_buffers_destroy(buffers);
    dra_program_destroy(program);
    dra_device_destroy(cpu);
    dra_graph_destroy(g);
    return st != DRA_OK;
}
