#include <stdlib.h>

int curandCreateGenerator(void **generator, int type) { return (*generator = calloc(1, 256)) ? 0 : 102; }
