/* Writing a block of 256 numbers. */
#ifndef DRA_SRC_QUANT_K_H
#define DRA_SRC_QUANT_K_H

void dra_write_q4_k(const float *x, unsigned char *block);
void dra_write_q5_k(const float *x, unsigned char *block);
void dra_write_q6_k(const float *x, unsigned char *block);

#endif
